"""Stored conversations share what they have in common, and nobody can tell."""

import json

from hypothesis import given
from hypothesis import strategies as st

from practice_model.dialects.responses.transcript import Transcript

IDS = st.sampled_from(["a", "b", "c"])
ITEMS = st.one_of(
    st.builds(lambda one, text: {"type": "message", "id": one, "role": "user", "content": text}, IDS, st.text()),
    st.builds(lambda one: {"type": "function_call", "call_id": one, "name": "f", "arguments": "{}"}, IDS),
    st.builds(lambda one: {"type": "function_call_output", "call_id": one, "output": ""}, IDS),
    st.builds(lambda one: {"type": "mcp_approval_request", "id": one}, IDS),
    st.builds(lambda one: {"type": "mcp_approval_response", "approval_request_id": one}, IDS),
)
STEPS = st.lists(st.tuples(st.integers(0, 20), st.lists(ITEMS, max_size=4)), max_size=20)


def open_questions(items: list) -> tuple:
    """What has no answer, found by reading all of the items."""
    kinds = {"function_call_output": "function_call", "mcp_approval_response": "mcp_approval_request"}
    waiting: list = []
    for item in items:
        key = item.get("call_id") or item.get("approval_request_id") or item["id"]
        if item["type"] in kinds.values():
            waiting.append((item["type"], key))
        elif (kinds.get(item["type"]), key) in waiting:
            waiting.remove((kinds[item["type"]], key))
    return tuple(waiting)


@given(STEPS)
def test_every_branch_has_its_own_items_and_no_others(steps):
    """Whatever is continued, and however often, each transcript is what a list of its own would be."""
    branches = [(Transcript(), [])]
    for place, items in steps:
        transcript, plain = branches[place % len(branches)]
        branches.append((transcript.with_items(items), plain + items))
    for transcript, plain in branches:
        assert [*transcript] == plain
        assert len(transcript) == len(plain)
        assert [*reversed(transcript)] == plain[::-1]
        assert transcript[1:3] == plain[1:3]
        assert transcript.open == open_questions(plain)
        assert {one for one in "abc" if transcript.has_id(one)} == {item.get("id") for item in plain} - {None}
        assert transcript.characters == sum(len(json.dumps(item)) + 2 for item in plain)
