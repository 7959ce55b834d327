"""Lost state of a service, and open calls: the turn continues from the transcript, and its requests are accepted."""

import json
import re
from dataclasses import replace

import pytest
from agent_framework import FunctionTool, tool

from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.wire_lab import Lab

THINK = {"reasoning": "Let me see."}
SAY = {"text": "It is so."}
RUN = {"code": "print(1)", "logs": "1\n"}
MODES = {"unset": {}, "true": {"store": True}, "false": {"store": False}}


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"found {word}"


DECLARED = FunctionTool(name="ask_client", description="Runs elsewhere.", input_model={"type": "object"})
ASK = {"calls": [{"name": "ask_client", "arguments": {}}]}
LOOKUP = {"calls": [{"name": "look_up", "arguments": {"word": "a"}}]}


def lab(mode, *turns, **more):
    new_lab = Lab(
        tools=[find_word, DECLARED], options={"include": ["code_interpreter_call.outputs"]} | MODES[mode], **more
    )
    for turn in turns:
        new_lab.plan(*({"items": step} for step in turn))
    return new_lab


@pytest.fixture
async def log(tmp_path):
    """The log of a turn that ends in another process than it began."""
    turn_log = SqliteTurnLog(tmp_path / "log.db")
    yield turn_log
    await turn_log.close()


def refusal_count(cold):
    return cold.endings.count("refused")


@pytest.mark.drawn(4)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("first", [[THINK, ASK], [ASK], [THINK, {"text": "I ask."}, ASK]], ids=len)
async def test_an_open_call_is_closed_in_the_next_request(mode, first, log):
    """The transcript of a cancelled turn replaces the service's conversation: the call, its reasoning and a result."""
    cold = lab(mode, [first], [[THINK, SAY]], [[SAY]])
    await cold.waiting_turn("ask", lambda: log, is_cancelled=True)
    stored_json = json.dumps(cold.session.entries)
    outcome = await cold.cold_turn("and now?")
    assert outcome.error is None
    assert outcome.stats.calls_refused == 0
    item_types = [item["type"] for item in cold.service.request_log.entries[0]["output"]]
    sent = cold.inputs[-1]
    assert [item["type"] for item in sent] == ["message", *item_types, "function_call_output", "message"]
    assert "not run" in sent[-2]["output"]
    assert stored_json[:-1] in json.dumps(cold.session.entries)
    assert (await cold.cold_turn("and then?")).stats.calls_refused == 0


async def test_a_custom_call_is_not_sent_again(log):
    """It is omitted from the transcript that replaces the service's conversation, with its reasoning; it is stored."""
    item = {"type": "custom_tool_call", "name": "grep", "input": "needle"}
    cold = lab("unset", [[THINK, {"item": item}]], [[THINK, SAY]], [[SAY]])
    await cold.waiting_turn("ask", lambda: log, is_cancelled=True)
    for text in ("and now?", "and then?"):
        outcome = await cold.cold_turn(text)
        assert outcome.error is None
        assert outcome.stats.calls_refused == 0
    assert not {item["type"], "reasoning"} & {sent["type"] for sent in cold.inputs[1]}
    assert cold.service.request_log.entries[0]["output"][-1]["id"] in json.dumps(cold.session.entries)


@pytest.mark.parametrize("is_strict", [True, False])
async def test_reasoning_of_another_key_is_omitted(is_strict):
    """One refused call, then the same conversation without it; later turns are not refused, and new reasoning goes."""
    cold = lab("false", [[THINK, LOOKUP], [THINK, SAY]], [[THINK, RUN, THINK, SAY]], [[THINK, SAY]], [[SAY]])
    if not is_strict:
        cold.service.responses.rules = type(cold.service.responses.rules)()
    await cold.cold_turn("first")
    await cold.cold_turn("second")
    item_types = [item["type"] for item in cold.inputs[-1]]
    assert item_types.count("reasoning") == 2
    cold.service.store.expire_encrypted()
    outcome = await cold.cold_turn("third")
    assert outcome.error is None
    assert outcome.stats.calls_refused == 1
    assert "code_interpreter_call" in [item["type"] for item in cold.inputs[-1]]
    assert "reasoning" not in [item["type"] for item in cold.inputs[-1]]
    outcome = await cold.cold_turn("fourth")
    assert outcome.stats.calls_refused == 0
    assert [item["type"] for item in cold.inputs[-1]].count("reasoning") == 1
    assert (await cold.cold_turn("fifth")).stats.calls_refused == 0


@pytest.mark.parametrize("mode", ["unset", "true"])
async def test_a_continuation_and_its_reasoning_can_both_be_lost(mode):
    """The app got another key: the response is not there, the payload cannot be read, the container is gone."""
    cold = lab(mode, [[THINK, RUN, THINK, SAY]], [[THINK, LOOKUP], [THINK, SAY]], [[SAY]])
    await cold.cold_turn("first")
    cold.service.store.expire_encrypted()
    cold.service.store.expire_containers()
    cold.service.store.responses.clear()
    cold.service.store.issued_items.clear()
    outcome = await cold.cold_turn("second")
    assert outcome.error is None
    assert outcome.stats.calls_refused == 2
    assert (await cold.cold_turn("third")).stats.calls_refused == 0


async def test_every_container_that_expired_is_found():
    """Two containers of two turns: the service names one at a time."""
    cold = lab("false", [[RUN, SAY]], [[RUN, SAY]], [[SAY]], [[SAY]])
    await cold.cold_turn("first")
    cold.service.store.expire_containers()
    await cold.cold_turn("second")
    document = json.dumps(cold.session.entries)
    assert len(set(re.findall("cntr_[0-9a-f]+", document))) == 2
    cold.session = replace(cold.session, agent_session=None)
    cold.service.store.expire_containers()
    outcome = await cold.cold_turn("third")
    assert outcome.error is None
    assert outcome.stats.calls_refused == 2
    assert (await cold.cold_turn("fourth")).stats.calls_refused == 0


async def test_a_second_refusal_of_reasoning_fails_the_turn():
    """What does not help is not tried twice."""
    error = {
        "status": 400,
        "code": "invalid_encrypted_content",
        "message": "The encrypted content could not be verified.",
    }
    cold = lab("false", [[THINK, SAY]])
    await cold.cold_turn("first")
    cold.plan({"error": error}, {"error": error})
    outcome = await cold.cold_turn("second")
    assert outcome.status == "failed"
    assert refusal_count(cold) == 2
