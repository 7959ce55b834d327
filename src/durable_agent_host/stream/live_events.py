"""Turns updates into live events for clients while an agent runs.

Theory of operation: the joined text of the events must be the stored text. The stored text is the fold's, and
`Message.text` puts a space between two texts of one message that something else separates. `LiveEvents` applies the
same rules to one update at a time, and drops a provider's repetitions (the whole text after its deltas). Where a stream
breaks these rules, `LiveEvents.finish` compares the two and emits the correction.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Protocol, cast

from agent_framework import AgentResponse, AgentResponseUpdate, Content, Message

from durable_agent_host.codec.tool_result_text import result_text
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.stream.fold import ItemReader
from durable_agent_host.turn.turn_events import (
    MESSAGE_DELTA,
    TOOL_COMPLETED,
    TOOL_STARTED,
    LiveEvent,
    message_delta,
    reasoning_delta,
    tool_completed,
    tool_delta,
    tool_started,
    turn_restarted,
)

_HOSTED_CALLS: Final = {
    "code_interpreter_tool_call": "code_interpreter",
    "search_tool_call": "search",
    "image_generation_tool_call": "image_generation",
    "mcp_server_tool_call": "mcp",
    "shell_tool_call": "shell",
    "computer_tool_call": "computer",
}
"""Type of content → the tool's name where the content has none."""

Clean = Callable[[str], str]
_HOSTED_RESULTS: Final = frozenset(name.replace("_call", "_result") for name in _HOSTED_CALLS)


_RUNNING: Final = frozenset({"in_progress", "interpreting"})
_FAILED: Final = frozenset({"failed", "incomplete"})


def response_text(response: AgentResponse[Any]) -> str:
    """Return the text of a response, as stored and streamed.

    Returns:
        `AgentResponse.text` without the spaces around contents that have no text and only carry a provider's item.
    """
    return text_of_messages(response.messages)


def text_of_messages(messages: Iterable[Message]) -> str:
    """Return the text of a response's messages."""
    return "".join(
        " ".join(content.text for content in message.contents if content.type == "text" and content.text)
        for message in messages
        if message.role != "user"  # answers in the middle of the turn
    )


def _outcome(*, has_failed: bool) -> ToolOutcome:
    return "error" if has_failed else "success"


def correct_text(emitted_text: str, text: str) -> list[LiveEvent]:
    """Make the events that turn the emitted text into the stored one."""
    is_beginning = text.startswith(emitted_text)
    missing_text = text[len(emitted_text) :] if is_beginning else text
    return [*(() if is_beginning else (turn_restarted(0),)), *((message_delta(missing_text),) if missing_text else ())]


class HostedCallReader(ItemReader, Protocol):
    """Reads the provider's own part of an update."""

    def finished_calls(self, update: Any, /) -> Iterable[tuple[str, bool]]:
        """List the calls of hosted tools that an update ends: call id, and whether it failed."""
        ...

    def cursor(self, update: Any, /) -> int | None:
        """Return where the service's stream stands after an update; None when it cannot continue there."""
        ...


class LiveEvents:
    """Derives the events of one run of an agent from its updates.

    Its state depends only on its input.

    Args:
        reader: of the agent's provider; None uses only the contents.
        emits_function_events: whether to emit events of the app's tools; False where the middleware does.
        clean: redacts results, which are shortened afterwards.
    """

    def __init__(
        self, reader: HostedCallReader | None = None, *, emits_function_events: bool = True, clean: Clean = str
    ) -> None:
        self._reader = reader
        self._text = _Text()
        self._reasoning = _Reasoning()
        self._functions = _Functions(clean) if emits_function_events else None
        self._hosted = _HostedCalls(clean)

    def feed(self, update: AgentResponseUpdate) -> list[LiveEvent]:
        """Read the next update.

        Returns:
            Its events, in order; often none.
        """
        events: list[LiveEvent] = []
        self._text.start_message(update)
        for content in update.contents:
            if self._functions is not None and not self._hosted.has(content):
                events += self._functions.feed(content)
            match content.type:
                case "text":
                    events += self._text.feed(content)
                case "text_reasoning":
                    self._text.step_over()
                    events += self._reasoning.feed(content)
                case "usage":
                    pass
                case _:
                    self._text.step_over()
                    events += self._hosted.feed(content)
        if self._reader is not None:
            for call_id, has_failed in self._reader.finished_calls(update):
                if self._hosted.is_open(call_id):
                    events += self._hosted.end(call_id, failed=has_failed, result=_result_in(self._reader, update))
        return events

    def reopen(self, call_ids: Iterable[str]) -> None:
        """Take calls of hosted tools as begun."""
        for call_id in call_ids:
            self._hosted.reopen(call_id)

    def finish(self, text: str) -> list[LiveEvent]:
        """End the run.

        Returns:
            The events needed to make the text of all events the stored text.
        """
        events = self._functions.flush() if self._functions is not None else []
        events += self._hosted.end_all()
        return events + correct_text(self._text.emitted_text(), text)


class ContinuedEvents:
    """The events of a model call that a service continues after a crash or a broken connection.

    The call's updates come again, from their beginning or from a cursor, and cut differently. What clients have is not
    repeated; when the text is another one after all, they are told to discard it.

    Args:
        events: that clients have, in order.
        discard_from: offset of the first one.
    """

    def __init__(self, events: Sequence[tuple[str, Mapping[str, Any]]], discard_from: int) -> None:
        self.open_call_ids: list[str] = []
        self._discard_from = discard_from
        self._texts: dict[tuple[str, Any], str] = {}
        self._other_keys: set[tuple[str, Any]] = set()
        self._repeated: list[LiveEvent] = []
        for name, data in events:
            key = (name, data.get("call_id"))
            if "text" in data:
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
            key = (event.event, event.data.get("call_id"))
            self._repeated.append(event)
            if key in self._other_keys:
                continue
            text = event.data.get("text")
            known_text = self._texts.get(key, "")
            if not known_text or not isinstance(text, str):
                new_events.append(event)
            elif known_text.startswith(text):
                self._texts[key] = known_text[len(text) :]
            elif text.startswith(known_text):
                self._texts[key] = ""
                new_events.append(LiveEvent(event.event, event.data | {"text": text[len(known_text) :]}))
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


def _result_in(reader: HostedCallReader, update: AgentResponseUpdate) -> str:
    """Return the result in an update's finished item, which its contents may lack."""
    part = reader.read_item(update)
    contents = reader.complete_item([], part.item) if part is not None and part.item is not None else []
    return "\n".join(text for content in contents if (text := result_text(content)))


class _Text:
    """The response's text so far, by the rules of `AgentResponse.text`."""

    def __init__(self) -> None:
        self._emitted: list[str] = []
        self._part: list[str] = []
        self._has_started = False
        self._message: dict[str, Any] = {}
        self._last_metadata: tuple[Any, ...] = ()

    def start_message(self, update: AgentResponseUpdate) -> None:
        """Start a new message where the fold does."""
        metadata = update.role, update.response_id, update.message_id, update.author_name
        if metadata == self._last_metadata:
            return
        self._last_metadata = metadata
        names = ("role", "response_id", "message_id", "author_name")
        present_fields = {name: value for name in names if (value := getattr(update, name, None))}
        if any(self._message.get(name, value) != value for name, value in present_fields.items()):
            self._message = {}
            self._part = []
            self._has_started = False
        self._message |= present_fields

    def step_over(self) -> None:
        """End a text, because something else follows."""
        self._part = []

    def feed(self, content: Content) -> list[LiveEvent]:
        text = content.text or ""
        if STAMP in content.additional_properties:
            self._part = []  # a finished item replayed from the journal: another text than the one before
        if content.merge_mode == "replace":
            text = _new_part("".join(self._part), text)
        separator = " " if text and self._has_started and not self._part else ""
        if text:
            self._has_started = True
            self._emitted.append(separator + text)
            self._part.append(text)
        if content.merge_mode == "replace":
            self._part = []
        return [message_delta(separator + text)] if text else []

    def emitted_text(self) -> str:
        return "".join(self._emitted)


class _Reasoning:
    """Reasoning parts; a provider repeats each part when it is complete."""

    def __init__(self) -> None:
        self._part: list[str] = []
        self._has_started = False

    def feed(self, content: Content) -> list[LiveEvent]:
        text = content.text or ""
        is_complete = content.merge_mode == "replace"
        if is_complete:
            text = _new_part("".join(self._part), text)
        separator = "\n\n" if text and self._has_started and not self._part else ""
        if text:
            self._has_started = True
            self._part.append(text)
        if is_complete:
            self._part = []
        return [reasoning_delta(separator + text)] if text else []


def _new_part(emitted_text: str, full_text: str) -> str:
    """Return the new part of a full text; an empty one when it differs: only the end of the run can correct that."""
    return full_text[len(emitted_text) :] if full_text.startswith(emitted_text) else ""


class _Functions:
    """Calls of function tools; their event is emitted when the arguments are complete: when something else follows."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self._open: dict[str, tuple[str, Any]] = {}
        self._last: str | None = None

    def feed(self, content: Content) -> list[LiveEvent]:
        if content.type == "function_call":
            return self._grow(content)
        if content.type == "usage":
            return []
        events = self.flush()
        if content.type == "function_result":
            outcome = _outcome(has_failed=content.exception is not None)
            events.append(tool_completed(content.call_id or "", outcome, self._clean(result_text(content))))
        return events

    def flush(self) -> list[LiveEvent]:
        events = [tool_started(call_id, name, arguments) for call_id, (name, arguments) in self._open.items()]
        self._open = {}
        return events

    def _grow(self, content: Content) -> list[LiveEvent]:
        call_id = content.call_id or self._last or ""
        self._last = call_id
        name, earlier_arguments = self._open.get(call_id, ("", None))
        new_arguments = content.arguments
        if isinstance(earlier_arguments, str) and isinstance(new_arguments, str):
            joined_arguments = earlier_arguments + new_arguments
        else:
            joined_arguments = new_arguments or earlier_arguments
        is_complete = content.merge_mode == "replace"
        self._open[call_id] = (name or content.name or "", new_arguments if is_complete else joined_arguments)
        if not is_complete:
            return []
        name, arguments = self._open.pop(call_id)
        return [tool_started(call_id, name, arguments)]


class _HostedCalls:
    """Calls that the provider runs itself."""

    def __init__(self, clean: Clean) -> None:
        self._clean = clean
        self._open: dict[str, list[str]] = {}
        self._completed_ids: set[str] = set()

    def is_open(self, call_id: str) -> bool:
        return call_id in self._open

    def reopen(self, call_id: str) -> None:
        self._open[call_id] = []

    def has(self, content: Content) -> bool:
        """Return whether a function's call or result is one that the provider runs."""
        if content.type == "function_call":
            return content.informational_only
        call_id = content.call_id or ""
        return content.type == "function_result" and (call_id in self._open or call_id in self._completed_ids)

    def feed(self, content: Content) -> list[LiveEvent]:
        call_id = content.call_id or content.image_id or ""
        if content.type in _HOSTED_CALLS or (content.type == "function_call" and content.informational_only):
            return self._progress(call_id, content)
        is_new = call_id not in self._open or content.status in _RUNNING
        if content.type == "code_interpreter_tool_result" and is_new and not content.outputs:
            return self._begin(call_id, "code_interpreter")  # the framework gives an empty one when the call begins
        if content.type in _HOSTED_RESULTS or self.has(content):
            return self.end(call_id, failed=_has_failed(content), result=result_text(content))
        return []

    def end(self, call_id: str, *, failed: bool, result: str = "") -> list[LiveEvent]:
        if call_id not in self._open:
            return []
        del self._open[call_id]
        self._completed_ids.add(call_id)
        return [tool_completed(call_id, _outcome(has_failed=failed), self._clean(result))]

    def end_all(self) -> list[LiveEvent]:
        return [event for call_id in list(self._open) for event in self.end(call_id, failed=False)]

    def _progress(self, call_id: str, content: Content) -> list[LiveEvent]:
        name = content.tool_name or content.name or _HOSTED_CALLS.get(content.type, "")
        events = self._begin(call_id, name, content.arguments)
        if call_id not in self._open:
            return events
        emitted_texts = self._open[call_id]
        for text in (*(part.text or "" for part in content.inputs or ()), "\n".join(content.commands or ())):
            new = _new_part("".join(emitted_texts), text) if content.merge_mode == "replace" else text
            if new:
                emitted_texts.append(new)
                events.append(tool_delta(call_id, new))
        return events

    def _begin(self, call_id: str, name: str, arguments: Any = None) -> list[LiveEvent]:
        if call_id in self._open or call_id in self._completed_ids:
            return []
        self._open[call_id] = []
        return [tool_started(call_id, name, arguments)]


def _has_failed(content: Content) -> bool:
    """Return whether a hosted call has failed, from neutral contents alone."""
    raw_outputs: Any = content.outputs
    outputs = cast("list[Any]", raw_outputs) if isinstance(raw_outputs, list) else []
    return bool(
        content.status in _FAILED
        or content.exception
        or content.additional_properties.get("error")
        or content.additional_properties.get("exit_code")
        or any(
            isinstance(output, Content) and (output.type == "error" or output.exit_code or output.timed_out)
            for output in outputs
        )
    )
