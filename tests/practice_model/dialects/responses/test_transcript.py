"""Stored conversations share common items without visible effects."""

import json

from hypothesis import given
from hypothesis import strategies as st

from practice_model.dialects.responses.transcript import Transcript

IDS = st.sampled_from(["a", "b", "c"])
ITEMS = st.one_of(
    st.builds(
        lambda item_id, text: {"type": "message", "id": item_id, "role": "user", "content": text}, IDS, st.text()
    ),
    st.builds(lambda item_id: {"type": "function_call", "call_id": item_id, "name": "f", "arguments": "{}"}, IDS),
    st.builds(lambda item_id: {"type": "function_call_output", "call_id": item_id, "output": ""}, IDS),
    st.builds(lambda item_id: {"type": "mcp_approval_request", "id": item_id}, IDS),
    st.builds(lambda item_id: {"type": "mcp_approval_response", "approval_request_id": item_id}, IDS),
)
STEPS = st.lists(st.tuples(st.integers(0, 20), st.lists(ITEMS, max_size=4)), max_size=20)


def find_open_requests(items: list) -> tuple:
    """Return the requests without a result, computed from all items."""
    kinds = {"function_call_output": "function_call", "mcp_approval_response": "mcp_approval_request"}
    open_requests: list = []
    for item in items:
        key = item.get("call_id") or item.get("approval_request_id") or item["id"]
        if item["type"] in kinds.values():
            open_requests.append((item["type"], key))
        elif (kinds.get(item["type"]), key) in open_requests:
            open_requests.remove((kinds[item["type"]], key))
    return tuple(open_requests)


@given(STEPS)
def test_every_branch_has_its_own_items_and_no_others(steps):
    """Regardless of the continuations, each transcript equals a separate list."""
    branches = [(Transcript(), [])]
    for branch_index, items in steps:
        transcript, plain = branches[branch_index % len(branches)]
        branches.append((transcript.with_items(items), plain + items))
    for transcript, plain in branches:
        assert [*transcript] == plain
        assert len(transcript) == len(plain)
        assert [*reversed(transcript)] == plain[::-1]
        assert transcript[1:3] == plain[1:3]
        assert transcript.open == find_open_requests(plain)
        assert {item_id for item_id in "abc" if transcript.has_id(item_id)} == {item.get("id") for item in plain} - {
            None
        }
        assert transcript.characters == sum(len(json.dumps(item)) + 2 for item in plain)
