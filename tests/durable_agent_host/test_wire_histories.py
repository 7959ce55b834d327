"""A turn whose conversation is in the app's history provider is a live turn: the model gets the same request."""

import json
import uuid
from contextlib import asynccontextmanager

import pytest
from agent_framework import FileHistoryProvider, InMemoryHistoryProvider
from agent_framework_azure_cosmos import CosmosHistoryProvider

from durable_agent_host import CoalescingHistoryProvider
from tests.durable_agent_host.test_wire_equivalence import ALL, lab
from tests.kit_histories import Notebook, RedisLists, cosmos_client
from tests.kit_services import cosmos, redis

pytestmark = pytest.mark.filterwarnings("ignore:.*FILE_HISTORY")


@pytest.fixture(scope="module")
def ports(tmp_path_factory):
    """A Redis server and a Cosmos DB emulator."""
    folder = tmp_path_factory.mktemp("servers")
    with redis(folder) as redis_port, cosmos(folder) as cosmos_port:
        yield {"redis": redis_port, "cosmos": cosmos_port}


@asynccontextmanager
async def provider_of(kind, ports, folder):
    """Make a history provider of a kind."""
    match kind:
        case "file":
            yield FileHistoryProvider(folder)
        case "packed file":
            yield FileHistoryProvider(folder, serialization_format="msgpack")
        case "notebook":
            yield Notebook(folder, "notebook")
        case "memory":
            yield InMemoryHistoryProvider()
        case "compacted memory":
            yield InMemoryHistoryProvider(skip_excluded=True)
        case "redis":
            provider = RedisLists(ports["redis"], uuid.uuid4().hex)
            yield provider
            await provider.client.aclose()
        case _:
            async with cosmos_client(ports["cosmos"]) as client:
                name = f"db-{uuid.uuid4().hex[:8]}"
                await client.create_database(name)
                real = CosmosHistoryProvider(cosmos_client=client, database_name=name, container_name="history")
                yield CoalescingHistoryProvider(real) if kind == "folded cosmos" else real


SELECTED_SCENARIOS = ("code with images and tools", "phases before calls", "parallel tools", "a refusal")
"""Scenarios that are played with every kind; all are played with the first one."""

KINDS = ("file", "packed file", "notebook", "memory", "compacted memory", "redis", "cosmos", "folded cosmos")


CASES = [(kind, scenario) for kind in KINDS for scenario in (ALL if kind == KINDS[0] else SELECTED_SCENARIOS)]


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("kind", "scenario"), CASES)
async def test_a_cold_process_sends_what_a_live_one_sends(kind, scenario, ports, tmp_path):
    """Every request is the same as in a process that never stopped and kept the conversation itself."""
    live, texts = lab(scenario, "false")
    await live.live_turns(texts)
    cold, texts = lab(scenario, "false")
    async with provider_of(kind, ports, tmp_path) as provider:
        cold.providers = [provider]
        outcomes = [await cold.cold_turn(text) for text in texts]
    assert [outcome.error for outcome in outcomes] == [None] * len(texts)
    assert cold.bodies == live.bodies


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "memory" not in kind])
async def test_the_session_has_no_second_transcript(kind, ports, tmp_path):
    """What was said and done is with the provider; the session has the turns, their times, usage and ids."""
    cold, texts = lab("code with images and tools", "false")
    async with provider_of(kind, ports, tmp_path) as provider:
        cold.providers = [provider]
        for text in texts:
            await cold.cold_turn(text)
    stored_json = json.dumps(cold.session.entries)
    assert [entry["messages"] for entry in cold.session.entries] == [[]] * 6
    assert [entry["correlationId"] for entry in cold.session.entries[::2]] == ["turn-0", "turn-1", "turn-2"]
    assert not [word for word in ("message 0", "print(1)", "See it", "look_up", "image") if word in stored_json]
    assert len(stored_json) < 1000 * len(texts)


async def test_a_removed_provider_fails_the_turn(tmp_path):
    """The turn fails and names the provider whose messages are missing; with the provider, the session continues."""
    cold, texts = lab("text", "false")
    cold.providers = [provider := Notebook(tmp_path, "notebook")]
    await cold.cold_turn(texts[0])
    cold.providers = []
    assert "Notebook (notebook)" in (await cold.cold_turn(texts[1])).error["message"]
    cold.providers = [provider]
    assert (await cold.cold_turn(texts[1])).error is None


async def test_a_service_that_keeps_the_conversation_gets_it_once(tmp_path):
    """With ``store`` the provider is given everything, and the service what is new."""
    cold, texts = lab("sequential tools", "true")
    cold.providers = [Notebook(tmp_path, "notebook")]
    for text in texts:
        assert (await cold.cold_turn(text)).error is None
    live, texts = lab("sequential tools", "true")
    await live.live_turns(texts)
    assert cold.bodies == live.bodies
    cold.service.store.responses.clear()
    cold.plan({"text": "So."})
    assert (await cold.cold_turn("and on")).error is None
    item_ids = [item["id"] for entry in cold.service.request_log.entries[:-2] for item in entry["output"]]
    assert [item["id"] for item in cold.inputs[-1] if "id" in item] == item_ids
