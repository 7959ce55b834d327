"""Turns updates into live events for clients while an agent runs.

Theory of operation: the joined text of the events must be the stored text, and each message be as it is stored. The
stored messages are read from the fold's contents (`response_messages`). `LiveEvents` finds where one ends while it
streams: a text of another item, a call, reasoning, another message of the framework, or the end of the model call. It
folds the text that is open, so that a complete message has what the provider says only at its end. A provider's
repetitions (the whole text after its deltas) are dropped. Where a stream breaks these rules, `LiveEvents.finish`
compares the two and emits the correction.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from agent_framework import AgentResponseUpdate, Content

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.codec.tool_result_text import result_text
from durable_agent_host.model.conversation_file import ServiceFile, no_files
from durable_agent_host.model.provider_item import ITEM, PART_OF, STAMP, HostedCall, ItemPart, is_carrier
from durable_agent_host.stream.fold import ItemReader, MessageAccumulator, fold_message
from durable_agent_host.stream.fold_content import FunctionCallAccumulator
from durable_agent_host.stream.hosted_calls import HostedCalls, new_part
from durable_agent_host.stream.response_messages import FILES, response_messages
from durable_agent_host.turn.turn_events import (
    MESSAGE_DELTA,
    SEPARATOR,
    LiveEvent,
    ResponseMessageWire,
    message_completed,
    message_delta,
    message_started,
    reasoning_delta,
    rule_of_stored,
    tool_completed,
    tool_started,
    turn_restarted,
)


def correct_messages(
    emitted_texts: Sequence[str],
    emitted_messages: Sequence[ResponseMessageWire],
    messages: Sequence[ResponseMessageWire],
) -> tuple[int | None, list[LiveEvent]]:
    """Make the events that turn the emitted messages into the stored ones.

    Returns:
        The index of the first emitted message whose text is wrong, or None: clients discard it and all that follow.
        Complete messages again that have other citations or files, and all messages from there on.
    """
    texts = zip(emitted_texts, emitted_messages, messages, strict=False)
    is_same = [text == emitted["text"] == message["text"] for text, emitted, message in texts]
    start = (*is_same, False).index(False)
    changed = [
        message_completed(index, message)
        for index, (emitted_message, message) in enumerate(zip(emitted_messages[:start], messages, strict=False))
        if any(emitted_message[name] != message[name] for name in ("citations", "files"))
    ]
    return start if start < len(emitted_messages) else None, [*changed, *_all_events(start, messages)]


def _all_events(start: int, messages: Sequence[ResponseMessageWire]) -> list[LiveEvent]:
    events: list[LiveEvent] = []
    for index, message in enumerate(messages[start:], start):
        events += [message_delta(SEPARATOR)] if index else []
        events += [message_started(index, message.get("author"))]
        events += [message_delta(message["text"])] if message["text"] else []
        events += [message_completed(index, message)]
    return events


class EventReader(ItemReader, Protocol):
    """Reads the provider's own part of an update."""

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List what a finished item says of calls that the service runs; often the contents have all of it."""
        del item
        return ()

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List the files of the service to which a content refers."""
        return no_files(content)


class _ContentsReader(EventReader):
    """Reads nothing beyond the contents."""


class LiveEvents:
    """Derives the events of one run of an agent from its updates.

    Its state depends only on its input.

    Args:
        reader: of the agent's provider; None uses only the contents.
        agent: the name of the agent, which is not told as the author.
        emits_function_events: whether to emit events of the app's tools; False where the middleware does.

    Attributes:
        messages: of the answer.
    """

    def __init__(
        self,
        reader: EventReader | None = None,
        *,
        agent: str = "",
        emits_function_events: bool = True,
    ) -> None:
        self._reader = reader = reader or _ContentsReader()
        self.messages = AnswerMessages(reader, agent)
        self._reasoning = _Reasoning()
        self._functions = _Functions() if emits_function_events else None
        self._hosted = HostedCalls(reader.service_files)

    def feed(self, update: AgentResponseUpdate) -> list[LiveEvent]:
        """Read the next update.

        Returns:
            Its events, in order; often none.
        """
        part = self._read_part(update)
        has_item = part is not None and part.position is not None
        events = self.messages.start_update(update, part)
        app_calls = {
            content.call_id
            for content in update.contents
            if content.type == "function_call" and not content.informational_only
        }
        item = None if part is None else part.item
        item_calls = () if item is None else self._reader.hosted_calls(item)
        if calls := [call for call in item_calls if call.call_id not in app_calls]:
            events += self.messages.step_over(part)
            events += self._hosted.feed_item(calls, self._reader.complete_item([], item))
        for content in update.contents:
            if self._functions is not None and not self._hosted.has(content):
                events += self._functions.feed(content)
            item = object_at(content.additional_properties, STAMP, ITEM) if is_carrier(content) else {}
            if item.get("call_id"):  # from the journal
                events += self._hosted.feed_item(self._reader.hosted_calls(item), ())
            elif content.type == "text" or content.type in FILES:
                events += self.messages.feed(content, update, part)
            elif content.type == "text_reasoning":
                events += [*self.messages.step_over(part), *self._reasoning.feed(content, part)]
            elif content.type not in {"usage", "error"}:
                events += [*self.messages.step_over(part), *self._hosted.feed(content, has_item=has_item)]
        return events

    def end_run(self) -> list[LiveEvent]:
        """End what is open."""
        events = self._functions.flush() if self._functions is not None else []
        return [*events, *self.messages.end(), *self._hosted.end_all()]

    def _read_part(self, update: AgentResponseUpdate) -> ItemPart | None:
        raw: Any = update.raw_representation
        while not isinstance(raw, ItemPart) and (inner := getattr(raw, "raw_representation", None)) is not None:
            raw = inner
        if isinstance(raw, ItemPart):
            return raw
        return None if raw is None else self._reader.read_item(update)


class AnswerMessages:
    """The messages of the response so far, by the rules of `response_messages`."""

    def __init__(self, reader: EventReader, agent: str) -> None:
        self._reader = reader
        self._agent = agent
        self._completed: list[ResponseMessageWire] = []
        self._texts: list[str] = []
        self._open: MessageAccumulator | None = None
        self._part: list[str] = []
        self._later: list[tuple[Content, AgentResponseUpdate, ItemPart | None]] = []
        self._follows_text = self._is_continued = False
        self._position: int | str | None = None
        self._names: dict[str, Any] = {}
        self._last_names: tuple[Any, ...] = ()

    def start_update(self, update: AgentResponseUpdate, part: ItemPart | None) -> list[LiveEvent]:
        """End the message where the fold begins another one; else give it the finished item."""
        events: list[LiveEvent] = []
        names = update.role, update.response_id, update.message_id, update.author_name
        if names != self._last_names:
            self._last_names = names
            fields = ("role", "response_id", "message_id", "author_name")
            present_fields = {name: value for name in fields if (value := getattr(update, name, None))}
            if any(self._names.get(name, value) != value for name, value in present_fields.items()):
                self._names = {}
                events = self.end()
            self._names |= present_fields
        if self._is_continued and part is not None and part.position is not None:  # its beginning came from the log
            self._is_continued = False
            self._position = part.position if part.first_item_id is None else None
        if self._open is not None and part is not None and part.item is not None and self._is_at(part):
            self._open.add((), part)
            if self._later:
                events += self._complete(self._open)
        return events

    def step_over(self, part: ItemPart | None) -> list[LiveEvent]:
        """End the message, unless what follows is part of its item, or of one that interrupts it."""
        is_own = part is not None and part.position is not None and self._is_at(part)
        return [] if is_own or self._is_interrupted_by(part) else self.end()

    def feed(self, content: Content, update: AgentResponseUpdate, part: ItemPart | None) -> list[LiveEvent]:
        """Read a text or a file."""
        if update.role == "user" or not (content.text or content.type in FILES):
            if self._open is not None and content.annotations:
                self._open.add([content], part)
            return []
        events: list[LiveEvent] = []
        if self._open is not None and not self._continues(content, part):
            if self._is_interrupted_by(part):
                self._later.append((content, update, part))
                return []
            events = self.end()
        text = content.text or "" if content.type == "text" else ""
        if content.merge_mode == "replace":
            text = new_part("".join(self._part), text)
        if self._open is None:
            self._open = MessageAccumulator(update)
            self._open.author_name = update.author_name
            self._position = None if part is None else part.position
            self._is_continued = part is None or part.position is None
            index = len(self._completed)
            events += [message_delta(SEPARATOR)] if index else []
            events.append(message_started(index, None if update.author_name == self._agent else update.author_name))
        self._open.add([content], part)
        self._part.append(text)
        self._follows_text = content.type == "text"
        return [*events, message_delta(text)] if text else events

    def end(self) -> list[LiveEvent]:
        """Complete the message that is open, if any, and those that wait for its end."""
        events: list[LiveEvent] = []
        while self._open is not None:
            events += self._complete(self._open)
        return events

    def _complete(self, open_message: MessageAccumulator) -> list[LiveEvent]:
        """Complete the open message, and begin what waits for its end."""
        self._open = None
        messages = response_messages([fold_message(open_message, self._reader)], self._reader.service_files)
        text = "".join(self._part)
        self._part = []
        self._texts.append(text)
        self._completed.append(
            messages[0] if len(messages) == 1 else ResponseMessageWire(text=text, citations=[], files=[])
        )
        events = [message_completed(len(self._completed) - 1, self._completed[-1])]
        later, self._later = self._later, []
        return [*events, *(event for arguments in later for event in self.feed(*arguments))]

    def correct(self, messages: Sequence[ResponseMessageWire]) -> tuple[int | None, list[LiveEvent]]:
        """Make the events that turn the emitted messages into the stored ones."""
        return correct_messages(self._texts, self._completed, messages)

    def _is_at(self, part: ItemPart) -> bool:
        return self._open is not None and part.position == self._position

    def _is_interrupted_by(self, part: ItemPart | None) -> bool:
        """Return whether more can come of the open message's item, behind this one: some services interleave items."""
        is_item = part is not None and part.position is not None and self._position is not None
        return is_item and self._open is not None and self._open.slots[-1].item is None

    def _continues(self, content: Content, part: ItemPart | None) -> bool:
        if content.type in FILES or not any(self._part):
            return True
        if part is None:
            return self._position is None and self._follows_text and STAMP not in content.additional_properties
        if part.position is None:
            return PART_OF in content.additional_properties
        return self._is_at(part)


class _Reasoning:
    """Reasoning parts; a provider repeats each part when it is complete."""

    def __init__(self) -> None:
        self._texts: dict[int | str | None, list[str]] = {}
        self._has_started = False

    def feed(self, content: Content, part: ItemPart | None) -> list[LiveEvent]:
        text = content.text or ""
        is_complete = content.merge_mode == "replace"
        position = None if part is None else part.position
        texts = self._texts.setdefault(position, [])
        if is_complete:
            text = new_part("".join(texts), text)
            del self._texts[position]
        separator = "\n\n" if text and self._has_started and not texts else ""
        if text:
            self._has_started = True
            texts.append(text)
        return [reasoning_delta(separator + text)] if text else []


class _Functions:
    """Calls of function tools; their event is emitted when the arguments are complete: when something else follows."""

    def __init__(self) -> None:
        self._open: dict[str, FunctionCallAccumulator] = {}
        self._last: str | None = None

    def feed(self, content: Content) -> list[LiveEvent]:
        if content.type == "function_call":
            return self._grow(content)
        if content.type == "usage":
            return []
        events = self.flush()
        if content.type == "function_result":
            outcome = "success" if content.exception is None else "error"
            events.append(tool_completed(content.call_id or "", outcome, result_text(content)))
        return events

    def flush(self) -> list[LiveEvent]:
        events = [_call_started(call_id, call) for call_id, call in self._open.items()]
        self._open = {}
        return events

    def _grow(self, content: Content) -> list[LiveEvent]:
        call_id = content.call_id or self._last or ""
        self._last = call_id
        if call_id in self._open:
            self._open[call_id].add(content)
        else:
            self._open[call_id] = FunctionCallAccumulator(content)
        return [_call_started(call_id, self._open.pop(call_id))] if content.merge_mode == "replace" else []


def _call_started(call_id: str, accumulator: FunctionCallAccumulator) -> LiveEvent:
    call = accumulator.content()
    return tool_started(call_id, call.name or "", call.arguments)


# The events of a model call that its service continues after a crash or a broken connection.


class ContinuedEvents:
    """Tells the new events of such a call from those that clients have.

    The call's updates come again, from their beginning, and cut differently. What clients have is not
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
