"""Reading what people answer."""

import json

import pytest

from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import parse_approvals


def test_one_answer_or_several_are_read():
    """One answer is an object, several are a list."""
    one = {"call_id": "c1", "approved": True}
    read = {"approved": True, "reason": None, "arguments": None}
    assert parse_approvals(json.dumps(one).encode()) == {"c1": read}
    other = {"call_id": "c2", "approved": False, "reason": "no"}
    both = parse_approvals(json.dumps([one, other]).encode())
    assert both == {"c1": read, "c2": {"approved": False, "reason": "no", "arguments": None}}
    changed = {"call_id": "c1", "approved": True, "arguments": {"amount": 2}}
    assert parse_approvals(json.dumps(changed).encode())["c1"]["arguments"] == {"amount": 2}


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (b"", "not valid JSON"),
        (b"[]", "empty list"),
        (b"5", "an object"),
        (b"[null]", "an object"),
        (b"{}", "'call_id'"),
        (b'{"call_id": 5, "approved": true}', "'call_id'"),
        (b'{"call_id": "c1"}', "'approved'"),
        (b'{"call_id": "c1", "approved": "yes"}', "'approved'"),
        (b'{"call_id": "c1", "approved": true, "reason": 5}', "'reason'"),
        (b'{"call_id": "c1", "approved": true, "arguments": []}', "'arguments'"),
        (b'{"call_id": "c1", "approved": false, "arguments": {}}', "'arguments'"),
        (b'{"call_id": "c1", "approved": true, "comment": "x"}', "'comment'"),
        (b'[{"call_id": "c1", "approved": true}, {"call_id": "c1", "approved": false}]', "twice"),
    ],
)
def test_what_is_no_answer_is_refused(body, what):
    """The refusal names what is wrong."""
    with pytest.raises(RequestError, match=what):
        parse_approvals(body)
