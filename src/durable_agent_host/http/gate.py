"""Who asks, and which sessions there are for whom: the one place that every way in passes before anything is done.

The routes, upstream's workflow routes and MCP tools call `Gate.identify` before they read a body, and go on with the
caller that it returns. What the caller may not see does not exist for the request: `Gate.access` gives the rule, and
the durable client's reads of sessions apply it (`durable_agent_host.durable.documents`), so a session of somebody else
and one that there never was take the same path to the same answer. An app that identifies nobody has no rule.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from inspect import isawaitable, iscoroutinefunction
from typing import Any, Final, Literal, NamedTuple

from durable_agent_host.errors import ForbiddenError, RegistrationError
from durable_agent_host.hooks import check_hook
from durable_agent_host.http.rates import RequestRates
from durable_agent_host.model.principal import ANONYMOUS, Owner, Principal
from durable_agent_host.model.turn import Caller
from durable_agent_host.settings import ANYBODY, OWN, PREFIX, SHARED
from durable_agent_host.turn.requests import valid_traceparent

Action = Literal[
    "health.read",
    "agents.list",
    "metrics.read",
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

EVEN_SECONDS: Final = 0.05
"""What does not exist for a caller is answered at multiples of this time, whether it exists for others or not."""


@dataclass(frozen=True)
class IncomingRequest:
    """A request, as `identify` sees it: before its body is read.

    Attributes:
        headers: names in lower case; those that come more than once are joined by commas.
        query: parameters.
        method: of HTTP.
        path: of the URL, with the host's prefix; empty for a call of an MCP tool.
    """

    headers: Mapping[str, str]
    query: Mapping[str, str]
    method: str = "POST"
    path: str = ""


class AskedSession(NamedTuple):
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


Identify = Callable[[IncomingRequest], Principal | Awaitable[Principal | None] | None]
"""Finds out who asks; None, or `ForbiddenError`, for a caller who is not let in. A plain function runs in a thread."""

Authorize = Callable[[Principal, Action, AskedSession], bool | Awaitable[bool]]
"""Tells whether a principal may do something in a session that is not the principal's own: True or False, nothing else.

A plain function runs in a thread."""


class Access:
    """Which sessions there are for one request.

    Args:
        gate: has the app's rule.
        principal: who asks.
        action: what is about to be done.
    """

    def __init__(self, gate: "Gate", principal: Principal, action: Action) -> None:
        self._gate = gate
        self._principal = principal
        self._action: Action = action

    @property
    def owner(self) -> Owner:
        """To whom what the request begins belongs."""
        return self._principal.owner

    @property
    def has_own_names(self) -> bool:
        """Whether a name that somebody else has chosen is free for the request; see `name_mark`."""
        return self._gate.has_own_names

    async def sees(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, to_read: bool = False
    ) -> bool:
        """Tell whether there is a session for the request.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: to whom it belongs, or None.
            exists: whether there is one; the app is asked about one that there is not as well, so that the time tells
                nothing.
            to_read: whether there is one to read, whatever the request does.

        Returns:
            True for the owner, for who may adopt what belongs to nobody, and for whom the app lets in.
        """
        if exists and owner == self._principal.owner:
            return True
        if exists and owner is None and self._gate.may_adopt(self._principal):
            return True
        action = "session.read" if to_read else self._action
        return await self._gate.authorized(self._principal, action, AskedSession(agent, session_id, owner))


class Gate:
    """Decides who may do what.

    Args:
        identify: finds out who asks; None identifies nobody, and everybody may do everything.
        authorize: lets others in than a session's owner; None lets nobody in.
        adopters: who may take over sessions without an owner: ``anybody``, ``nobody`` or ``role:NAME``.
        names: whether a name that a client chooses for a session is ``shared`` by all, or its ``own``.
        requests_per_second: how often one principal may ask, on every way in; 0 for any number.

    Raises:
        RegistrationError: a function cannot be called, or something is demanded of owners, and nobody is identified.
    """

    def __init__(
        self,
        identify: Identify | None = None,
        authorize: Authorize | None = None,
        adopters: str = ANYBODY,
        names: str = SHARED,
        requests_per_second: float = 0.0,
    ) -> None:
        if authorize is not None and identify is None:
            raise RegistrationError("authorize is given without identify, so sessions have no owners: give both")
        if identify is None:
            for setting, value, default in (("ADOPT_SESSIONS", adopters, ANYBODY), ("SESSION_NAMES", names, SHARED)):
                if value != default:
                    raise RegistrationError(
                        f"{PREFIX}{setting} is {value!r}, and the app gives no identify, so that everyone has all "
                        "sessions: give identify, or remove the setting"
                    )
        check_hook("identify", identify, "request")
        check_hook("authorize", authorize, "principal", "action", "session")
        self._identify = identify
        self._authorize = authorize
        self._adopters = adopters
        self._rates = RequestRates(requests_per_second)
        self.has_own_names = names == OWN

    @property
    def identifies(self) -> bool:
        """Whether callers are told apart, so that sessions have owners."""
        return self._identify is not None

    async def identify(self, request: IncomingRequest) -> Caller:
        """Find out on whose behalf something is asked, and in which trace; counts the request.

        Raises:
            ForbiddenError: the app does not let the caller in, or gives the caller the name of `ANONYMOUS`.
            TooManyRequestsError: the caller asks too often.
        """
        principal = await self._principal_of(request)
        self._rates.take((principal or ANONYMOUS).owner)
        return Caller(principal, valid_traceparent(request.headers.get("traceparent")))

    async def _principal_of(self, request: IncomingRequest) -> Principal | None:
        if self._identify is None:
            return None
        found: Any = await _called(self._identify, request)
        if found is None:
            raise ForbiddenError("the app does not know the caller: send the credentials that it accepts")
        if not isinstance(found, Principal):
            raise TypeError(f"identify returned {type(found).__name__}: return a Principal, or None")
        if found.owner == ANONYMOUS.owner and found is not ANONYMOUS:  # or who may choose a name has what is theirs
            raise ForbiddenError(
                f"the app calls the caller {found.id!r} and names no tenant, which is what unknown callers are: its "
                "identify has to return a tenant, another id, or ANONYMOUS itself"
            )
        return found

    def access(self, caller: Caller, action: Action) -> Access | None:
        """Give the rule of which sessions there are for a request; None when there are all.

        Args:
            caller: as `identify` found it.
            action: what is about to be done.
        """
        return None if caller.principal is None else Access(self, caller.principal, action)

    def may_adopt(self, principal: Principal) -> bool:
        """Tell whether a principal may take over sessions without an owner. Guarantee: pure."""
        return self._adopters == ANYBODY or principal.is_one_of(self._adopters)

    async def authorized(self, principal: Principal, action: Action, session: AskedSession) -> bool:
        """Ask the app whether a principal may do something in a session of somebody else.

        Raises:
            ForbiddenError: the app says so; the caller learns that it is not allowed, and nothing of the session.
        """
        if self._authorize is None:
            return False
        allowed: Any = await _called(self._authorize, principal, action, session)
        if not isinstance(allowed, bool):
            raise TypeError(f"authorize returned {type(allowed).__name__}: return True or False")
        return allowed


async def _called(function: Callable[..., Any], *given: Any) -> Any:
    """Call a function of the app; a plain one in a thread."""
    if iscoroutinefunction(function):
        return await function(*given)
    found = await asyncio.to_thread(function, *given)
    return await found if isawaitable(found) else found


async def wait_for_even_time(began: float) -> None:
    """Wait until a multiple of `EVEN_SECONDS` is over.

    Args:
        began: when the request came, by the monotonic clock.
    """
    elapsed = time.monotonic() - began
    await asyncio.sleep(EVEN_SECONDS - elapsed % EVEN_SECONDS)
