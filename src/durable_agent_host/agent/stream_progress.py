"""How far the stream of one run is: where its updates come from, and what is known of its calls."""

import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final

from agent_framework import ChatResponse, Content, MiddlewareTermination

from durable_agent_host.agent.observer import RunRestarted
from durable_agent_host.agent.run_result import Failed, RunStoppedError
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, text_result
from durable_agent_host.codec.strict_json import (
    MAX_LEVELS,
    find_limit_violations,
    has_python_class,
    is_nested_too_deeply,
)

_PARSING_FAILED: Final = "Error: Argument parsing failed."
"""The framework's own words; a reason follows where the framework would have failed the run."""


_TOO_DEEP: Final = f"{_PARSING_FAILED} They are nested more than {MAX_LEVELS} levels deep: make them flatter."
_NAMES_CLASS: Final = (
    f"{_PARSING_FAILED} An object has '__class__', '__module__' and '__data__': give the fields other names."
)


class _UnreadableCall(Content):
    """A call that keeps its raw arguments and parses them as none: they cannot be read, or are ``null``."""

    def parse_arguments(self) -> dict[str, Any | None] | None:
        return {}


def extract_invalid_calls(response: ChatResponse[Any]) -> Iterator[tuple[str, str]]:
    """Find the calls of a response whose arguments cannot be read, and keep the framework from parsing them.

    Yields:
        The id of each such call, and the result for the model.
    """
    contents = [content for message in response.messages for content in message.contents]
    for content in [content for content in contents if content.type == "function_call"]:
        if isinstance(content.arguments, str) and content.arguments.strip() == "null":
            content.__class__ = _UnreadableCall
        elif (result_text := _find_argument_error(content.arguments)) is not None:
            content.__class__ = _UnreadableCall
            yield str(content.call_id), result_text


def _find_argument_error(arguments: Any) -> str | None:
    if isinstance(arguments, dict):  # some services send no text; `encode_answer` checks the numbers
        return _find_limit(arguments)
    if not isinstance(arguments, str) or not arguments:
        return None
    try:
        value = json.loads(arguments)
    except RecursionError:
        return _TOO_DEEP
    except json.JSONDecodeError:
        return _PARSING_FAILED
    except ValueError as error:  # a number with more digits than Python reads
        return f"{_PARSING_FAILED} {error}."
    if not isinstance(value, dict):
        return _PARSING_FAILED
    if (limit := _find_limit(value)) is not None:
        return limit
    violation = next(find_limit_violations(value), None)
    return f"{_PARSING_FAILED} {violation.location} {violation.problem}." if violation is not None else None


def _find_limit(arguments: Any) -> str | None:
    if is_nested_too_deeply(arguments):
        return _TOO_DEEP
    return _NAMES_CLASS if has_python_class(arguments) else None


class NestedStreamBrokenError(RunStoppedError):
    """The stream of an agent within the turn's agent broke midway; the call that contains the agent runs it again.

    Attributes:
        restart: why, and when.
    """

    def __init__(self, restart: RunRestarted, error: Exception) -> None:
        super().__init__(Failed(error))
        self.restart = restart


@dataclass
class StreamProgress:
    """Progress of a run's stream.

    Attributes:
        position: of the model call that streams; None for what the framework and the app add between model calls.
        is_replaying: whether the stream comes from the journal.
        unreadable: the results for calls whose arguments cannot be read, by model call and call id.
        restart: why, and when, the agent is run again, because the stream of a call has broken; None while none has.
        has_client_calls: whether the last response has calls of the provider's own tools that the client runs: the run
            ends after its other calls, and continues with the client's results.
    """

    position: int | None = None
    is_replaying: bool = False
    unreadable: dict[tuple[int, str], str] = field(default_factory=dict[tuple[int, str], str])
    restart: RunRestarted | None = None
    has_client_calls: bool = False

    def begin_call(self, position: int) -> None:
        """Record that a model call streams."""
        self.position = position

    def finish_call(self, position: int, response: ChatResponse[Any]) -> None:
        """Record that a model call has its response."""
        self.record_invalid_calls(response, position)
        self.position = None

    @contextmanager
    def replaying(self) -> Generator[None]:
        """Mark the context's stream as coming from the journal."""
        self.is_replaying = True
        try:
            yield
        finally:
            self.is_replaying = False

    def record_invalid_calls(self, response: ChatResponse[Any], position: int) -> None:
        """Record the calls of a model's response whose arguments cannot be read."""
        for call_id, result_text in extract_invalid_calls(response):
            self.unreadable[position, call_id] = result_text

    def is_invalid_call(self, call: ToolInvocation) -> bool:
        """Return whether the arguments of a call cannot be read."""
        return (call.path.position, call.path.call_id) in self.unreadable

    async def reject_invalid_call(self, call: ToolInvocation, _: NextToolCall) -> ToolCallEnd:
        """Answer a call whose arguments cannot be read; a layer of its chain."""
        return text_result("invalid_arguments", self.unreadable[call.path.position, call.path.call_id])

    async def end_run(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call, and end the framework's run after it; a layer of its chain."""
        end = await call_next(call)
        return end if end.error is not None else replace(end, error=MiddlewareTermination())
