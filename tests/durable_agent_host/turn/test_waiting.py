"""What a turn shows while it waits for people."""

import json

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.turn.waiting_status import encode_pending

CALL = {"call_id": "c1", "name": "pay", "arguments": {"amount": 1}, "reason": "it costs"}
ANSWER = {"approved": True, "reason": None, "arguments": None}


@given(
    st.lists(st.text(max_size=9000), max_size=6),
    st.dictionaries(st.text(max_size=40), st.text(max_size=5000), max_size=9),
)
def test_the_status_stays_below_what_durable_functions_takes(arguments, reasons):
    """However large calls and answers are, the status is below 16 KiB of UTF-16, and every call is in it."""
    calls = [{**CALL, "call_id": str(n), "arguments": {"text": text}} for n, text in enumerate(arguments)]
    approvals = {call_id: {**ANSWER, "reason": reason} for call_id, reason in reasons.items()}
    status = encode_pending(calls, approvals)
    assert 2 * len(json.dumps(status)) < 16 * 1024
    assert [call["call_id"] for call in status["pending"]] == [call["call_id"] for call in calls]
    assert {call_id: answer["approved"] for call_id, answer in status["answers"].items()} == dict.fromkeys(
        approvals, True
    )
    assert all(
        "truncated" in status_call or status_call == call
        for status_call, call in zip(status["pending"], calls, strict=True)
    )


def test_a_short_status_is_not_marked_as_truncated():
    """An answer without reason and arguments is whole, however long the others are."""
    approvals = {"long": {**ANSWER, "reason": "x" * 9000}, "bare": ANSWER}
    status = encode_pending([CALL | {"arguments": None, "reason": None}], approvals | {"y" * 9000: ANSWER})
    cut = [call_id for call_id, answer in status["answers"].items() if "truncated" in answer]
    assert (cut, "truncated" in status["pending"][0]) == (["long"], False)
