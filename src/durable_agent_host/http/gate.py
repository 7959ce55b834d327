"""Who may do what: the one place that every way in passes before anything is done.

The routes, upstream's workflow routes and MCP tools call `Gate.enter` with the name of what is about to be done, and go
on with the caller that it returns. By default nobody is identified and everybody may do everything.
"""

from collections.abc import Awaitable, Callable, Mapping
from inspect import isawaitable
from typing import Final, Literal, NamedTuple

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.turn import Caller
from durable_agent_host.turn.requests import valid_traceparent

ANONYMOUS: Final = "anonymous"
"""The principal of a request whose caller has not been identified."""

Action = Literal[
    "health.read",
    "agents.list",
    "sessions.list",
    "session.read",
    "session.export",
    "session.import",
    "session.verify",
    "session.repair",
    "session.fork",
    "session.reset",
    "session.delete",
    "files.read",
    "files.add",
    "turn.run",
    "turn.read",
    "turn.follow",
    "turn.cancel",
    "turn.approve",
    "workflow.run",
    "workflow.read",
    "workflow.respond",
]
"""What can be done; which route does what is in `durable_agent_host.http.routes`."""


class SessionName(NamedTuple):
    """What an action is about. That it exists is not checked.

    Attributes:
        agent: the agent's registered name, or the workflow's.
        session_id: the session, or the workflow's run; None when the action is about no single session, or begins one.
    """

    agent: str
    session_id: str | None


Identify = Callable[[Mapping[str, str]], str]
"""Headers, their names in lower case → the principal. Raises `ForbiddenError` for credentials that do not hold."""

Authorize = Callable[[str, Action, SessionName | None], bool | Awaitable[bool]]
"""Principal, action, session → whether the action is allowed. False is a 404; raises `ForbiddenError` for a 403."""


def _anonymous(_headers: Mapping[str, str]) -> str:
    return ANONYMOUS


def _everything(_principal: str, _action: Action, _session: SessionName | None) -> bool:
    return True


class Gate:
    """Decides who may do what. Provisional: the signatures may change until sessions have owners.

    Args:
        identify: finds the principal of a request.
        authorize: decides, also asynchronously, whether the principal may do something; called for every request.
    """

    def __init__(self, identify: Identify = _anonymous, authorize: Authorize = _everything) -> None:
        self._identify = identify
        self._authorize = authorize

    async def enter(self, action: Action, headers: Mapping[str, str], session: SessionName | None) -> Caller:
        """Let a request in, or not.

        Args:
            action: what is about to be done.
            headers: of the request, names in any case.
            session: what it is about, or None for the app as a whole.

        Returns:
            On whose behalf it is done, and in which trace.

        Raises:
            NotFoundError: it is not allowed; a caller without access does not learn whether the session exists.
            ForbiddenError: `identify` or `authorize` says so.
        """
        lowered = {name.lower(): value for name, value in headers.items()}
        principal = self._identify(lowered)
        allowed = self._authorize(principal, action, session)
        if not (await allowed if isawaitable(allowed) else allowed):
            raise NotFoundError(_not_found(session))
        return Caller(
            principal=None if principal == ANONYMOUS else principal,
            traceparent=valid_traceparent(lowered.get("traceparent")),
        )


def _not_found(session: SessionName | None) -> str:
    if session is None:
        return "there is nothing here"
    if session.session_id is None:
        return f"there is no agent {session.agent!r} here"
    return f"agent {session.agent!r} has no session {session.session_id!r}"
