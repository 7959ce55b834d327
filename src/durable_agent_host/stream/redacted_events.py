"""Live events with the app's redaction, however a stream was split. Pure, as far as the app's function is.

Theory of operation. Of a text that streams, the last characters are held until what follows them is known. A text is
told up to a white space from which on the two parts, redacted each for itself, say the same as the whole: so nothing
that is to be masked lies across. Any other event, and the end of a model call, tell what was held. A text that was cut
off may end within a secret, which no form finds then: what would have been held of it is left out.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final, Protocol

from agent_framework import AgentResponseUpdate, Message

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.stream.live_events import LiveEvent, LiveEvents, message_delta, turn_restarted
from durable_agent_host.turn import event_names

_TRIES: Final = 8
_TEXTS: Final = frozenset({event_names.MESSAGE_DELTA, event_names.REASONING_DELTA})


class Redacts(Protocol):
    """Redacts texts and events."""

    held_characters: int | None

    def text(self, text: str, /) -> str:
        """Redact a text."""
        ...

    def data(self, data: Any, /) -> dict[str, Any]:
        """Redact the data of an event."""
        ...


class HeldText:
    """One streaming text.

    Args:
        redactor: of the app.
    """

    def __init__(self, redactor: Redacts) -> None:
        self._redactor = redactor
        self._text = ""
        self._next_try = 0

    def feed(self, text: str) -> str:
        """Add the next piece; return what can be emitted now."""
        self._text += text
        held = self._redactor.held_characters
        if held is None or len(self._text) < max(held, self._next_try):
            return ""
        whole = self._redactor.text(self._text)
        end = len(self._text) - held
        for _ in range(_TRIES):
            end = _last_space(self._text, end)
            if end <= 0:
                break
            first = self._text[:end]
            rest = self._text[end:]
            told = first if whole == self._text else self._redactor.text(first)
            if whole == self._text or told + self._redactor.text(rest) == whole:
                self._text = rest
                self._next_try = 0
                return told
            end -= 1
        self._next_try = len(self._text) * 5 // 4
        return ""

    def held(self) -> str:
        """Give what is held, as it was said. Guarantee: pure."""
        return self._text

    def settle(self) -> str:
        """End the text; return what was held."""
        text = self._text
        self._text = ""
        self._next_try = 0
        return self._redactor.text(text)


def _last_space(text: str, end: int) -> int:
    """Return the end of the last white space before a place; 0 when there is none."""
    while end > 0 and not text[end - 1].isspace():
        end -= 1
    return end


def without_held(messages: Sequence[Message], redactor: Redacts) -> list[Message]:
    """Leave out of the messages of a model call that was cut off what its stream would have held at the end.

    Guarantee: pure, as far as the app's function is; the messages given are not changed.

    Args:
        messages: what is kept of the call.
        redactor: of the app.
    """
    if not messages or not messages[-1].contents:
        return list(messages)
    *before, last = messages
    *contents, content = last.contents
    if content.type != "text" or not content.text or STAMP in content.additional_properties:
        return list(messages)  # an item with a stamp is whole
    stream = HeldText(redactor)
    stream.feed(content.text)
    if told := content.text.removesuffix(stream.held()):
        cut = copy.copy(content)
        cut.text = told
        cut.raw_representation = None
        contents.append(cut)
    if not contents:
        return before
    shorter = copy.copy(last)
    shorter.contents = contents
    return [*before, shorter]


class RedactedEvents:
    """The events of one run, redacted.

    Args:
        events: derives them from the agent's updates.
        redactor: of the app.
    """

    def __init__(self, events: LiveEvents, redactor: Redacts) -> None:
        self._events = events
        self._redactor = redactor
        self._held: dict[tuple[str, str], HeldText] = {}
        self._raw: list[str] = []
        self._told: list[str] = []

    @property
    def held_texts(self) -> list[str]:
        """What is held; whatever ends its step searches it."""
        return [held.held() for held in self._held.values()]

    def feed(self, update: AgentResponseUpdate) -> list[LiveEvent]:
        """Read the next update; return the events for clients now."""
        return self.tell(self._events.feed(update))

    def tell(self, events: list[LiveEvent]) -> list[LiveEvent]:
        """Redact events, in order; return the events for clients now."""
        told: list[LiveEvent] = []
        for event, data in events:
            call_id = str(data.get("call_id", ""))
            if event in _TEXTS or event == event_names.TOOL_DELTA:
                if event in _TEXTS:
                    told += self._settle(*[key for key in self._held if key[0] in _TEXTS and key[0] != event])
                told += self._grow(event, call_id, data["text"])
                continue
            ends = [key for key in self._held if key[0] in _TEXTS or key == (event_names.TOOL_DELTA, call_id)]
            told += self._settle(*ends)
            told.append(LiveEvent(event, self._redactor.data(data)))
        return told

    def settle(self) -> list[LiveEvent]:
        """Return all that was held: the step that it belongs to has ended."""
        return self._settle(*self._held)

    def finish(self, text: str) -> list[LiveEvent]:
        """End the run.

        Args:
            text: the answer's, redacted, as stored.

        Returns:
            The events needed to make the text of all events the stored text.
        """
        events = self.tell(self._events.finish("".join(self._raw))) + self.settle()
        told = "".join(self._told)
        if text == told:
            return events
        if text.startswith(told):
            return [*events, message_delta(text[len(told) :])]
        return [*events, turn_restarted(0), *([message_delta(text)] if text else [])]

    def _grow(self, event: str, call_id: str, text: str) -> list[LiveEvent]:
        if event == event_names.MESSAGE_DELTA:
            self._raw.append(text)
        held = self._held.setdefault((event, call_id), HeldText(self._redactor))
        return self._delta(event, call_id, held.feed(text))

    def _settle(self, *keys: tuple[str, str]) -> list[LiveEvent]:
        return [one for key in keys for one in self._delta(*key, self._held.pop(key).settle())]

    def _delta(self, event: str, call_id: str, text: str) -> list[LiveEvent]:
        if not text:
            return []
        if event == event_names.MESSAGE_DELTA:
            self._told.append(text)
        return [LiveEvent(event, {"call_id": call_id, "text": text} if call_id else {"text": text})]
