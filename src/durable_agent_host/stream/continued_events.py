"""The events of a model call that its service continues after a crash or a broken connection."""

from collections.abc import Mapping, Sequence
from typing import Any

from durable_agent_host.turn.turn_events import (
    MESSAGE_DELTA,
    TOOL_COMPLETED,
    TOOL_STARTED,
    LiveEvent,
    rule_of_stored,
    turn_restarted,
)


class ContinuedEvents:
    """Tells the new events of such a call from those that clients have.

    The call's updates come again, from their beginning or from a cursor, and cut differently. What clients have is not
    repeated; when the text is another one after all, they are told to discard it.

    Args:
        events: that clients have, in order.
        discard_from: offset of the first one.
    """

    def __init__(self, events: Sequence[tuple[str, Mapping[str, Any]]], discard_from: int) -> None:
        self._discard_from = discard_from
        self._texts: dict[tuple[str, Any], str] = {}
        self._other_keys: set[tuple[str, Any]] = set()
        self._repeated: list[LiveEvent] = []
        for name, data in events:
            key = _key_of(name, data)
            if rule_of_stored(name).is_delta:
                self._texts[key] = self._texts.get(key, "") + data["text"]
            else:
                self._other_keys.add(key)
        self.open_call_ids = [
            call_id
            for name, call_id in self._other_keys
            if name == TOOL_STARTED and (TOOL_COMPLETED, call_id) not in self._other_keys
        ]

    def feed(self, events: Sequence[LiveEvent]) -> list[LiveEvent]:
        """Return the new events among those of an update."""
        new_events: list[LiveEvent] = []
        for event in events:
            key = _key_of(*event)
            self._repeated.append(event)
            if key in self._other_keys:
                continue
            text = event.data["text"] if rule_of_stored(event.event).is_delta else ""
            known_text = self._texts.get(key, "")
            if not known_text or not text:
                new_events.append(event)
            elif known_text.startswith(text):
                self._texts[key] = known_text[len(text) :]
            elif text.startswith(known_text):
                self._texts[key] = ""
                new_events.append(LiveEvent(event.event, {**event.data, "text": text[len(known_text) :]}))
            elif event.event == MESSAGE_DELTA:
                return self._restart()
            else:
                new_events.append(event)
        return new_events

    def finish(self) -> list[LiveEvent]:
        """End the call.

        Returns:
            The events by which clients replace a text that has become shorter.
        """
        return self._restart() if self._texts.get((MESSAGE_DELTA, None)) else []

    def _restart(self) -> list[LiveEvent]:
        events = [turn_restarted(self._discard_from), *self._repeated]
        self._texts = {}
        self._other_keys = set()
        return events


def _key_of(name: str, data: Mapping[str, Any]) -> tuple[str, Any]:
    return name, data.get("call_id", data.get("index"))
