"""Conversations in the framework's Cosmos DB provider, wrapped: folded, and stored once."""

import json
import uuid

import pytest
from agent_framework import Content, HistoryProvider, Message
from agent_framework_azure_cosmos import CosmosHistoryProvider

from durable_agent_host import CoalescingHistoryProvider
from durable_agent_host.features.histories.message_names import POSITION
from tests.kit_histories import cosmos_client
from tests.kit_services import cosmos

SCRIPT = "".join(f"value_{n} = {n}\nprint(value_{n})\n" for n in range(70))


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """A Cosmos DB emulator."""
    with cosmos(tmp_path_factory.mktemp("cosmos")) as port:
        yield port


@pytest.fixture
async def client(port):
    """A client of the emulator."""
    async with cosmos_client(port) as client:
        yield client


@pytest.fixture
async def real(client):
    """The framework's provider, on an empty container."""
    name = f"db-{uuid.uuid4().hex[:8]}"
    await client.create_database(name)
    return CosmosHistoryProvider(cosmos_client=client, database_name=name, container_name="history")


async def documents(real, session_id):
    """Read the stored documents of a session, in order."""
    query = "SELECT * FROM c WHERE c.session_id = @id ORDER BY c.sort_key ASC"
    parameters = [{"name": "@id", "value": session_id}]
    found = real._container_proxy.query_items(query=query, parameters=parameters, partition_key=session_id)
    messages = [item["message"] async for item in found]
    return sorted(messages, key=lambda message: message["additional_properties"].get(POSITION, 0))


def chunk_messages(script=SCRIPT, length=6):
    """Give an answer as older clients stored a streamed code run: hundreds of chunks, and the script again."""
    texts = [script[n : n + length] for n in range(0, len(script), length)]
    calls = [
        Content.from_code_interpreter_tool_call(
            call_id="ci_1",
            inputs=[Content.from_text(text, additional_properties={"sequence_number": number})],
            additional_properties={"sequence_number": number, "item_id": "ci_1"},
        )
        for number, text in enumerate([*texts, script])
    ]
    result = Content.from_code_interpreter_tool_result(call_id="ci_1", outputs=[])
    return Message("assistant", [result, *calls, Content.from_text("Done")], message_id="answer-1")


def scripts(contents):
    """Give the scripts of stored contents."""
    return [
        "".join(part["text"] for part in content.get("inputs") or []) for content in contents if "call_id" in content
    ]


async def test_hundreds_of_chunks_are_one_item(real):
    """A streamed script that the framework's provider stores as hundreds of chunks is one call, whole."""
    await real.save_messages("bare", [chunk_messages()])
    (bare,) = await documents(real, "bare")
    assert len(bare["contents"]) > 300
    provider = CoalescingHistoryProvider(real)
    await provider.save_messages("wrapped", [chunk_messages()])
    (document,) = await documents(real, "wrapped")
    kinds = [content["type"] for content in document["contents"]]
    assert kinds == ["code_interpreter_tool_call", "code_interpreter_tool_result", "text"]
    assert scripts(document["contents"])[0] == SCRIPT
    assert len(json.dumps(document)) * 10 < len(json.dumps(bare))


async def test_an_old_session_is_loaded_folded_and_stays_as_it_is(real):
    """What was stored chunk by chunk is loaded folded, in order; what is saved next comes behind it."""
    before = [
        Message("user", ["compute"]),
        chunk_messages(),
        *(Message("user", [f"{n}"], message_id=f"m{n}") for n in range(15)),
    ]
    await save_as_before(real, "old", before)
    provider = CoalescingHistoryProvider(real)
    messages = await provider.get_messages("old")
    assert [len(message.contents) for message in messages] == [1, 3, *[1] * 15]
    await provider.save_messages("old", [Message("user", ["again"])])
    assert len((await documents(real, "old"))[1]["contents"]) > 300
    assert [message.text for message in await provider.get_messages("old")][-2:] == ["14", "again"]
    assert len(await documents(real, "old")) == 18


async def save_as_before(real, session_id, messages):
    """Save as older hosts did, one message a time: the emulator cannot order what is saved together."""
    for message in messages:
        await real.save_messages(session_id, [message])


class Dies(HistoryProvider):
    """Stops working after a number of writes, as a process that is killed does."""

    def __init__(self, real, writes):
        super().__init__(real.source_id)
        self.real, self.writes = real, writes

    async def get_messages(self, session_id, **kwargs):
        """Read."""
        return await self.real.get_messages(session_id, **kwargs)

    async def save_messages(self, session_id, messages, **kwargs):
        """Write, or die."""
        self.writes -= 1
        if self.writes < 0:
            raise ConnectionError("killed")
        await self.real.save_messages(session_id, messages, **kwargs)


async def test_repeated_text_is_stored_twice(real):
    """Two turns that say the same are two turns, and the same objects saved again are not stored again."""
    provider = CoalescingHistoryProvider(real)
    turns = [[Message("user", ["yes"]), Message("assistant", ["ok"])] for _ in range(3)]
    for messages in turns:
        await provider.save_messages("same", messages)
    await provider.save_messages("same", turns[2])
    assert [message.text for message in await provider.get_messages("same")] == ["yes", "ok"] * 3


async def test_more_messages_than_one_batch_are_finished_by_a_second_try(real):
    """150 messages of which the first batch was written before the connection broke are there once after a retry."""
    messages = [Message("user", [f"{n}"]) for n in range(150)]
    with pytest.raises(ConnectionError):
        await CoalescingHistoryProvider(Dies(real, 1)).save_messages("many", messages)
    assert len(await documents(real, "many")) == 100
    await CoalescingHistoryProvider(real).save_messages("many", messages)
    stored_messages = await CoalescingHistoryProvider(real).get_messages("many")
    assert [message.text for message in stored_messages] == [f"{n}" for n in range(150)]
    assert len(await documents(real, "many")) == 150
