"""Turns and sessions as JSON for clients."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import asdict
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.entity_state import encode_budget_usage, encode_stats
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import RESPONSE, end_of_entry, response_id_of
from durable_agent_host.codec.schema_validation import format_json_path
from durable_agent_host.codec.strict_json import encode_strict
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_many
from durable_agent_host.errors import StateError
from durable_agent_host.http.problem_details import problem_body
from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.ending import AnswerEnd, status_of_end, visible_turn_status
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.segments.blob_cache import MAX_BYTES, BlobCache
from durable_agent_host.segments.conversation_pages import Page
from durable_agent_host.session.repair import RepairChange
from durable_agent_host.turn import turn_events
from durable_agent_host.turn.response_format import with_value
from durable_agent_host.turn.turn_wire import decode_response_messages

# Large answers: encoded off the event loop and in parts, so that other requests proceed; sent as clients read them.
#
# Theory of operation. A client that does not read must cost the host little, whatever it asked for. So an answer is
# sent slice by slice, and between two slices its body belongs to a cache of limited size. If others have displaced it
# when the client reads on, it is made again, and must have the same bytes.

SLICE_BYTES: Final = 192 * 1024
BODIES: Final = BlobCache(largest_bytes=MAX_BYTES)
"""Bodies that this process is sending, by their SHA-256."""


async def large_json_response(
    count: int, view: Callable[[], Mapping[str, Any]], headers: Mapping[str, str]
) -> Response:
    """Answer 200 with JSON.

    Raises:
        Exception: whatever the view raises.
    """
    text = await run_in_thread_if_many(count, lambda: _encode_in_parts(view()))
    return Response(text, headers=headers, media_type="application/json")


async def slices_of(body: bytes, again: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes]:
    """Divide a large body into slices; between two of them, only `BODIES` holds it.

    Returns:
        The slices; they raise `StateError` if what is made again has other bytes.
    """
    digest = await _digest(body)
    size = len(body)
    BODIES.put(digest, body, size)
    return _slices(digest, size, again)


async def _slices(digest: str, size: int, again: Callable[[], Awaitable[bytes]]) -> AsyncGenerator[bytes]:
    for start in range(0, size, SLICE_BYTES):
        if (body := BODIES.get(digest)) is None:
            body = await again()
            if await _digest(body) != digest:
                raise StateError("what is sent has changed while the client read it: read it again")
            BODIES.put(digest, body, size)
        part = body[start : start + SLICE_BYTES]
        del body
        yield part


async def _digest(body: bytes) -> str:
    return await asyncio.to_thread(lambda: sha256(body).hexdigest())


def _encode_in_parts(value: Any) -> str:
    """Encode JSON as `encode_strict` does, each item of its lists by itself: other threads wait for a call of it."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        encoded_members = [f"{encode_strict(name)}: {_encode_in_parts(member)}" for name, member in members.items()]
        return f"{{{', '.join(encoded_members)}}}"
    if not isinstance(value, list):
        return encode_strict(value)
    return f"[{', '.join([encode_strict(item) for item in cast('list[Any]', value)])}]"


def json_response(status: HTTPStatus, body: Any, headers: Mapping[str, str]) -> Response:
    """Answer with JSON."""
    return Response(encode_strict(body), int(status), headers, media_type="application/json")


def turn_identity(request: TurnRequest) -> dict[str, Any]:
    """Name a turn in a body."""
    return {
        "session_id": request.session_id,
        "thread_id": request.session_id,
        "turn_id": request.turn_id,
        "correlation_id": request.turn_id,
    }


def _header_value(name: str) -> str:
    """Write the id of a session or turn so that a header can carry it.

    Returns:
        The id, percent-encoded as in URLs when it is not ASCII.
    """
    return name if name.isascii() else quote(name)


def session_headers(session_id: str) -> dict[str, str]:
    """Name a session in headers."""
    value = _header_value(session_id)
    return {"x-ms-session-id": value, "x-ms-thread-id": value}


def session_response(agent: str, session_id: str, http_status: HTTPStatus = HTTPStatus.OK, **members: Any) -> Response:
    """Answer with JSON about a session."""
    return json_response(
        http_status, {"agent": agent, "session_id": session_id, **members}, session_headers(session_id)
    )


def session_url_of(base: str, agent: str, session_id: str) -> str:
    """Return a session's URL."""
    return f"{base}/agents/{quote(agent)}/sessions/{quote(session_id, safe='')}"


def turn_headers(request: TurnRequest) -> dict[str, str]:
    """Name a turn in headers."""
    return session_headers(request.session_id) | {"x-ms-turn-id": _header_value(request.turn_id)}


def turn_urls(base: str, request: TurnRequest) -> dict[str, str]:
    """Return a turn's URLs."""
    session_url = session_url_of(base, request.agent, request.session_id)
    turn_url = f"{session_url}/turns/{quote(request.turn_id, safe='')}"
    return {"session_url": session_url, "turn_url": turn_url, "events_url": f"{turn_url}/events"}


def accepted_view(request: TurnRequest) -> dict[str, Any]:
    """Return the body of a 202."""
    return {"status": "accepted", "message": request.message} | turn_identity(request)


def waiting_view(turn: Turn) -> dict[str, Any]:
    """Return a turn's pending calls.

    Returns:
        ``status`` (``waiting``), ``message`` and ``pending_calls``: see `durable_agent_host.model.pending_call`, with
        ``truncated`` where they are too long; the turn's events have them in full.
    """
    pending_calls = [dict(call) for call in turn.pending]
    return turn_identity(turn.request) | {
        "message": turn.request.message,
        "status": "waiting",
        "pending_calls": pending_calls,
    }


def response_view(request: TurnRequest, outcome: TurnOutcome, base: str) -> dict[str, Any]:
    """Return the JSON answer of ``run``.

    Returns:
        The body; ``status`` is ``success``, ``incomplete``, ``refused`` or ``cancelled``. ``value`` repeats a
        structured answer.
    """
    view = {
        "response": outcome.text,
        "message": request.message,
        "status": status_of_end(outcome.finish_reason) if outcome.status == "completed" else outcome.status,
        "message_count": outcome.message_count,
        "usage": outcome.usage,
        **_end_view(outcome.finish_reason, outcome.refusal),
    } | turn_identity(request)
    view |= _messages_view(request, outcome, base)
    if outcome.redacted:
        view["redacted"] = True
    return with_value(view, outcome.text, request.response_format) if view["status"] == "success" else view


def _end_view(finish_reason: str | None, refusal: Mapping[str, str] | None) -> dict[str, Any]:
    """Return how an answer ended."""
    return {"finish_reason": finish_reason, **({"refusal": dict(refusal)} if refusal else {})}


def _messages_view(request: TurnRequest, outcome: TurnOutcome, base: str) -> dict[str, Any]:
    """Return the messages of an answer, and their citations with their ranges in the whole text."""
    messages = decode_response_messages(outcome, request.agent)
    citations: list[dict[str, Any]] = []
    start = 0
    for message in messages:
        citations += [
            {**citation, "start": start + citation["start"], "end": start + citation["end"]}
            for citation in message["citations"]
        ]
        start += len(message["text"]) + len(turn_events.SEPARATOR)
    return {"messages": [with_file_urls(message, request, base) for message in messages], "citations": citations}


def with_file_urls(data: Mapping[str, Any], request: TurnRequest, base: str) -> Mapping[str, Any]:
    """Add the URLs of its files to a message, or to the data of an event."""
    if not (files := data.get("files")):
        return data
    url = f"{session_url_of(base, request.agent, request.session_id)}/files"
    urls = [{"file_url": f"{url}/{quote(file['id'], safe='')}"} if file["id"] else {} for file in files]
    return {**data, "files": [file | file_url for file, file_url in zip(files, urls, strict=True)]}


def terminal_event(request: TurnRequest, outcome: TurnOutcome, base: str) -> tuple[str, dict[str, Any]]:
    """Return the last event of a turn.

    Returns:
        ``turn.completed`` or ``turn.cancelled`` with the JSON answer of ``run``, or ``turn.failed`` with the problem.
    """
    if outcome.status == "cancelled":
        return turn_events.TURN_CANCELLED, response_view(request, outcome, base)
    if outcome.error is not None:
        return turn_events.TURN_FAILED, problem_body(outcome.error, **turn_identity(request))
    return turn_events.TURN_COMPLETED, response_view(request, outcome, base)


def turn_view(turn: Turn, base: str) -> dict[str, Any]:
    """Return the turn's current state.

    Returns:
        The view; ``asked_by`` when the caller was known, ``answers`` given by known persons, ``model`` and
        ``service_tier`` when the turn has ended and the provider reported them, ``options`` when it had some.
    """
    view = turn_identity(turn.request) | {
        "agent": turn.request.agent,
        "message": turn.request.message,
        "created_at": turn.request.created_at,
        "status": "running",
    }
    if turn.pending:
        view |= waiting_view(turn)
    if turn.request.options:
        view["options"] = dict(turn.request.options)
    if turn.request.principal:
        view["asked_by"] = {"principal": turn.request.principal, "tenant": turn.request.tenant}
    if replies := [{"call_id": name, **answer_view(answer)} for name, answer in turn.replies.items()]:
        view["answers"] = replies
    if turn.outcome is not None:
        view |= {
            "status": visible_turn_status(turn.outcome.status, turn.outcome.finish_reason),
            **_end_view(turn.outcome.finish_reason, turn.outcome.refusal),
            "response": turn.outcome.text if turn.outcome.status in {"completed", "cancelled"} else None,
            "error": turn.outcome.error,
            "usage": turn.outcome.usage,
            "message_count": turn.outcome.message_count,
            "ended_at": turn.outcome.ended_at,
            "stats": encode_stats(turn.outcome.stats),
            **(turn.outcome.model_info or {}),
            **_messages_view(turn.request, turn.outcome, base),
        }
        if turn.outcome.redacted:
            view["redacted"] = True
        if turn.outcome.joined_turn_id:
            view["joined_turn_id"] = turn.outcome.joined_turn_id
        view |= usage_view(turn.outcome.budget_usage)
        if view["status"] == "completed":
            view = with_value(view, turn.outcome.text, turn.request.response_format)
    return view


def answer_view(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a pending call.

    Returns:
        The answer, ``answered_by`` and ``answered_at`` when that is known; ``truncated: true`` replaces what did not
        travel because it was too large or is to be redacted.
    """
    view = {_ANSWER_NAMES.get(name, name): value for name, value in answer.items() if name not in {"stored", "digest"}}
    if "stored" in answer:
        emptied_fields = ("reason", "arguments") if "approved" in answer else ("result",)
        view |= dict.fromkeys(emptied_fields) | {"truncated": True}
    return view


_ANSWER_NAMES: Final = {"by": "answered_by", "at": "answered_at"}


def usage_view(usage: BudgetUsage | None) -> dict[str, Any]:
    """Return what a turn or session has spent; empty when nothing counts it."""
    return {} if usage is None else {"spent": encode_budget_usage(usage)}


def _messages_of(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of an entry; an entry of an unknown type may have none, or others."""
    messages: Any = entry.get("messages")
    if not isinstance(messages, list):
        return []
    return [cast("dict[str, Any]", message) for message in cast("list[Any]", messages) if isinstance(message, dict)]


def session_view(agent: str, session_id: str, session: Session, page: Page) -> dict[str, Any]:
    """Return a page of a conversation as it is stored."""
    messages = [
        {"createdAt": entry.get("createdAt")}
        | message
        | {"turn_id": entry.get("correlationId")}
        | ({"redacted": True} if extension_of(entry).get("redacted") else {})
        for entry in page.entries
        for message in _messages_of(entry)
    ]
    response_ids = {entry.get("correlationId"): response_id_of(entry) for entry in page.entries}
    entries_by_turn_id = {entry.get("correlationId"): entry for entry in page.entries if entry.get("$type") == RESPONSE}
    view: dict[str, Any] = {
        "agent": agent,
        "session_id": session_id,
        "thread_id": session_id,
        "message_count": session.message_count,
        "messages": messages,
        "previous": None if page.previous is None else str(page.previous),
        "running_turn_id": session.running,
        "queued_turn_ids": list(session.queue),
        "turns": [
            {
                "turn_id": receipt.turn_id,
                **_receipt_end(receipt, entries_by_turn_id.get(receipt.turn_id)),
                "ended_at": receipt.ended_at,
                "error": receipt.error,
                "response_id": response_ids.get(receipt.turn_id),
                "stats": encode_stats(receipt.stats) if receipt.stats else None,
                **usage_view(receipt.budget_usage),
                **({"joined_turn_id": receipt.joined_turn_id} if receipt.joined_turn_id else {}),
            }
            for receipt in page.receipts
        ],
    }
    view |= usage_view(session.budget_usage)
    if page.left_out:
        view["left_out"] = [
            {**asdict(omission), "path": format_json_path(tuple(omission.path))} for omission in page.left_out
        ]
    if page.problems:
        view["problems"] = [repair_change_view(problem) for problem in page.problems]
    return view


def _receipt_end(receipt: Receipt, response_entry: Mapping[str, Any] | None) -> dict[str, Any]:
    end = AnswerEnd() if response_entry is None or receipt.status != "completed" else end_of_entry(response_entry)
    return {
        "status": visible_turn_status(receipt.status, end.finish_reason),
        **_end_view(end.finish_reason, end.refusal),
    }


def repair_change_view(change: RepairChange) -> dict[str, str]:
    """Return a problem of a conversation and its repair, as clients see it."""
    return {"place": change.location, "problem": change.problem, "repair": change.repair}
