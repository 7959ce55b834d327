"""Routes for whoever looks after stored sessions: list, export, import, verify, repair, fork, delete."""

import base64
import binascii
import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

import azure.functions as func

from durable_agent_host.codec.state import decode_session, document_digest, encode_session
from durable_agent_host.durable.client import TurnClient
from durable_agent_host.errors import NotFoundError, RequestError, StateError, TurnRejectedError
from durable_agent_host.http.handlers import Host, answered, base_url, json_answer, path_part
from durable_agent_host.http.views import header_value
from durable_agent_host.model.ids import MAX_SESSION_ID_CHARACTERS, check_session_id, turn_log_id

DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 1000
_KEPT_MARK: Final = ".before-repair-"


@answered
async def list_sessions(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /agents/{agent}/sessions``: an agent's sessions, newest first, ``limit`` at a time from ``cursor``."""
    agent = host.agent(path_part(req, "agent"))
    params = cast("Mapping[str, str]", req.params)
    limit, cursor = read_limit(params.get("limit")), read_cursor(params.get("cursor"))
    listed = await client.documents.listed(agent)
    page, following = page_of(listed, limit=limit, cursor=cursor)
    url = f"{base_url(req)}/agents/{quote(agent)}/sessions"
    sessions = [
        {"session_id": key, "last_used_at": used, "session_url": f"{url}/{quote(key, safe='')}"} for used, key in page
    ]
    return json_answer(HTTPStatus.OK, {"agent": agent, "sessions": sessions, "cursor": following}, {})


@answered
async def export_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /agents/{agent}/sessions/{session}/export``: the document that the entity holds, to the letter."""
    agent, session_id = _named(host, req)
    state = await client.documents.read(agent, session_id)
    if state is None:
        raise _unknown(agent, session_id)
    return json_answer(HTTPStatus.OK, state, {"x-ms-session-id": header_value(session_id)})


@answered
async def import_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``POST /agents/{agent}/sessions/{session}/import``: store an exported document as a new session."""
    agent, session_id = _named(host, req)
    body = req.get_body()
    try:
        exported = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}: send what 'export' gave") from None
    document = document_to_import(exported)
    now = await client.documents.read(agent, session_id)
    if now not in (None, {}, document):
        raise TurnRejectedError(f"agent {agent!r} has a session {session_id!r} already: import under another id")
    await client.documents.put(agent, session_id, document, instead_of=now)
    answer = {"agent": agent, "session_id": session_id, "message_count": len(decode_session(document).entries)}
    return json_answer(HTTPStatus.CREATED, answer, {"x-ms-session-id": header_value(session_id)})


@answered
async def verify_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``GET /agents/{agent}/sessions/{session}/verify``: what a model's service would not accept, and what mends it."""
    agent, session_id = _named(host, req)
    state, _, changes = await client.documents.verify(agent, session_id)
    if state is None:
        raise _unknown(agent, session_id)
    problems = [asdict(change) for change in changes]
    return json_answer(HTTPStatus.OK, {"agent": agent, "session_id": session_id, "problems": problems}, {})


@answered
async def repair_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``POST /agents/{agent}/sessions/{session}/repair``: mend it; the original stays as a session of its own."""
    agent, session_id = _named(host, req)
    state = await client.documents.read(agent, session_id)
    if state is None:
        raise _unknown(agent, session_id)
    kept = kept_name(session_id, document_digest(state))
    changes = await client.documents.repair(agent, session_id, keep_as=kept)
    answer = {
        "agent": agent,
        "session_id": session_id,
        "changes": [asdict(change) for change in changes],
        "original_session_id": kept if changes else None,
    }
    return json_answer(HTTPStatus.OK, answer, {"x-ms-session-id": header_value(session_id)})


@answered
async def fork_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``POST /agents/{agent}/sessions/{session}/fork``: a new session that begins with a copy of the conversation."""
    agent, session_id = _named(host, req)
    new_id, at_turn = read_fork(req.get_body())
    new_id = new_id or uuid.uuid4().hex
    if await client.documents.read(agent, new_id) not in (None, {}):
        raise TurnRejectedError(f"agent {agent!r} has a session {new_id!r} already: fork under another id")
    count = await client.documents.fork(agent, session_id, new_id, at_turn=at_turn)
    if count is None:
        raise _unknown(agent, session_id)
    answer = {
        "agent": agent,
        "session_id": new_id,
        "forked_from": session_id,
        "message_count": count,
        "session_url": f"{base_url(req)}/agents/{quote(agent)}/sessions/{quote(new_id, safe='')}",
    }
    return json_answer(HTTPStatus.CREATED, answer, {"x-ms-session-id": header_value(new_id)})


@answered
async def delete_session(host: Host, req: func.HttpRequest, client: TurnClient) -> func.HttpResponse:
    """``DELETE /agents/{agent}/sessions/{session}``: delete it, its receipts, its turns and their logs."""
    agent, session_id = _named(host, req)
    turns = await client.documents.delete(agent, session_id)
    if turns is None:
        raise _unknown(agent, session_id)
    log = host.open_log()
    for turn_id in turns:
        await log.delete(turn_log_id(agent, session_id, turn_id))
    return json_answer(HTTPStatus.OK, {"agent": agent, "session_id": session_id, "status": "deleted"}, {})


def read_fork(body: bytes) -> tuple[str | None, str | None]:
    """Read the body of ``fork``.

    Guarantee: pure.

    Args:
        body: empty, or a JSON object with ``at_turn``, ``session_id`` or both.

    Returns:
        The id of the new session and the last turn to copy, None where nothing was said.

    Raises:
        RequestError: it is something else.
    """
    try:
        given: Any = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is not valid JSON: {error}") from None
    fields = cast("dict[str, Any]", given) if isinstance(given, dict) else {"body": given}
    for name in fields:
        if name not in {"session_id", "at_turn"}:
            raise RequestError(f"{name!r} is no field of a fork: send an object with at_turn, session_id or neither")
    for name, value in fields.items():
        if value is not None and not (isinstance(value, str) and value):
            raise RequestError(f"{name!r} is {value!r}: give a text, or leave it out")
    new_id: str | None = fields.get("session_id")
    return check_session_id(new_id) if new_id else None, fields.get("at_turn")


def kept_name(session_id: str, digest: str) -> str:
    """Name the session that keeps another one's document. Guarantee: pure.

    Args:
        session_id: of the session that is repaired.
        digest: of its document.

    Returns:
        An id that is the same for the same document.
    """
    mark = _KEPT_MARK + digest[:8]
    return session_id[: MAX_SESSION_ID_CHARACTERS - len(mark)] + mark


def document_to_import(exported: Any) -> dict[str, Any]:
    """Prepare an exported document for another session.

    Guarantee: pure.

    Args:
        exported: JSON.

    Returns:
        The document without the turns that ran or waited when it was exported: they belong to that host.

    Raises:
        RequestError: it is no session.
    """
    try:
        session = decode_session(exported)
    except StateError as error:
        raise RequestError(f"the body is no session that can be used: {error}") from None
    if not session.document:
        raise RequestError("the body is empty: send what 'export' gave")
    if session.running is None and not session.queue:
        return exported
    return encode_session(replace(session, running=None, queue=(), interrupting=None, requests={}))


def read_limit(text: str | None) -> int:
    """Read the query parameter ``limit``. Guarantee: pure.

    Raises:
        RequestError: it is no number from 1 to 1000.
    """
    if text is None:
        return DEFAULT_LIMIT
    if not text.isascii() or not text.isdigit() or not 1 <= int(text[:9]) <= MAX_LIMIT:
        raise RequestError(f"'limit' is {text!r}: use a number from 1 to {MAX_LIMIT}")
    return int(text)


def read_cursor(text: str | None) -> tuple[str, str] | None:
    """Read the query parameter ``cursor``: where the page before ended. Guarantee: pure.

    Raises:
        RequestError: it is none that a list gave out.
    """
    if not text:
        return None
    try:
        used, key = json.loads(base64.urlsafe_b64decode(text.encode()))
        return str(used), str(key)
    except (ValueError, TypeError, binascii.Error):
        raise RequestError("'cursor' is none that this route gave out: leave it out to begin at the newest") from None


def page_of(
    listed: Sequence[tuple[str, str]], *, limit: int, cursor: tuple[str, str] | None
) -> tuple[Sequence[tuple[str, str]], str | None]:
    """Cut a page out of a list.

    Guarantee: pure.

    Args:
        listed: last use and id, newest first.
        limit: length of a page.
        cursor: the last of the page before, or None for the first page.

    Returns:
        The page, and the cursor for the next one, or None when this is the last.
    """
    rest = [one for one in listed if cursor is None or tuple(one) < cursor]
    page = rest[:limit]
    if len(rest) <= limit:
        return page, None
    return page, base64.urlsafe_b64encode(json.dumps(list(page[-1])).encode()).decode()


def _named(host: Host, req: func.HttpRequest) -> tuple[str, str]:
    return host.agent(path_part(req, "agent")), check_session_id(path_part(req, "session"))


def _unknown(agent: str, session_id: str) -> NotFoundError:
    return NotFoundError(f"agent {agent!r} has no session {session_id!r}")
