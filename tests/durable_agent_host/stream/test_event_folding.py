"""Events of a stream are joined where they differ in one text."""

import json

from durable_agent_host.stream.event_folding import FoldedEvents, events_in


def folded(*events: dict, most: int = 10_000) -> list[dict]:
    """Fold events."""
    told = FoldedEvents(most)
    told.feed(events_in("".join(f"data: {json.dumps(event)}\n\n" for event in events)))
    return told.events


def test_neighbours_are_joined():
    """Texts grow, counters are those of the last one, and other items and kinds stay apart."""
    pieces = [{"type": "delta", "index": 0, "n": number, "delta": {"text": text}} for number, text in enumerate("abb")]
    other = {"type": "delta", "index": 1, "n": 3, "delta": {"text": "c"}}
    named = [{"type": "begun", "id": name, "n": 4} for name in "xy"]
    joined, *rest = folded(*pieces, other, *named)
    assert joined == {"data": {"type": "delta", "index": 0, "n": 2, "delta": {"text": "abb"}}, "joined": 3}
    assert [one["data"] for one in rest] == [other, *named]


def test_nothing_is_lost_that_is_no_text():
    """A value that becomes null, or another kind, is an event of its own."""
    events = [{"a": "x", "b": 1}, {"a": None, "b": 1}, {"a": "x", "b": True}, {"a": ["x"], "b": 1}]
    assert [one["data"] for one in folded(*events)] == events


def test_what_is_too_much_is_counted():
    """The last event stays."""
    told = FoldedEvents(50)
    told.feed(("", json.dumps({"type": f"kind{number}"})) for number in range(10))
    assert (told.left_out, len(told.events), told.events[-1]["data"]) == (8, 2, {"type": "kind9"})
