"""Declare how the host treats a tool's calls, and read the current call inside a tool.

A finished call is never run again. A call that was running when its process died is in doubt; the declaration decides
what happens to it.
"""

import copy
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, get_args, overload

from agent_framework import FunctionTool, tool

from durable_agent_host.model.principal import ANOTHER, ROLE

InDoubt = Literal["retry", "fail", "ask"]

IN_DOUBT: Final = "durable_agent_host.in_doubt"
"""Key in a tool's ``additional_properties``: its policy for calls in doubt."""


APPROVED_BY: Final = "durable_agent_host.approved_by"
"""Key in a tool's ``additional_properties``: who may approve its calls; see `durable_tool`."""


@dataclass(frozen=True)
class ToolCall:
    """The call in which a tool is running.

    Attributes:
        call_id: from the model; a model can reuse an id later in a turn.
        name: the tool's name.
        turn_id: the turn that makes the call.
        idempotency_key: 32 hexadecimal digits; the same whenever this call runs again, also after a crash, and
            different for every other call. Pass it to services that accept one.
        attempt: how often this call has been started, including this time; above 1 after a crash.
        cancelled: set when the turn is cancelled or timed out; a tool in a thread can ``wait`` for it. Async tools
            are cancelled by the event loop as well.
        path: where the call is made: ``m1/t:call_a`` by the turn's agent, ``m1/t:call_a/m0/t:call_b`` by an agent
            within that call.
    """

    call_id: str
    name: str
    turn_id: str
    idempotency_key: str
    attempt: int = 1
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    path: str = ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the result is no longer wanted."""
        return self.cancelled.is_set()


RUNNING_CALL: Final[ContextVar[ToolCall | None]] = ContextVar("durable_agent_host_tool_call", default=None)
"""Set by the host around a tool; `current_tool_call` reads it."""


def current_tool_call() -> ToolCall | None:
    """Return the running tool's call; call it inside the tool, on any thread the host runs it on.

    Returns:
        The call, or None outside of a hosted turn.
    """
    return RUNNING_CALL.get()


class ToolDeclaration(Protocol):
    """A decorator that declares a tool: what `durable_tool` returns when it is called without a function."""

    @overload
    def __call__[T: FunctionTool](self, function: T, /) -> T: ...

    @overload
    def __call__(self, function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def durable_tool[T: FunctionTool](
    function: T, /, *, idempotent: bool = ..., in_doubt: InDoubt | None = ..., approved_by: str | None = ...
) -> T: ...


@overload
def durable_tool(
    function: Callable[..., Any],
    /,
    *,
    idempotent: bool = ...,
    in_doubt: InDoubt | None = ...,
    approved_by: str | None = ...,
) -> FunctionTool: ...


@overload
def durable_tool(
    *, idempotent: bool = ..., in_doubt: InDoubt | None = ..., approved_by: str | None = ...
) -> ToolDeclaration: ...


def durable_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    idempotent: bool = False,
    in_doubt: InDoubt | None = None,
    approved_by: str | None = None,
) -> Any:
    """Declare what happens to a tool's call that was running when its process died, and who must approve its calls.

    A given `FunctionTool` is not changed. An app refuses a declaration where it would have no effect: in agents whose
    calls are not journaled.

    Args:
        function: a function, or a tool made from one; omitted when used as a decorator with arguments.
        idempotent: running the call twice is harmless; ``in_doubt`` then defaults to ``retry``.
        in_doubt: ``retry`` runs the call again, ``fail`` reports to the model that the outcome is unknown, ``ask``
            leaves it to a person, like an approval. Default: ``fail``.
        approved_by: the tool's calls need approval: ``another`` from a principal other than the one who asked for the
            turn, ``role:NAME`` from one with the role; arguments that an approver changes need the approval of somebody
            else than who changed them. By default the tool's own ``approval_mode`` decides whether
            approval is needed, and everyone whom the app lets in may answer.

    Returns:
        The tool (a `FunctionTool`), or a decorator that makes one.

    Raises:
        ValueError: ``in_doubt`` or ``approved_by`` has an unknown value.
    """
    if in_doubt is not None and in_doubt not in get_args(InDoubt):
        raise ValueError(f"in_doubt is {in_doubt!r}: say 'retry', 'fail' or 'ask'")
    if approved_by is not None and approved_by != ANOTHER and not _is_role(approved_by):
        raise ValueError(f"approved_by is {approved_by!r}: say 'another' or 'role:NAME'")
    policy: InDoubt = in_doubt or ("retry" if idempotent else "fail")

    def declare(target: Callable[..., Any]) -> FunctionTool:
        declared_tool = copy.copy(target) if isinstance(target, FunctionTool) else tool(target)
        declared_tool.additional_properties = {**(declared_tool.additional_properties or {}), IN_DOUBT: policy}
        if approved_by is not None:
            declared_tool.additional_properties[APPROVED_BY] = approved_by
            declared_tool.approval_mode = "always_require"
        return declared_tool

    return declare if function is None else declare(function)


def _is_role(value: Any) -> bool:
    if not isinstance(value, str) or not value.startswith(ROLE):
        return False
    name = value.removeprefix(ROLE)
    return bool(name) and name == name.strip()
