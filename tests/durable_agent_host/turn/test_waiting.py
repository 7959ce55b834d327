"""What a turn shows while it waits for people."""

import json

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.turn.pending_approvals import encode_pending

CALL = {"call_id": "c1", "name": "pay", "arguments": {"amount": 1}, "reason": "it costs"}
ANSWER = {"approved": True, "reason": None, "arguments": None}


@given(
    st.lists(st.text(max_size=9000), max_size=6),
    st.dictionaries(st.text(max_size=40), st.text(max_size=5000), max_size=9),
)
def test_the_status_stays_below_what_durable_functions_takes(arguments, reasons):
    """However large calls and answers are, the status is below 16 KiB of UTF-16, and every call is in it."""
    calls = [{**CALL, "call_id": str(n), "arguments": {"text": text}} for n, text in enumerate(arguments)]
    answers = {call_id: {**ANSWER, "reason": reason} for call_id, reason in reasons.items()}
    status = encode_pending(calls, answers)
    assert 2 * len(json.dumps(status)) < 16 * 1024
    assert [call["call_id"] for call in status["pending"]] == [call["call_id"] for call in calls]
    assert {call_id: answer["approved"] for call_id, answer in status["answers"].items()} == dict.fromkeys(
        answers, True
    )
    assert all("truncated" in shown or shown == call for shown, call in zip(status["pending"], calls, strict=True))


def test_nothing_is_said_to_be_cut_that_has_nothing_to_cut():
    """An answer without reason and arguments is whole, however long the others are."""
    answers = {"long": {**ANSWER, "reason": "x" * 9000}, "bare": ANSWER}
    status = encode_pending([CALL | {"arguments": None, "reason": None}], answers | {"y" * 9000: ANSWER})
    cut = [call_id for call_id, answer in status["answers"].items() if "truncated" in answer]
    assert (cut, "truncated" in status["pending"][0]) == (["long"], False)
