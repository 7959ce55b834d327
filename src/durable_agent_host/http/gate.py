"""Who is calling: the one check that every entry point passes first.

The routes, upstream's workflow routes and MCP tools call `Authorizer.identify` before they read a body, and continue
with the context that it returns. What the caller may not see does not exist for the request: the context has the rule
(`durable_agent_host.model.access`), and reads of sessions apply it, so another caller's session and a session that
never existed take the same path to the same response.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from durable_agent_host.app_functions import call_app_function, check_hook
from durable_agent_host.errors import ForbiddenError, RegistrationError
from durable_agent_host.http.arriving_bodies import ArrivingBodies
from durable_agent_host.model.access import (
    ANYBODY,
    APP_CODE,
    NO_CALLERS,
    AccessRules,
    CallerAccess,
    RequestContext,
)
from durable_agent_host.model.access import Action as Action  # noqa: PLC0414 - apps import it from here
from durable_agent_host.model.access import AuthorizationTarget as AuthorizationTarget  # noqa: PLC0414 - the same
from durable_agent_host.model.principal import ANONYMOUS, Principal
from durable_agent_host.settings import PREFIX, Settings
from durable_agent_host.turn.turn_requests import valid_traceparent

EVEN_SECONDS: Final = 0.05
"""Not-found answers are sent at multiples of this time, whether or not the thing exists for others."""


@dataclass(frozen=True)
class IncomingRequest:
    """A request as `identify` sees it: before its body is read.

    Attributes:
        headers: names in lower case; repeated headers are joined by commas.
        query: parameters.
        method: HTTP method.
        path: of the URL, with the host's prefix; empty for a call of an MCP tool.
    """

    headers: Mapping[str, str]
    query: Mapping[str, str]
    method: str = "POST"
    path: str = ""


Identify = Callable[[IncomingRequest], Principal | Awaitable[Principal | None] | None]
"""Identifies the caller; None or `ForbiddenError` refuses the caller. A plain function runs in a thread."""

Authorize = Callable[[Principal, Action, AuthorizationTarget], bool | Awaitable[bool]]
"""Decides whether a principal may act in a session of somebody else: returns True or False, nothing else.

A plain function runs in a thread."""


class Authorizer:
    """Decides who may do what.

    Args:
        identify: identifies the caller; None identifies nobody, and everybody may do everything.
        authorize: lets callers other than the owner into a session; None lets nobody in.
        adopters: who may take over sessions without an owner: ``anybody``, ``nobody`` or ``role:NAME``.
        limits: of each principal, over all entry points.

    Attributes:
        rules: which sessions exist for an identified caller.

    Raises:
        RegistrationError: an argument is not callable, or an option needs owners and nobody is identified.
    """

    def __init__(
        self,
        identify: Identify | None,
        authorize: Authorize | None = None,
        adopters: str = ANYBODY,
        max_arriving_bytes: int = Settings.max_arriving_bytes,
    ) -> None:
        if authorize is not None and identify is None:
            raise RegistrationError("authorize is given without identify, so sessions have no owners: give both")
        if identify is None and adopters != ANYBODY:
            raise RegistrationError(
                f"{PREFIX}ADOPT_SESSIONS is {adopters!r}, and the app gives no identify, so that everyone has all "
                "sessions: give identify, or remove the setting"
            )
        check_hook("identify", identify, "request")
        check_hook("authorize", authorize, "principal", "action", "session")
        self._identify = identify
        self._authorize = authorize
        self.arriving = ArrivingBodies(max_arriving_bytes)
        self.rules = AccessRules(adopters, self._is_authorized)

    @property
    def identifies(self) -> bool:
        """Whether callers are identified, so that sessions have owners."""
        return self._identify is not None

    async def identify(self, request: IncomingRequest, action: Action) -> RequestContext:
        """Identify the caller, and make the context of the request.

        Raises:
            ForbiddenError: the app does not let the caller in, or gives the caller the name of `ANONYMOUS`.
        """
        return self._context(await self._principal_of(request), action, request.headers.get("traceparent"))

    def open_context(self, action: Action) -> RequestContext:
        """Make the context of a request that is open to everyone: its caller is nobody in particular."""
        return self._context(None, action, None)

    def context_of_app_code(self, principal: Principal | None, action: Action, traceparent: Any) -> RequestContext:
        """Make the context of a function of the app, which acts for a principal or, without one, for the app."""
        if principal is None:
            return RequestContext(None, APP_CODE, valid_traceparent(traceparent))
        return self._context(principal, action, traceparent)

    def _context(self, principal: Principal | None, action: Action, traceparent: Any) -> RequestContext:
        access = CallerAccess(principal or ANONYMOUS, action, self.rules) if self.identifies else NO_CALLERS
        return RequestContext(principal, access, valid_traceparent(traceparent))

    async def _principal_of(self, request: IncomingRequest) -> Principal | None:
        if self._identify is None:
            return None
        principal: Any = await call_app_function("identify", self._identify, request)
        if principal is None:
            raise ForbiddenError("the app does not know the caller: send the credentials that it accepts")
        if not isinstance(principal, Principal):
            raise TypeError(f"identify returned {type(principal).__name__}: return a Principal, or None")
        if (
            principal.owner == ANONYMOUS.owner and principal is not ANONYMOUS
        ):  # or who may choose a name has what is theirs
            raise ForbiddenError(
                f"the app calls the caller {principal.id!r} and names no tenant, which is what unknown callers are: "
                "its identify has to return a tenant, another id, or ANONYMOUS itself"
            )
        return principal

    async def _is_authorized(self, principal: Principal, action: Action, session: AuthorizationTarget) -> bool:
        """Ask the app whether a principal may act in somebody else's session.

        Raises:
            ForbiddenError: the app raised it; the caller learns that it is not allowed, and nothing about the session.
        """
        if self._authorize is None:
            return False
        is_allowed: Any = await call_app_function("authorize", self._authorize, principal, action, session)
        if not isinstance(is_allowed, bool):
            raise TypeError(f"authorize returned {type(is_allowed).__name__}: return True or False")
        return is_allowed


async def wait_for_even_time(started_at: float) -> None:
    """Wait for the next multiple of `EVEN_SECONDS`."""
    elapsed_seconds = time.monotonic() - started_at
    await asyncio.sleep(EVEN_SECONDS - elapsed_seconds % EVEN_SECONDS)
