"""Events of a stream are joined where they differ in one text."""

import json
from typing import Any

from durable_agent_host.turn.call_body import CallBody
from durable_agent_host.turn.event_folding import fold_events, fold_stream


def stream(*events: Any) -> str:
    """Write events as a service streams them."""
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def test_neighbours_are_joined():
    """Texts grow, counters are those of the last one, and other items and kinds stay apart."""
    pieces = [{"type": "delta", "index": 0, "n": number, "delta": {"text": text}} for number, text in enumerate("abb")]
    other = {"type": "delta", "index": 1, "n": 3, "delta": {"text": "c"}}
    named = [{"type": "begun", "id": name, "n": 4} for name in "xy"]
    joined, *rest = fold_events(stream(*pieces, other, *named))
    assert joined == {"data": {"type": "delta", "index": 0, "n": 2, "delta": {"text": "abb"}}, "joined": 3}
    assert [event["data"] for event in rest] == [other, *named]


def test_nothing_is_lost_that_is_no_text():
    """A value that becomes null, or another kind, is an event of its own."""
    events = [{"a": "x", "b": 1}, {"a": None, "b": 1}, {"a": "x", "b": True}, {"a": ["x"], "b": 1}]
    assert [event["data"] for event in fold_events(stream(*events))] == events


def test_the_whole_answer_is_shown_although_the_middle_of_its_stream_is_missing():
    """It is in one of the last events; without it, the events of both ends are shown around the gap."""
    head, tail = stream({"type": "begun"}), 'lta": "x"}\n\n' + stream({"type": "done", "answer": {"text": "hi"}})
    body = CallBody(head, 1000, tail)
    form, shown = fold_stream(body, lambda data: data.get("answer"))
    assert (form, shown.is_complete, json.loads(shown.head)) == ("answer", True, {"text": "hi"})
    form, shown = fold_stream(body, lambda _: None)
    assert (form, shown.missing_characters) == ("events", 1000)
    assert json.loads(shown.head) == [{"data": {"type": "begun"}}]
    assert json.loads(shown.tail) == [{"data": {"type": "done", "answer": {"text": "hi"}}}]
