"""Calls without a result, and results without a call, in the words of the services that refuse them."""

import copy

from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.anthropic.request_messages import accepted_messages
from durable_agent_host.providers.call_pairing import pair_results
from durable_agent_host.providers.gemini.raw_json_transport import PART_FORMAT
from tests.durable_agent_host.service_rules import find_violation

HELLO = {"role": "user", "parts": [{"text": "Hello"}]}


def call(name: str) -> dict:
    """A call of Gemini."""
    return {"functionCall": {"id": f"id-{name}", "name": name, "args": {}}}


def response(name: str, result: str, **ids: str) -> dict:
    """Its response."""
    return {"functionResponse": {"name": name, "response": {"result": result}, **ids}}


def test_gemini_gets_a_response_for_every_call_and_no_other():
    """Directly after the calls, with the responses that are there; the contents given are not changed."""
    call_message = {"role": "model", "parts": [call("a"), {"text": "I wait."}, call("b")]}
    contents = [
        HELLO,
        call_message,
        {"role": "user", "parts": [response("b", "B", id="id-b"), response("c", "C")]},
        HELLO,
    ]
    contents += [{"role": "model", "parts": [call("d")]}, HELLO, {"role": "model", "parts": [call("e")]}]
    before = copy.deepcopy(contents)
    sent = pair_results(contents, PART_FORMAT)
    assert contents == before
    lost = [response(name, LOST_RESULT, id=f"id-{name}") for name in "ad"]
    result_messages = [
        {"role": "user", "parts": parts} for parts in ([response("b", "B", id="id-b"), lost[0]], [lost[1]])
    ]
    assert sent == [HELLO, call_message, result_messages[0], HELLO, contents[4], result_messages[1], HELLO, contents[6]]
    assert find_violation("Gemini", {"contents": sent[:-1]}) is None
    assert pair_results(sent, PART_FORMAT) == sent


def test_gemini_s_calls_without_ids_have_the_responses_of_their_names():
    """Some services give calls no ids."""
    call_message = {"role": "model", "parts": [{"functionCall": {"name": name, "args": {}}} for name in "ab"]}
    result_message = {"role": "user", "parts": [response("b", "B"), response("a", "A", id="made-up")]}
    assert pair_results([HELLO, call_message, result_message], PART_FORMAT) == [HELLO, call_message, result_message]


def use(name: object) -> dict:
    """A call of Anthropic."""
    return {"type": "tool_use", "id": name, "name": "say", "input": {}}


def result(name: object, text: str) -> dict:
    """Its result."""
    return {"type": "tool_result", "tool_use_id": name, "content": text}


def test_anthropic_gets_each_id_once_and_a_result_for_each_call():
    """Ids that recur or that the service refuses are replaced, in calls and results alike, by the same ones always."""
    text = {"type": "text", "text": "So"}
    results = [result("a", "1"), result("no id/", "3"), result("a", "2"), result("x", "4")]
    messages = [
        {"role": "user", "content": [text]},
        {"role": "assistant", "content": [use("a"), use("a"), use("no id/"), text]},
        {"role": "user", "content": [text, *results]},
        {"role": "assistant", "content": [use("a"), use("b")]},
        {"role": "user", "content": [result("a", "5"), text]},
    ]
    before = copy.deepcopy(messages)
    sent = accepted_messages(messages)
    assert messages == before
    assert find_violation("Claude", {"model": "m", "max_tokens": 1, "messages": sent}) is None
    assert [block["content"] for block in sent[2]["content"] if "content" in block] == ["1", "3", "2"]
    assert [block["content"] for block in sent[4]["content"] if "content" in block] == ["5", LOST_RESULT]
    assert accepted_messages(messages) == sent
    assert accepted_messages(sent) == sent
