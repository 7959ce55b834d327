"""A tool call as a value, and its result; `durable_agent_host.agent.call_order` has the layers that it passes through.

The journal stores a result as JSON. A layer returns it together with what the framework gets, which for a call that has
just run is the tool's own value or error.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, cast

from agent_framework import Content, FunctionTool, MiddlewareTermination
from agent_framework.exceptions import UserInputRequiredException
from pydantic import BaseModel

from durable_agent_host.agent.declarations import is_agent_tool
from durable_agent_host.codec.content import decode_content
from durable_agent_host.codec.journal_entry import decode_tool_result, encode_tool_result
from durable_agent_host.errors import ProviderError, TurnError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import ToolCallCompletedEntry, ToolOutcome

DID_NOT_RUN: Final = "Error: The tool did not run: "


class ConnectionLostError(TurnError):
    """The server of a tool has not answered a call, which may or may not have taken effect."""


class UnreachableError(ProviderError):
    """The server of a tool cannot be reached; the call was not made."""


@dataclass(frozen=True, slots=True)
class ToolInvocation:
    """One tool call of the agent's model.

    Attributes:
        path: of the call, equal in every attempt.
        tool: as the framework sees it.
        arguments: as JSON.
        starts: how often the call has started and not ended.
        has_changed_arguments: whether a person has replaced the model's arguments.
        metadata: of the framework's invocation, in which an MCP tool leaves what only the app gets.
        run: runs the tool, and the app's middleware around it, and returns the result; takes arguments instead of the
            model's, or None.
        deferral: what its pending call needs, when the tool has run and its result comes later; else None.
    """

    path: CallPath
    tool: FunctionTool
    arguments: Mapping[str, Any]
    starts: int
    has_changed_arguments: bool
    metadata: MutableMapping[str, Any]
    run: Callable[[Mapping[str, Any] | None], Awaitable[Any]]
    deferral: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        return self.tool.name

    @property
    def is_resumed(self) -> bool:
        """Whether the tool is an agent that goes on with its own calls: what is in doubt is within it."""
        return self.starts > 0 and is_agent_tool(self.tool)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """How a call ended.

    Attributes:
        outcome: how.
        wire: the result as JSON.
        value: the result for the framework.
        error: what the framework gets instead, or None.
    """

    outcome: ToolOutcome
    wire: Mapping[str, Any]
    value: Any = None
    error: BaseException | None = None


@dataclass(frozen=True, slots=True)
class WaitingToolCall:
    """A call has no result in this attempt. It is not recorded, and the run stops before its next model call.

    Attributes:
        value: the placeholder for the framework.
        error: what the framework gets as well, or None.
    """

    value: Any
    error: BaseException | None = None


ToolCallEnd = ToolResult | WaitingToolCall
NextToolCall = Callable[[ToolInvocation], Awaitable[ToolCallEnd]]
"""The rest of a chain."""


ToolLayer = Callable[[ToolInvocation, NextToolCall], Awaitable[ToolCallEnd]]
"""One feature of tool calls: makes a call through the rest of the chain."""


def plain_arguments(arguments: BaseModel | Mapping[str, Any]) -> dict[str, Any]:
    """Convert arguments to JSON; the framework has converted them to the function's own types."""
    fields = arguments.model_dump(mode="json") if isinstance(arguments, BaseModel) else dict(arguments)
    try:
        return cast("dict[str, Any]", json.loads(json.dumps(fields, default=_encode_default)))
    except (TypeError, ValueError, RecursionError):
        return {name: str(value) for name, value in fields.items()}


def _encode_default(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)


def text_result(outcome: ToolOutcome, text: str) -> ToolResult:
    """Return the result of a call for which the host has an answer instead of the tool."""
    return ToolResult(outcome, encode_tool_result(text), text)


def decode_result(entry: ToolCallCompletedEntry, metadata: MutableMapping[str, Any]) -> ToolResult:
    """Return the recorded result of a call; the tool's error is made again, and what only the app gets."""
    wire = entry.result
    outcome = cast("ToolOutcome", entry.outcome)
    match outcome:
        case "input_required":
            error = UserInputRequiredException([decode_content(item) for item in wire["contents"]])
            return ToolResult(outcome, wire, error=error)
        case "error" if "error" in wire:
            return ToolResult(outcome, wire, error=_decode_error(wire))
        case "terminated":
            return ToolResult(outcome, wire, decode_tool_result(wire), MiddlewareTermination())
        case _:
            if "carrier" in wire:
                metadata[_CARRIER] = _decode_carrier(wire["carrier"])
            return ToolResult(outcome, wire, decode_tool_result(wire))


# The framework's tool loop has a class for arguments that a tool refuses, and one for what an MCP tool returns to the
# app only. Neither is public.

_ARGUMENT_ERROR: Final = "_FunctionArgumentValidationError"
_CARRIER: Final = "_function_result_carrier"


def _framework() -> Any:
    return import_module("agent_framework._tools")


def is_argument_error(error: BaseException) -> bool:
    """Return whether the framework has refused a call's arguments, before the tool began."""
    return type(error).__name__ == _ARGUMENT_ERROR


def argument_error(message: str, redacted_message: str | None = None) -> Exception:
    """Make the framework's error for arguments that a tool refuses."""
    return _framework()._FunctionArgumentValidationError(  # noqa: SLF001
        message, redacted_message=redacted_message
    )


def encode_error(error: BaseException) -> dict[str, Any]:
    """Encode the error of a call."""
    wire = {"error": type(error).__name__, "message": str(error)}
    return wire | {"redacted_message": getattr(error, "redacted_message", None)} if is_argument_error(error) else wire


def _decode_error(wire: Mapping[str, Any]) -> Exception:
    if wire["error"] == _ARGUMENT_ERROR:
        return argument_error(wire["message"], wire.get("redacted_message"))
    return TurnError(wire["message"])


def encode_carrier(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Encode what an MCP tool has returned for the app only, as a part of its result."""
    carrier = metadata.get(_CARRIER)
    if carrier is None:
        return {}
    carrier_fields = cast("dict[str, Any]", vars(carrier))
    fields = {
        name: sorted(cast("frozenset[str]", value)) if isinstance(value, frozenset) else value
        for name, value in carrier_fields.items()
    }
    try:
        return {"carrier": json.loads(json.dumps(fields))}
    except (TypeError, ValueError):
        return {}


def _decode_carrier(wire: Mapping[str, Any]) -> Any:
    fields: dict[str, Any] = {
        name: frozenset(cast("list[str]", value)) if isinstance(value, list) else value for name, value in wire.items()
    }
    return _framework()._FunctionResultCarrier(**fields)  # noqa: SLF001


def remark_on_arguments(value: Any, arguments: Mapping[str, Any]) -> list[Content]:
    """Add to a result, for the model, that the call ran with changed arguments."""
    remark = f"(Approved with changed arguments: {json.dumps(dict(arguments), ensure_ascii=False)})"
    return [*(Content.from_function_result("", result=value).items or ()), Content.from_text(remark)]
