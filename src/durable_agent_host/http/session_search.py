"""Which of an agent's sessions a list contains: by id, time and status, with details of each.

Names and times are in the list from the durable store. Statuses are in the sessions' heads: those of one page are
read, or, to search for a status, up to `_MAX_HEADS`, a few at a time.
"""

import asyncio
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple, cast, get_args

from durable_agent_host.codec.entity_state import encode_budget_usage
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import NotFoundError, RequestError, StateError
from durable_agent_host.http.parse import page_of, parse_flag
from durable_agent_host.http.response_types import SessionDetailsWire, SessionStatus
from durable_agent_host.model.session import Session

STATUSES: Final[tuple[SessionStatus, ...]] = get_args(SessionStatus)

_MAX_HEADS: Final = 500
"""Maximum sessions that one search reads."""
_AT_ONCE: Final = 16
"""Maximum concurrent reads of sessions."""


class SessionSearch(NamedTuple):
    """The search criteria.

    Attributes:
        text: part of the id, case-insensitive.
        used_from: last used at or after; UTC, or None.
        used_to: last used before; UTC, or None.
        statuses: one of these; empty for any.
        details: whether the list includes each session's details.
    """

    text: str = ""
    used_from: datetime | None = None
    used_to: datetime | None = None
    statuses: frozenset[str] = frozenset()
    details: bool = False

    def filter_by_name(self, sessions: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of a list whose name and time are wanted."""
        text = self.text.casefold()
        return [session for session in sessions if text in session[1].casefold() and self._is_in_time(session[0])]

    def _is_in_time(self, used: str) -> bool:
        if self.used_from is None and self.used_to is None:
            return True
        try:
            at = _utc(used)
        except ValueError:
            return False
        return (self.used_from is None or at >= self.used_from) and (self.used_to is None or at < self.used_to)


def parse_search(params: Mapping[str, str]) -> SessionSearch:
    """Parse the query of a list of sessions.

    Raises:
        RequestError: a parameter is invalid.
    """
    statuses = frozenset(filter(None, params.get("status", "").split(",")))
    if unknown := sorted(statuses - set(STATUSES)):
        raise RequestError(f"'status' has {', '.join(unknown)}: use {', '.join(STATUSES)}, separated by commas")
    return SessionSearch(
        params.get("search", ""),
        _parse_time(params, "used_from"),
        _parse_time(params, "used_to"),
        statuses,
        parse_flag(params.get("details"), "details", default=False),
    )


async def find_sessions(
    client: TurnClient,
    agent: str,
    search: SessionSearch,
    sessions: Sequence[tuple[str, str]],
    *,
    limit: int,
    cursor: tuple[str, str] | None,
) -> tuple[list[tuple[tuple[str, str], SessionDetailsWire]], str | None]:
    """Cut a page out of a list.

    Returns:
        The page with each session's details, and the cursor of the next page, or None. A search for a status can
        return a short or empty page with a cursor: the search continues there.
    """
    matching = search.filter_by_name(sessions)
    if not search.statuses:
        page, following = page_of(matching, limit=limit, cursor=cursor)
        no_details: list[SessionDetailsWire] = [{} for _ in page]
        details = await _details(client, agent, page) if search.details else no_details
        return list(zip(page, details, strict=True)), following
    matches: list[tuple[tuple[str, str], SessionDetailsWire]] = []
    following: str | None = None
    for _ in range(0, _MAX_HEADS, _AT_ONCE):
        page, following = page_of(matching, limit=min(_AT_ONCE, limit - len(matches)), cursor=cursor)
        details = await _details(client, agent, page)
        matches += [item for item in zip(page, details, strict=True) if item[1].get("status") in search.statuses]
        if following is None or len(matches) == limit:
            break
        cursor = page[-1]
    return matches, following


async def _details(client: TurnClient, agent: str, page: Sequence[tuple[str, str]]) -> list[SessionDetailsWire]:
    turns = asyncio.Semaphore(_AT_ONCE)

    async def read(session_id: str) -> SessionDetailsWire:
        async with turns:
            return await _detail(client, agent, session_id)

    return await asyncio.gather(*(read(session_id) for _, session_id in page))


async def _detail(client: TurnClient, agent: str, session_id: str) -> SessionDetailsWire:
    """Return the details of a session."""
    try:
        session = await client.documents.session(agent, session_id)
        status = "empty" if session is None else await _status(client, session)
    except StateError:
        return {"status": "unreadable"}
    except NotFoundError:
        return {"status": "empty"}
    if session is None:
        return {"status": status}
    details: SessionDetailsWire = {
        "status": status,
        "message_count": session.message_count,
        "running_turn_id": session.running,
        "queued_turns": len(session.queue),
    }
    if session.budget_usage is not None:
        details["spent"] = encode_budget_usage(session.budget_usage)
    return details


async def _status(client: TurnClient, session: Session) -> SessionStatus:
    if session.running is not None:
        turn = await client.read(session.running)
        return "waiting" if turn is not None and turn.pending else "running"
    if session.queue:
        return "queued"
    if session.receipts:
        return cast("SessionStatus", session.receipts[-1].status)
    return "completed" if session.message_count else "empty"


def _utc(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    try:
        return at.astimezone(UTC) if at.tzinfo else at.replace(tzinfo=UTC)
    except OverflowError:  # in UTC, the time is before the year 1 or after 9999
        raise ValueError(text) from None


def _parse_time(params: Mapping[str, str], name: str) -> datetime | None:
    text = params.get(name)
    if not text:
        return None
    try:
        return _utc(text.replace(" ", "+"))  # a plus in a query is decoded as a space
    except ValueError:
        raise RequestError(f"{name!r} is {text!r}: write a time as ISO-8601, such as 2026-01-31T12:00:00Z") from None
