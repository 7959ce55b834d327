"""Live events with the app's redaction, however a stream was split.

Theory of operation. The last characters of a streaming text are buffered until the following text is known. A text is
emitted up to a white space at which the two parts, redacted separately, equal the redacted full text: no secret crosses
that position. Any other event, and the end of a model call, emit the buffered text. An interrupted text may end within
a secret that no pattern matches: its buffered end is omitted.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final, Protocol, cast

from agent_framework import AgentResponseUpdate, Message

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.stream.live_events import LiveEvents, correct_messages
from durable_agent_host.turn import turn_events
from durable_agent_host.turn.turn_events import LiveEvent, ResponseMessageWire

_TRIES: Final = 8
"""How many white spaces are tried for one chunk."""


class EventRedaction(Protocol):
    """Redacts texts and events."""

    buffered_characters: int | None

    def text(self, text: str, /) -> str:
        """Redact a text."""
        ...

    def data(self, data: Any, /) -> dict[str, Any]:
        """Redact the data of an event."""
        ...


class BufferedText:
    """One streaming text.

    Args:
        redactor: of the app.
    """

    def __init__(self, redactor: EventRedaction) -> None:
        self._redactor = redactor
        self._text = ""
        self._next_try = 0

    def feed(self, text: str) -> str:
        """Add the next chunk; return the text that can be emitted now."""
        self._text += text
        buffered_characters = self._redactor.buffered_characters
        if buffered_characters is None or len(self._text) < max(buffered_characters, self._next_try):
            return ""
        redacted_text = self._redactor.text(self._text)
        end = len(self._text) - buffered_characters
        for _ in range(_TRIES):
            end = _last_space(self._text, end)
            if end <= 0:
                break
            first_text = self._text[:end]
            remaining_text = self._text[end:]
            redacted_first_text = first_text if redacted_text == self._text else self._redactor.text(first_text)
            if (
                redacted_text == self._text
                or redacted_first_text + self._redactor.text(remaining_text) == redacted_text
            ):
                self._text = remaining_text
                self._next_try = 0
                return redacted_first_text
            end -= 1
        self._next_try = len(self._text) * 5 // 4
        return ""

    def buffered_text(self) -> str:
        """Return the buffered text, unredacted."""
        return self._text

    def flush(self) -> str:
        """End the text; return the buffered part, redacted."""
        text = self._text
        self._text = ""
        self._next_try = 0
        return self._redactor.text(text)


def _last_space(text: str, end: int) -> int:
    """Return the end of the last white space before a position; 0 when there is none."""
    while end > 0 and not text[end - 1].isspace():
        end -= 1
    return end


def remove_buffered(messages: Sequence[Message], redactor: EventRedaction) -> list[Message]:
    """Remove the text that a stream would have buffered at the end from the messages of an interrupted model call."""
    if not messages or not messages[-1].contents:
        return list(messages)
    *before, last = messages
    *contents, content = last.contents
    if content.type != "text" or not content.text or STAMP in content.additional_properties:
        return list(messages)  # an item with a stamp is complete
    stream = BufferedText(redactor)
    stream.feed(content.text)
    if emitted_text := content.text.removesuffix(stream.buffered_text()):
        shortened_content = copy.copy(content)
        shortened_content.text = emitted_text
        shortened_content.raw_representation = None
        contents.append(shortened_content)
    if not contents:
        return before
    shortened_message = copy.copy(last)
    shortened_message.contents = contents
    return [*before, shortened_message]


class RedactedEvents:
    """The events of one run, redacted.

    Args:
        events: derives them from the agent's updates.
        redactor: of the app.
    """

    def __init__(self, events: LiveEvents, redactor: EventRedaction) -> None:
        self._events = events
        self._redactor = redactor
        self._buffered: dict[tuple[str, str], BufferedText] = {}
        self._emitted: list[str] = []
        self._messages: list[ResponseMessageWire] = []

    @property
    def buffered_texts(self) -> list[str]:
        """The buffered texts; they are searched when their step ends."""
        return [text.buffered_text() for text in self._buffered.values()]

    def feed(self, update: AgentResponseUpdate) -> list[LiveEvent]:
        """Read the next update; return the events for clients now."""
        return self.redact(self._events.feed(update))

    def redact(self, events: list[LiveEvent]) -> list[LiveEvent]:
        """Redact events, in order; return the events for clients now."""
        redacted_events: list[LiveEvent] = []
        for event, data in events:
            call_id = str(data.get("call_id", ""))
            if turn_events.rule_of_stored(event).is_delta:
                if not call_id:
                    redacted_events += self._flush(*[key for key in self._buffered if not key[1] and key[0] != event])
                redacted_events += self._grow(event, call_id, data["text"])
                continue
            redacted_events += self._flush(*[key for key in self._buffered if key[1] in {"", call_id}])
            redacted_data = self._redactor.data(data)
            if event == turn_events.MESSAGE_COMPLETED:
                self._messages.append(cast("ResponseMessageWire", redacted_data))
            redacted_events.append(LiveEvent(event, redacted_data))
        return redacted_events

    def end_call(self) -> list[LiveEvent]:
        """End a model call: what is open is complete, and nothing is buffered."""
        return self.redact(self._events.end_call()) + self._flush(*self._buffered)

    def finish(self, messages: Sequence[ResponseMessageWire]) -> list[LiveEvent]:
        """End the run.

        Returns:
            The events needed to make the messages of all events the stored ones.
        """
        events = self.redact(self._events.end_run()) + self._flush(*self._buffered)
        return events + correct_messages("".join(self._emitted), self._messages, messages)

    def _grow(self, event: str, call_id: str, text: str) -> list[LiveEvent]:
        buffered_text = self._buffered.setdefault((event, call_id), BufferedText(self._redactor))
        return self._delta(event, call_id, buffered_text.feed(text))

    def _flush(self, *keys: tuple[str, str]) -> list[LiveEvent]:
        return [event for key in keys for event in self._delta(*key, self._buffered.pop(key).flush())]

    def _delta(self, event: str, call_id: str, text: str) -> list[LiveEvent]:
        if not text:
            return []
        if event == turn_events.MESSAGE_DELTA:
            self._emitted.append(text)
        return [LiveEvent(event, {"call_id": call_id, "text": text} if call_id else {"text": text})]
