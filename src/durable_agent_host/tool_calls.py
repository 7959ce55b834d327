"""What a tool's author can say of a tool, and what a tool can know of its call.

A finished call is never run again. A call that was running when its process died is in doubt: what happens then is
declared here.
"""

import copy
import threading
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

from agent_framework import FunctionTool, tool

from durable_agent_host.model.principal import ANOTHER, ROLE

InDoubt = Literal["retry", "fail", "ask"]

IN_DOUBT: Final = "durable_agent_host.in_doubt"
"""Key in a tool's ``additional_properties``: its policy for calls in doubt."""


APPROVED_BY: Final = "durable_agent_host.approved_by"
"""Key in a tool's ``additional_properties``: who may answer for its calls; see `durable_tool`."""


@dataclass(frozen=True)
class ToolCall:
    """The call in which a tool runs.

    Attributes:
        call_id: as the model gave it; models can give the same id again later in a turn.
        name: the tool's.
        turn_id: the turn in which it is called.
        idempotency_key: 32 hexadecimal digits; the same whenever this call is run again, after a crash too, and
            different for every other call. Give it to services that take one.
        attempt: how often this call has been started, this time included; above 1 after a crash.
        cancelled: set when the turn is cancelled or timed out; a tool in a thread can ``wait`` for it. Async tools
            are cancelled by the event loop as well.
    """

    call_id: str
    name: str
    turn_id: str
    idempotency_key: str
    attempt: int = 1
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)

    @property
    def is_cancelled(self) -> bool:
        """Whether nobody wants the result any more."""
        return self.cancelled.is_set()


RUNNING_CALL: Final[ContextVar[ToolCall | None]] = ContextVar("durable_agent_host_tool_call", default=None)
"""Set by the host around a tool; `current_tool_call` reads it."""


def current_tool_call() -> ToolCall | None:
    """Tell a tool of its call; to be called inside of the tool, on whatever thread the host runs it.

    Returns:
        The call, or None outside of a hosted turn.
    """
    return RUNNING_CALL.get()


def durable_tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    idempotent: bool = False,
    in_doubt: InDoubt | None = None,
    approved_by: str | None = None,
) -> Any:
    """Say what happens to a call of a tool that was running when its process died, and who has to approve its calls.

    Guarantee: pure; a `FunctionTool` that is given is not changed.

    Args:
        function: a function, or a tool made of one; left out where this is used as a decorator with arguments.
        idempotent: running the call twice does no harm; then ``in_doubt`` is ``retry`` when it is left out.
        in_doubt: ``retry`` runs the call again, ``fail`` tells the model that the outcome is not known, ``ask``
            leaves it to a person, as an approval does. Left out: ``fail``.
        approved_by: the tool's calls need approval: ``another`` of a principal who is not the one who asked for the
            turn, ``role:NAME`` of one who has the role. Left out: the tool's own ``approval_mode`` says whether
            somebody has to approve, and whom the app lets in may answer.

    Returns:
        The tool (a `FunctionTool`), or a decorator that makes it.

    Raises:
        ValueError: ``in_doubt`` or ``approved_by`` says nothing that is known.
    """
    if in_doubt is not None and in_doubt not in get_args(InDoubt):
        raise ValueError(f"in_doubt is {in_doubt!r}: say 'retry', 'fail' or 'ask'")
    if approved_by is not None and approved_by != ANOTHER and not _is_role(approved_by):
        raise ValueError(f"approved_by is {approved_by!r}: say 'another' or 'role:NAME'")
    policy: InDoubt = in_doubt or ("retry" if idempotent else "fail")

    def declare(one: Callable[..., Any]) -> FunctionTool:
        declared = copy.copy(one) if isinstance(one, FunctionTool) else tool(one)
        declared.additional_properties = {**(declared.additional_properties or {}), IN_DOUBT: policy}
        if approved_by is not None:
            declared.additional_properties[APPROVED_BY] = approved_by
            declared.approval_mode = "always_require"
        return declared

    return declare if function is None else declare(function)


def _is_role(said: Any) -> bool:
    if not isinstance(said, str) or not said.startswith(ROLE):
        return False
    name = said.removeprefix(ROLE)
    return bool(name) and name == name.strip()
