"""Declare how the host treats a tool's calls, and read the current call inside a tool.

A finished call is never run again. A call that was running when its process died is in doubt; the declaration decides
what happens to it.
"""

import copy
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, Protocol, get_args, overload

from agent_framework import Content, FunctionTool, tool

from durable_agent_host.model.principal import ANOTHER, ROLE, Principal

InDoubt = Literal["retry", "fail", "ask"]

IN_DOUBT: Final = "durable_agent_host.in_doubt"
"""Key in a tool's ``additional_properties``: its policy for calls in doubt."""


APPROVED_BY: Final = "durable_agent_host.approved_by"
"""Key in a tool's ``additional_properties``: who may approve its calls; see `durable_tool`."""


class DeferredCall(Content):
    """What a tool returns whose result comes later, from elsewhere; see `ToolCall.defer`.

    Args:
        token: see below.
        expires_at: see below.
        schema: see below.

    Attributes:
        token: lets its holder give the result of this call, and nothing else.
        path: of the URL to which the result is posted, below the app's address.
        expires_at: from when on no result is accepted.
        schema: a JSON schema of the result, or None for any.
    """

    def __init__(self, token: str, expires_at: datetime, schema: Mapping[str, Any] | None) -> None:
        super().__init__("text", text="The result comes later.")  # a content passes the framework as it is
        self.token = token
        self.path = f"/api/callbacks/{token}"
        self.expires_at = expires_at
        self.schema = schema


class ToolCallHost(Protocol):
    """What the host does for a running tool."""

    def defer(self, expires_at: datetime, schema: Mapping[str, Any] | None) -> DeferredCall:
        """Prepare the end of a call whose result comes later; raises as `ToolCall.defer` does."""
        ...

    def report_progress(self, text: str, fraction: float | None) -> None:
        """Show how far the tool is."""
        ...


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
        agent: name of the turn's agent.
        session_id: the turn's session.
        principal: on whose behalf the turn runs, without roles, which are not stored; None when nobody is identified.
        path: where the call is made: ``m1/t:call_a`` by the turn's agent, ``m1/t:call_a/m0/t:call_b`` by an agent
            within that call.
    """

    call_id: str
    name: str
    turn_id: str
    idempotency_key: str
    attempt: int = 1
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    agent: str = ""
    session_id: str = ""
    principal: Principal | None = None
    path: str = ""
    host: ToolCallHost | None = field(default=None, repr=False, compare=False)

    @property
    def is_cancelled(self) -> bool:
        """Whether the result is no longer wanted."""
        return self.cancelled.is_set()

    def defer(self, expires: timedelta | datetime, schema: Mapping[str, Any] | None = None) -> DeferredCall:
        """Prepare the end of a call whose result comes later, from a job elsewhere.

        Start the job with the token or path of what this returns, then return it, alone: the call's own work is done
        then, and the turn waits without a process.

        Args:
            expires: until when, or for how long, a result is accepted; the model is told when none has come.
            schema: a JSON schema that a result must fit; None for any text or JSON.

        Raises:
            TypeError: ``expires`` is something else, such as a number.
            ValueError: it expires in the past or after the turn's log, or the schema is unusable.
            RuntimeError: the call is not made by the agent of a turn of a `DurableAgentApp`.
        """
        if self.host is None:
            raise RuntimeError(
                f"tool {self.name!r} cannot defer its result: only tools that the agent of a turn of a DurableAgentApp "
                "calls can"
            )
        if not isinstance(expires, timedelta | datetime):  # pyright: ignore[reportUnnecessaryIsInstance] - unchecked code
            raise TypeError(f"expires is {expires!r}: give a timedelta, such as timedelta(hours=1), or a datetime")
        expires_at = datetime.now(UTC) + expires if isinstance(expires, timedelta) else expires.astimezone(UTC)
        return self.host.defer(expires_at, schema)

    def progress(self, text: str, fraction: float | None = None) -> None:
        """Show how far the tool is, as an event of the turn; of many notes at once, the last is shown.

        Args:
            text: for people.
            fraction: the part that is done, from 0 to 1.

        Raises:
            ValueError: the fraction is something else.
        """
        if fraction is not None and not 0 <= fraction <= 1:
            raise ValueError(f"fraction is {fraction!r}: give a number from 0 to 1, or leave it out")
        if self.host is not None:
            self.host.report_progress(text, fraction)


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

    A given `FunctionTool` is not changed. A declaration has no effect on a tool of an agent without a journal; an app
    refuses an agent with such a tool that needs approval.

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
