"""Who may read a session, and why: every access that there is, and the context that carries it.

A session's document is read with `durable.session_documents` alone, and all that it has takes an `Access`: an argument
without a default, of a type that is never None. An access is made where something enters the app, as part of a
`RequestContext`, and what enters without one does not start:

- An HTTP route, an MCP tool, a workflow's route: `http.gate.Authorizer.identify` makes a `CallerAccess`. The caller
  sees the sessions that are theirs, those of nobody if the app lets them adopt such sessions, and those that the app's
  ``authorize`` lets them into. In an app that identifies no callers, they have `NO_CALLERS`.
- An orchestration or another function of the app: `get_agent` and `client` make the access of the principal that they
  are given; `APP_CODE` for the app itself. The orchestration reads nothing by itself: its turns are admitted by the
  session's entity, which compares owners (`session.ownership.bind_session`).
- The app's own work has an `AppAccess`, each of them below, with its reason.

An entity reads its own state, which Durable Functions passes it.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, Protocol

from durable_agent_host.model.principal import Owner, Principal

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
    "session.delete",
    "files.read",
    "files.add",
    "turn.run",
    "turn.read",
    "turn.follow",
    "turn.cancel",
    "calls.read",
    "turn.answer",
    "workflow.run",
    "workflow.read",
    "workflow.respond",
]
"""What a request does; `durable_agent_host.http.routes` maps routes to actions."""

ANYBODY: Final = "anybody"
"""May adopt sessions without an owner: all callers."""


class AuthorizationTarget(NamedTuple):
    """A session that is not the caller's, as `authorize` sees it.

    Attributes:
        agent: the agent's registered name, or the workflow's.
        session_id: the session's, or the workflow's run; that it exists is not said.
        owner: to whom it belongs; None when it belongs to nobody, or there is none. Of a workflow's run always None:
            nothing that is stored of a run names its owner.
    """

    agent: str
    session_id: str
    owner: Owner | None


class Access(Protocol):
    """Which sessions exist for whoever reads. What does not exist for a reader is read as absent."""

    @property
    def owner(self) -> Owner | None:
        """The owner of what is begun with this access; None for nobody in particular."""
        ...

    @property
    def is_restricted(self) -> bool:
        """Whether there can be sessions that do not exist for the reader."""
        ...

    async def can_access(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, action: Action | None = None
    ) -> bool:
        """Return whether a session exists for the reader.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: its owner, or None.
            exists: whether it exists for anybody.
            action: what the app is asked about; by default what the request does.
        """
        ...


@dataclass(frozen=True)
class AppAccess:
    """The access of the app itself: every session exists.

    Attributes:
        reason: why.
    """

    reason: str

    owner = None
    is_restricted = False

    async def can_access(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, action: Action | None = None
    ) -> bool:
        """Return whether the session exists for anybody."""
        del agent, session_id, owner, action
        return exists


NO_CALLERS: Final = AppAccess("the app identifies no callers, so whoever may call it may use every session")
APP_CODE: Final = AppAccess("the app's own functions act for no caller, so they may act in every session")
GRANTED_TURN: Final = AppAccess("the session was granted to the turn, which reads the conversation that it continues")
ERASURE: Final = AppAccess("an erasure reads the session that it deletes, and which others refer to the same blobs")
MAINTENANCE: Final = AppAccess("maintenance reads when sessions were last used, and to which blobs they refer")


@dataclass(frozen=True)
class AccessRules:
    """The rules of an app that identifies its callers.

    Attributes:
        adopters: who may take over sessions without an owner: ``anybody``, ``nobody`` or ``role:NAME``.
        is_authorized: asks the app whether a principal may act in somebody else's session.
    """

    adopters: str
    is_authorized: Callable[[Principal, Action, AuthorizationTarget], Awaitable[bool]]

    def may_adopt(self, principal: Principal) -> bool:
        """Return whether a principal may take over sessions without an owner."""
        return self.adopters == ANYBODY or principal.is_one_of(self.adopters)


@dataclass(frozen=True)
class CallerAccess:
    """The access of one request of an identified caller.

    Attributes:
        principal: the caller.
        action: what the request does.
        rules: of the app.
    """

    principal: Principal
    action: Action
    rules: AccessRules

    is_restricted = True

    @property
    def owner(self) -> Owner:
        """The caller."""
        return self.principal.owner

    async def can_access(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, action: Action | None = None
    ) -> bool:
        """Return whether the session exists for the caller.

        Returns:
            True for the owner, for those who may adopt a session without an owner, and for whomever the app lets in.
        """
        if exists and owner == self.owner:
            return True
        if exists and owner is None and self.rules.may_adopt(self.principal):
            return True
        target = AuthorizationTarget(agent, session_id, owner)
        return await self.rules.is_authorized(self.principal, action or self.action, target)


@dataclass(frozen=True)
class RequestContext:
    """On whose behalf something runs, which sessions exist for it, and its trace.

    Attributes:
        principal: the caller; None when nobody has been identified, and for the app itself.
        access: which sessions exist.
        traceparent: the trace, a valid W3C header value, or None.
    """

    principal: Principal | None
    access: Access
    traceparent: str | None

    @property
    def principal_id(self) -> str | None:
        """The principal's id, as a turn's request has it."""
        return self.principal.id if self.principal is not None else None

    @property
    def tenant(self) -> str | None:
        """The principal's tenant, as a turn's request has it; None without one."""
        return (self.principal.tenant or None) if self.principal is not None else None
