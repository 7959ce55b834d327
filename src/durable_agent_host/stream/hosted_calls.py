"""Live events of calls that the model's service runs itself.

Theory of operation. A call starts with its first content. In a stream of known items it ends with the item that has its
result, which also has its final arguments; otherwise with the content of the result. A call that has not ended when the
run ends did not run.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.tool_result_text import result_text
from durable_agent_host.model.conversation_file import ServiceFilesOf
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.provider_item import HostedCall
from durable_agent_host.stream.response_messages import files_of
from durable_agent_host.turn.turn_events import LiveEvent, tool_completed, tool_delta, tool_started

_CALLS: Final = {
    "code_interpreter_tool_call": "code_interpreter",
    "search_tool_call": "search",
    "image_generation_tool_call": "image_generation",
    "mcp_server_tool_call": "mcp",
    "shell_tool_call": "shell",
    "computer_tool_call": "computer",
}
"""Type of content → the tool's name where the content has none."""

_RESULTS: Final = frozenset(name.replace("_call", "_result") for name in _CALLS)
HOSTED_CONTENTS: Final = _RESULTS | {*_CALLS}
"""Types of contents that show that the model's service has run a tool."""
_RUNNING: Final = frozenset({"in_progress", "interpreting"})
_FAILED: Final = frozenset({"failed", "incomplete"})


@dataclass
class _OpenCall:
    """A call that has started.

    Attributes:
        name: of the tool.
        started_arguments: those of the event of its start.
        arguments: the newest.
        texts: of the events about what it is to do.
        approval_request_id: of the approval that it needed, if any.
        outcome: reported, while its output is still to come.
        has_item: whether its item is finished, which has the arguments.
    """

    name: str
    started_arguments: Any
    arguments: Any
    texts: list[str] = field(default_factory=list[str])
    approval_request_id: str | None = None
    outcome: ToolOutcome = "not_run"
    has_item: bool = False


class HostedCalls:
    """Derives the events of one run's hosted calls.

    Args:
        service_files: finds the files of the service in a result.
    """

    def __init__(self, service_files: ServiceFilesOf) -> None:
        self._service_files = service_files
        self._open: dict[str, _OpenCall] = {}
        self._completed_ids: set[str] = set()

    def has(self, content: Content) -> bool:
        """Return whether a function's call or result is one that the provider runs."""
        if content.type == "function_call":
            return content.informational_only
        call_id = content.call_id or ""
        return content.type == "function_result" and (call_id in self._open or call_id in self._completed_ids)

    def feed(self, content: Content, *, has_item: bool) -> list[LiveEvent]:
        """Read the next content; of a stream of known items, its results are read from those."""
        call_id = content.call_id or content.image_id or ""
        if content.type in _CALLS or (content.type == "function_call" and content.informational_only):
            return self._progress(call_id, content)
        is_new = call_id not in self._open or content.status in _RUNNING
        if content.type == "code_interpreter_tool_result" and is_new and not content.outputs:
            return self._begin(call_id, "code_interpreter", None)  # the framework gives an empty one at the start
        if not has_item and (content.type in _RESULTS or self.has(content)):
            return self._end(call_id, "success", [content])
        return []

    def feed_item(self, calls: Iterable[HostedCall], contents: Sequence[Content]) -> list[LiveEvent]:
        """Read what a finished item says of calls, and its contents."""
        events: list[LiveEvent] = []
        for call in calls:
            if call.name:
                events += self._begin(call.call_id, call.name, call.arguments)
            if (open_call := self._open.get(call.call_id)) is None:
                continue
            open_call.has_item = True
            open_call.arguments = call.arguments if call.arguments is not None else open_call.arguments
            open_call.approval_request_id = call.approval_request_id or open_call.approval_request_id
            open_call.outcome = call.outcome or open_call.outcome
            if call.outcome and call.has_output:
                results = [content for content in contents if content.type in _RESULTS or self.has(content)]
                events += self._end(call.call_id, call.outcome, results, call.result)
        return events

    def end_all(self) -> list[LiveEvent]:
        """End the calls without a result."""
        return [event for call_id, call in list(self._open.items()) for event in self._end(call_id, call.outcome, ())]

    def _end(self, call_id: str, outcome: ToolOutcome, results: Sequence[Content], result: str = "") -> list[LiveEvent]:
        call = self._open.pop(call_id, None)
        if call is None:
            return []
        self._completed_ids.add(call_id)
        text = "\n".join(text for content in results if (text := result_text(content))) or result
        has_failed = outcome == "success" and any(map(_has_failed, results))
        files = [file for content in results for file in files_of(content, self._service_files)]
        arguments = call.arguments
        if arguments is None and call.texts:
            arguments = {"code": "".join(call.texts)}
        return [
            tool_completed(
                call_id,
                "error" if has_failed else outcome,
                text,
                arguments=None if arguments == call.started_arguments else arguments,
                files=files,
                approval_request_id=call.approval_request_id,
            )
        ]

    def _progress(self, call_id: str, content: Content) -> list[LiveEvent]:
        name = content.tool_name or content.name or _CALLS.get(content.type, "")
        arguments: Any = {"commands": content.commands} if content.commands else content.arguments
        events = self._begin(call_id, name, arguments)
        if (call := self._open.get(call_id)) is None:
            return events
        call.arguments = call.arguments if call.has_item else arguments or call.arguments
        for text in (*(part.text or "" for part in content.inputs or ()), "\n".join(content.commands or ())):
            new = new_part("".join(call.texts), text) if content.merge_mode == "replace" else text
            if new:
                call.texts.append(new)
                events.append(tool_delta(call_id, new))
        return events

    def _begin(self, call_id: str, name: str, arguments: Any) -> list[LiveEvent]:
        if call_id in self._open or call_id in self._completed_ids:
            return []
        self._open[call_id] = _OpenCall(name, arguments, arguments)
        return [tool_started(call_id, name, arguments)]


def new_part(emitted_text: str, full_text: str) -> str:
    """Return the new part of a full text; an empty one when it differs: only the end of the run can correct that."""
    return full_text[len(emitted_text) :] if full_text.startswith(emitted_text) else ""


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
