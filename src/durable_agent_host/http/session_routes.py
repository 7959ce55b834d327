"""Routes of sessions: list, read, export, import, verify, repair, fork, delete.

Of a list, names and times are those of the durable store. Statuses are in the sessions' heads: those of one page are
read, or, to search for a status, up to `_MAX_HEADS`, a few at a time.
"""

import asyncio
import logging
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple, cast, get_args

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.entity_state import document_digest, encode_budget_usage, owner_of_document
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import (
    DurableAgentHostError,
    NotFoundError,
    RequestError,
    StateError,
    TooManyRequestsError,
    TurnRejectedError,
)
from durable_agent_host.http.event_stream import PartStream
from durable_agent_host.http.parse import (
    MAX_LIMIT,
    page_of,
    parse_cursor,
    parse_flag,
    parse_fork,
    parse_limit,
    parse_position,
)
from durable_agent_host.http.problem_details import problem_of_error
from durable_agent_host.http.request_handling import (
    IMPORTS_AT_ONCE,
    HandlerContext,
    RouteRequest,
    named_session,
)
from durable_agent_host.http.response_types import (
    DeletedSessionWire,
    ErasedWire,
    ForkedSessionWire,
    ImportedSessionWire,
    ListedSessionWire,
    RepairedSessionWire,
    SessionDetailsWire,
    SessionPageWire,
    SessionStatus,
    VerifiedSessionWire,
)
from durable_agent_host.http.response_views import (
    json_response,
    large_json_response,
    repair_change_view,
    session_headers,
    session_response,
    session_url_of,
    session_view,
)
from durable_agent_host.model.ids import MAX_SESSION_ID_CHARACTERS
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import Turn
from durable_agent_host.segments.turn_data_storage import SessionKey, redact_in_thread
from durable_agent_host.session.ownership import unknown_session
from durable_agent_host.turn_log.protocol import FILES_SECONDS

_LOGGER = logging.getLogger(__name__)
_DRAIN_SECONDS: Final = 5.0
_IMPORT_RETRY_SECONDS: Final = 5
JSON_LINES: Final = "application/jsonl"
_BACKUP_MARK: Final = ".before-repair-"


async def list_sessions(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions``: the matching sessions, newest first, ``limit`` at a time from ``cursor``."""
    agent = host.agent(call.path_part("agent"))
    limit = parse_limit(call.query)
    cursor = parse_cursor(call.query.get("cursor"))
    search = parse_search(call.query)
    sessions_by_use = await client.documents.list_sessions(agent)
    page, following = await find_sessions(client, agent, search, sessions_by_use, limit=limit, cursor=cursor)
    sessions: list[ListedSessionWire] = [
        {"session_id": key, "last_used_at": used, "session_url": session_url_of(call.base_url, agent, key), **details}
        for (used, key), details in page
    ]
    view = SessionPageWire(agent=agent, sessions=sessions, cursor=following)
    return json_response(HTTPStatus.OK, view, {})


async def read_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}``: the newest messages of the record, or those before a cursor."""
    agent, session_id = named_session(host, call)
    limit = parse_limit(call.query, default=MAX_LIMIT)
    read = await client.documents.page(agent, session_id, before=parse_position(call.query), limit=limit)
    if read is None:
        raise unknown_session(agent, session_id)
    session, page = read
    running: Turn | None = None
    with suppress(Exception):  # a task hub that cannot be read, as on a full disk, does not hide the conversation
        running = await client.find(agent, session_id, session.running) if session.running else None
    is_shown = parse_flag(call.query.get("state"), "state", default=False)
    state = {"state": await _state_of(host, client, agent, session_id, session)} if is_shown else {}
    view = partial(session_view, agent, session_id, session, page, running)
    return await large_json_response(len(page.entries), lambda: {**view(), **state}, session_headers(session_id))


async def _state_of(
    host: HandlerContext, client: TurnClient, agent: str, session_id: str, session: Session
) -> dict[str, Any]:
    """Return what the app has in the state of the framework's session, without that of context providers."""
    providers: Sequence[Any] = getattr(host.agents[agent].hosted.agent, "context_providers", ())
    hidden = ("durable_agent_host", *(provider.source_id for provider in providers))
    agent_session = await client.storage.record(session, SessionKey(agent, session_id)).agent_session() or {}
    state = {name: value for name, value in agent_session.get("state", {}).items() if not name.startswith(hidden)}
    redactor = client.storage.find_redactor(agent)
    return state if redactor is None else await redact_in_thread(redactor, lambda: redactor.value(state))


async def export_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/export``: the whole session, as JSON lines."""
    agent, session_id = named_session(host, call)
    host.agents[agent].history.reject_unsupported(agent, "export")
    lines = await client.copies.export(agent, session_id)
    if lines is None:
        raise unknown_session(agent, session_id)
    return PartStream(lines, {"content-type": JSON_LINES} | session_headers(session_id))


async def import_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agents/{agent}/sessions/{session}/import``: store an exported session as a new session."""
    agent, session_id = named_session(host, call)
    host.agents[agent].history.reject_unsupported(agent, "import")
    body = call.stream()
    if host.imports.locked():
        raise TooManyRequestsError(
            f"{IMPORTS_AT_ONCE} imports run already: try again later", retry_after_seconds=_IMPORT_RETRY_SECONDS
        )
    try:
        async with host.imports:
            message_count = await client.copies.import_lines(agent, session_id, body)
    except DurableAgentHostError as error:
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):  # a client that is still sending does not read the answer
                async for _ in body:
                    pass
        return problem_of_error(error, headers={"connection": "close"})
    view = ImportedSessionWire(agent=agent, session_id=session_id, message_count=message_count)
    return session_response(view, HTTPStatus.CREATED)


async def verify_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/verify``: what cannot be read, and calls without results."""
    agent, session_id = named_session(host, call)
    state, changes = await client.documents.verify(agent, session_id)
    if state is None:
        raise unknown_session(agent, session_id)
    view: VerifiedSessionWire = {
        "agent": agent,
        "session_id": session_id,
        "problems": [repair_change_view(change) for change in changes],
    }
    return session_response(view)


_REPAIR_TRIES: Final = 3


async def repair_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agents/{agent}/sessions/{session}/repair``: repair it; the original stays as a session of its own.

    A session that changes meanwhile is read again: an earlier request that a crash cut off may have mended it.
    """
    agent, session_id = named_session(host, call)
    tries = 0
    while True:
        state = await client.documents.read(agent, session_id)
        if state is None:
            raise unknown_session(agent, session_id)
        backup_id = backup_session_id(session_id, document_digest(state))
        try:
            changes = await client.documents.repair(agent, session_id, keep_as=backup_id)
            break
        except TurnRejectedError:
            tries += 1
            if tries == _REPAIR_TRIES or await client.documents.read(agent, session_id) == state:
                raise
    if changes:
        _LOGGER.info("session %r of agent %s repaired: %d changes, original kept", session_id, agent, len(changes))
    view: RepairedSessionWire = {
        "agent": agent,
        "session_id": session_id,
        "changes": [repair_change_view(change) for change in changes],
        "original_session_id": backup_id if changes else None,
    }
    return session_response(view)


async def fork_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agents/{agent}/sessions/{session}/fork``: a new session that begins with a copy of the conversation."""
    agent, session_id = named_session(host, call)
    fields = parse_fork(call.body)
    at_turn = fields.get("at_turn")
    if await client.documents.read(agent, session_id) is None:
        raise unknown_session(agent, session_id)
    host.agents[agent].history.reject_unsupported(agent, "fork_at_turn" if at_turn else "fork")
    new_id = fields.get("session_id") or uuid.uuid4().hex
    if await client.documents.is_id_in_use(agent, new_id):
        raise TurnRejectedError(f"agent {agent!r} already has a session {new_id!r}: fork under another id")
    count = await client.copies.fork(agent, session_id, new_id, at_turn=at_turn, is_before=bool(fields.get("before")))
    if count is None:
        raise unknown_session(agent, session_id)
    view: ForkedSessionWire = {
        "agent": agent,
        "session_id": new_id,
        "forked_from": session_id,
        "message_count": count,
        "session_url": session_url_of(call.base_url, agent, new_id),
    }
    return session_response(view, HTTPStatus.CREATED)


async def delete_session(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``DELETE /agents/{agent}/sessions/{session}``: erase it, its receipts, turns and logs; says what.

    Of a session that has not begun, the caller's uploads.
    """
    agent, session_id = named_session(host, call)
    history = host.agents[agent].history
    history_option = call.query.get("history")
    if history_option not in (None, "kept"):
        raise RequestError(
            f"'history' is {history_option!r}: leave it out, or use history=kept to delete only what the host has"
        )
    state = await client.documents.read_state(agent, session_id)
    if state is not None:
        owner = owner_of_document(state)
    elif await client.files(agent, session_id).uploads.all():
        owner = client.context.access.owner
    else:
        raise unknown_session(agent, session_id)
    if state is not None and history_option is None:
        history.reject_unsupported(agent, "delete")
    await client.check_log()
    if state is not None and history_option is None:
        await client.documents.delete_external_messages(agent, session_id)
    deleted_counts = await client.erasures.erase(
        agent, session_id, owner=owner, keeps_history=history_option is not None, seconds=host.settings.wait_seconds
    )
    remaining_copies = [*(history.owners if history_option else ()), *history.copies]
    view: DeletedSessionWire = {"agent": agent, "session_id": session_id, "status": "deleting"}
    if remaining_copies:
        view["kept_by"] = remaining_copies
    if deleted_counts is None:
        return session_response(view, HTTPStatus.ACCEPTED)
    view["status"] = "deleted"
    view["erased"] = cast("ErasedWire", deleted_counts)
    view["erased_from_files_by"] = (datetime.now(UTC) + timedelta(seconds=FILES_SECONDS)).isoformat()
    return session_response(view)


def backup_session_id(session_id: str, digest: str) -> str:
    """Return the id of the session that keeps the original document of a repaired one.

    Returns:
        An id that is the same for the same document.
    """
    mark = _BACKUP_MARK + digest[:8]
    return session_id[: MAX_SESSION_ID_CHARACTERS - len(mark)] + mark


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
        statuses: one of these; empty for any.
        details: whether the list includes each session's details.
    """

    text: str = ""
    used_from: datetime | None = None
    statuses: frozenset[str] = frozenset()
    details: bool = False

    def filter_by_name(self, sessions: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return those of a list whose name and time are wanted."""
        text = self.text.casefold()
        return [session for session in sessions if text in session[1].casefold() and self._is_in_time(session[0])]

    def _is_in_time(self, used: str) -> bool:
        if self.used_from is None:
            return True
        try:
            return _utc(used) >= self.used_from
        except ValueError:
            return False


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
