"""Stored contents that no longer make up the items of their provider, and what makes them so."""

import copy
import json

import pytest
from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.message import encode_response_entry
from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.providers.openai.item_mapping import (
    attach_items,
    find_item_metadata,
    group_by_item,
    rebuild_item,
)
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.session.repair import repair_entries
from durable_agent_host.session.repair_items import properties_of
from durable_agent_host.session.transcript import replay_messages

THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
CODE = {
    "type": "code_interpreter_call",
    "id": "ci_1",
    "code": "print(1)",
    "container_id": "cntr_1",
    "outputs": [{"type": "logs", "logs": "1"}],
    "status": "completed",
}
LIST = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wiki", "tools": []}
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "phase": "final_answer"}
MESSAGE["content"] = [{"type": "output_text", "text": "See", "annotations": []}]
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "f",
    "arguments": "{}",
    "status": "completed",
}


def response(*items, call_id=None):
    """A stored response of one model call, and the contents as they are stored."""
    contents = [Content("text", text="See")] if MESSAGE in items else []
    if CALL in items:
        contents.append(Content("function_call", call_id="call_1", name="f", arguments="{}", status="completed"))
    messages = [Message("assistant", attach_items(contents, items))]
    if CALL in items:
        messages.append(Message("tool", [Content("function_result", call_id="call_1", result="done")]))
    entry = encode_response_entry(call_id or "t", AgentResponse(messages=messages), created_at="now")
    entry = json.loads(json.dumps(entry))
    return entry, entry["messages"][0]["contents"]


def items_of(entries):
    """The items that stand for what is stored."""
    contents = [content for message in replay_messages(entries) for content in message.contents]
    return [rebuild_item(group) for group in group_by_item(contents) if find_item_metadata(group[0])]


def repair(*entries):
    """Repair: everything that was found is gone after one repair, and what is given stays as it was."""
    before = copy.deepcopy(entries)
    after, changes = repair_entries(entries, RESPONSES.repair_rules)
    assert entries == before
    assert repair_entries(after, RESPONSES.repair_rules)[1] == []
    return after, [change.problem for change in changes]


def test_complete_items_are_unchanged():
    """All kinds, with everything that follows them."""
    entry, _ = response(THOUGHT, CODE, LIST, MESSAGE, CALL)
    after, problems = repair(entry)
    assert problems == []
    assert items_of(after) == [THOUGHT, CODE, LIST, MESSAGE, CALL]


def test_a_code_run_without_its_result_gets_an_empty_one():
    """The run goes on to be an item, with the code and its container."""
    entry, contents = response(THOUGHT, CODE, MESSAGE)
    del contents[2]
    after, problems = repair(entry)
    assert problems == ["the code run ci_1 has no result"]
    assert items_of(after) == [THOUGHT, CODE | {"outputs": []}, MESSAGE]


def test_a_result_without_its_code_run_stays_without_the_item():
    """Also behind another item, to which it does not belong; its reasoning goes when nothing else follows."""
    entry, contents = response(MESSAGE, CODE)
    del contents[1]
    after, problems = repair(entry)
    assert problems == ["it is part of item ci_1, which does not stand before it"]
    assert items_of(after) == [MESSAGE]
    assert after[0]["messages"][0]["contents"][1]["content"]["outputs"]

    entry, contents = response(THOUGHT, CODE)
    del contents[1]
    assert repair(entry)[1][-1] == "the reasoning is not followed by what it led to"


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        (lambda code: code.update({"$type": "text", "text": "x"}) or code.pop("content"), "is part of item ci_1"),
        (lambda code: properties_of(code).pop("container_id"), "has lost its container"),
        (lambda code: properties_of(code)[STAMP].pop("type"), "has no type or no id"),
        (lambda code: properties_of(code)[STAMP].update(type="message"), "has lost its contents"),
        (lambda code: properties_of(code)[STAMP].update(type="image_generation_call"), "has lost its contents"),
    ],
)
def test_a_stamp_that_does_not_match_its_contents_is_removed(damage, problem):
    """The contents stay, and stand for no item."""
    entry, contents = response(CODE, MESSAGE)
    damage(contents[0])
    after, problems = repair(entry)
    assert problem in " ".join(problems)
    assert items_of(after) == [MESSAGE]
    assert len(after[0]["messages"][0]["contents"]) == 3
    assert PART_OF not in json.dumps(after)
