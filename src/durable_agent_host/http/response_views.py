"""Turns and sessions as JSON for clients."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.entity_state import encode_budget_usage, encode_stats
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import RESPONSE, end_of_entry, response_id_of
from durable_agent_host.codec.strict_json import encode_strict, format_json_path
from durable_agent_host.codec.wire_types import FailureWire
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_many
from durable_agent_host.http.problem_details import problem_body
from durable_agent_host.http.response_types import (
    AcceptedTurnWire,
    CallReplyWire,
    ConversationMessageWire,
    ConversationWire,
    EndedTurnWire,
    PostponedWire,
    RepairChangeWire,
    SessionIdentityWire,
    TurnEndWire,
    TurnNamesWire,
    TurnUrlsWire,
    TurnWire,
    WaitingTurnWire,
)
from durable_agent_host.model.ending import AnswerEnd, AnswerEndWire, RefusalWire, status_of_end, visible_turn_status
from durable_agent_host.model.pending_call import PendingCallWire
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_pages import Page
from durable_agent_host.session.repair import RepairChange
from durable_agent_host.session.transcript import external_provider_of
from durable_agent_host.turn import turn_events
from durable_agent_host.turn.response_format import parse_answer
from durable_agent_host.turn.turn_events import (
    AnswerMessagesWire,
    CitationWire,
    ProblemTurnWire,
    ProblemWire,
    ResponseMessageWire,
    RunAnswerWire,
    TurnIdentityWire,
    UsageWire,
)
from durable_agent_host.turn.turn_wire import decode_response_messages


async def large_json_response(
    count: int, view: Callable[[], Mapping[str, Any]], headers: Mapping[str, str]
) -> Response:
    """Answer 200 with JSON.

    Raises:
        Exception: whatever the view raises.
    """
    text = await run_in_thread_if_many(count, lambda: encode_strict(view()))
    return Response(text, headers=headers, media_type="application/json")


def json_response(status: HTTPStatus, body: Any, headers: Mapping[str, str]) -> Response:
    """Answer with JSON."""
    return Response(encode_strict(body), int(status), headers, media_type="application/json")


def turn_identity(request: TurnRequest) -> TurnIdentityWire:
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
        The id, percent-encoded as in URLs when it is not ASCII, or begins or ends with a space.
    """
    return name if name.isascii() and name == name.strip() else quote(name)


def session_headers(session_id: str) -> dict[str, str]:
    """Name a session in headers."""
    value = _header_value(session_id)
    return {"x-ms-session-id": value, "x-ms-thread-id": value}


def session_response(view: SessionIdentityWire, http_status: HTTPStatus = HTTPStatus.OK) -> Response:
    """Answer with JSON about a session."""
    return json_response(http_status, view, session_headers(view["session_id"]))


def session_url_of(base: str, agent: str, session_id: str) -> str:
    return f"{base}/agents/{quote(agent)}/sessions/{quote(session_id, safe='')}"


def turn_headers(request: TurnRequest) -> dict[str, str]:
    """Name a turn in headers."""
    return session_headers(request.session_id) | {"x-ms-turn-id": _header_value(request.turn_id)}


def turn_urls(base: str, request: TurnRequest) -> TurnUrlsWire:
    """Return a turn's URLs."""
    session_url = session_url_of(base, request.agent, request.session_id)
    turn_url = f"{session_url}/turns/{quote(request.turn_id, safe='')}"
    return {"session_url": session_url, "turn_url": turn_url, "events_url": f"{turn_url}/events"}


def turn_names(base: str, request: TurnRequest) -> TurnNamesWire:
    """Name a turn in a body, with its URLs."""
    return {**turn_identity(request), **turn_urls(base, request)}


def accepted_view(base: str, request: TurnRequest) -> AcceptedTurnWire:
    """Return the body of a 202."""
    return {"status": "accepted", "message": request.message, **turn_names(base, request)}


def pending_calls_of(turn: Turn) -> Sequence[PendingCallWire]:
    """Return a turn's pending calls, as far as they could travel; the turn's events have them in full."""
    return cast("Sequence[PendingCallWire]", turn.pending)


def waiting_view(base: str, turn: Turn) -> WaitingTurnWire:
    return {
        **turn_names(base, turn.request),
        "message": turn.request.message,
        "status": "waiting",
        "pending_calls": pending_calls_of(turn),
    }


def response_view(request: TurnRequest, outcome: TurnOutcome, base: str) -> RunAnswerWire:
    """Return the JSON answer of ``run``."""
    view: RunAnswerWire = {
        "response": outcome.text,
        "message": request.message,
        "status": "cancelled" if outcome.status == "cancelled" else status_of_end(outcome.finish_reason),
        "message_count": outcome.message_count,
        "usage": _usage_of(outcome),
        **_end_view(outcome.finish_reason, outcome.refusal),
        **_messages_view(request, outcome, base),
        **turn_identity(request),
    }
    if outcome.redacted:
        view["redacted"] = True
    _add_value(view, request, outcome)
    return view


def _end_view(finish_reason: str | None, refusal: Mapping[str, str] | None) -> AnswerEndWire:
    """Return how an answer ended."""
    view: AnswerEndWire = {"finish_reason": finish_reason}
    if refusal:
        view["refusal"] = cast("RefusalWire", refusal)
    return view


def _add_value(view: RunAnswerWire | TurnWire, request: TurnRequest, outcome: TurnOutcome) -> None:
    """Repeat a complete structured answer, parsed."""
    is_structured = outcome.is_structured or request.response_format is not None
    if is_structured and view["status"] in {"success", "completed"}:
        with suppress(ValueError, RecursionError):
            view["value"] = parse_answer(outcome.text)


def _usage_of(outcome: TurnOutcome) -> UsageWire | None:
    return cast("UsageWire | None", outcome.usage)


def _messages_view(request: TurnRequest, outcome: TurnOutcome, base: str) -> AnswerMessagesWire:
    """Return the messages of an answer, and their citations with their ranges in the whole text."""
    messages = decode_response_messages(outcome, request.agent)
    citations: list[CitationWire] = []
    start = 0
    for message in messages:
        for citation in message["citations"]:
            moved: CitationWire = {**citation}
            moved["start"] += start
            moved["end"] += start
            citations.append(moved)
        start += len(message["text"]) + len(turn_events.SEPARATOR)
    views = [cast("ResponseMessageWire", with_file_urls(message, request, base)) for message in messages]
    return {"messages": views, "citations": citations}


def with_file_urls(data: Mapping[str, Any], request: TurnRequest, base: str) -> Mapping[str, Any]:
    """Add the URLs of its files to a message, or to the data of an event."""
    if not (files := data.get("files")):
        return data
    url = f"{session_url_of(base, request.agent, request.session_id)}/files"
    urls = [{"file_url": f"{url}/{quote(file['id'], safe='')}"} if file["id"] else {} for file in files]
    return {**data, "files": [file | file_url for file, file_url in zip(files, urls, strict=True)]}


def terminal_event(request: TurnRequest, outcome: TurnOutcome, base: str) -> tuple[str, RunAnswerWire | ProblemWire]:
    """Return the last event of a turn.

    Returns:
        ``turn.completed`` or ``turn.cancelled`` with the JSON answer of ``run``, or ``turn.failed`` with the problem.
    """
    if outcome.status == "cancelled":
        return turn_events.TURN_CANCELLED, response_view(request, outcome, base)
    if outcome.error is not None:
        names: ProblemTurnWire = {**turn_identity(request), **figures_of(outcome)}
        return turn_events.TURN_FAILED, problem_body(outcome.error, **names)
    return turn_events.TURN_COMPLETED, response_view(request, outcome, base)


def figures_of(outcome: TurnOutcome) -> ProblemTurnWire:
    """Return what a turn without an answer has used."""
    figures = ProblemTurnWire() if outcome.usage is None else ProblemTurnWire(usage=_usage_of(outcome))
    if outcome.budget_usage is not None:
        figures["spent"] = encode_budget_usage(outcome.budget_usage)
    return figures


def turn_view(turn: Turn, base: str) -> TurnWire:
    """Return the turn's current state."""
    request = turn.request
    view: TurnWire = {
        **turn_identity(request),
        "agent": request.agent,
        "message": request.message,
        "created_at": request.created_at,
        "status": "waiting" if turn.pending else "running",
    }
    if turn.pending:
        view["pending_calls"] = pending_calls_of(turn)
    if turn.postponement is not None:
        view["postponed"] = cast("PostponedWire", turn.postponement)
    if request.options:
        view["options"] = request.options
    if request.principal:
        view["asked_by"] = {"principal": request.principal, "tenant": request.tenant}
    if turn.replies:
        view["answers"] = [answer_view(call_id, answer) for call_id, answer in turn.replies.items()]
    if turn.outcome is not None:
        _add_outcome(view, request, turn.outcome, base)
    return view


def _add_outcome(view: TurnWire, request: TurnRequest, outcome: TurnOutcome, base: str) -> None:
    view["status"] = visible_turn_status(outcome.status, outcome.finish_reason)
    view |= cast("TurnWire", _end_view(outcome.finish_reason, outcome.refusal))
    view["response"] = outcome.text if outcome.status in {"completed", "cancelled"} else None
    view["error"] = cast("FailureWire | None", outcome.error)
    view["usage"] = _usage_of(outcome)
    view["message_count"] = outcome.message_count
    view["ended_at"] = outcome.ended_at
    view["stats"] = encode_stats(outcome.stats)
    view |= cast("TurnWire", outcome.model_info or {})
    view |= cast("TurnWire", _messages_view(request, outcome, base))
    if outcome.redacted:
        view["redacted"] = True
    if outcome.joined_turn_id:
        view["joined_turn_id"] = outcome.joined_turn_id
    if outcome.budget_usage is not None:
        view["spent"] = encode_budget_usage(outcome.budget_usage)
    _add_value(view, request, outcome)


def answer_view(call_id: str, answer: Mapping[str, Any]) -> CallReplyWire:
    """Return the answer to a pending call."""
    view: dict[str, Any] = {"call_id": call_id}
    view |= {_ANSWER_NAMES.get(name, name): value for name, value in answer.items() if name not in {"stored", "digest"}}
    return cast("CallReplyWire", view)


_ANSWER_NAMES: Final = {"by": "answered_by", "at": "answered_at"}


def _messages_of(entry: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the messages of an entry; an entry of an unknown type may have none, or others."""
    messages: Any = entry.get("messages")
    if not isinstance(messages, list):
        return []
    return [cast("dict[str, Any]", message) for message in cast("list[Any]", messages) if isinstance(message, dict)]


def session_view(agent: str, session_id: str, session: Session, page: Page, running: Turn | None) -> ConversationWire:
    """Return a page of a conversation as it is stored, and the request of the turn that has not ended."""
    messages = [
        {"createdAt": entry.get("createdAt")}
        | message
        | {"turn_id": entry.get("correlationId")}
        | ({"redacted": True} if extension_of(entry).get("redacted") else {})
        for entry in page.entries
        for message in _messages_of(entry)
    ]
    turns: list[EndedTurnWire] = []
    entries = (*page.entries, page.next_entry)
    responses = {entry.get("correlationId"): entry for entry in entries if entry.get("$type") == RESPONSE}
    for receipt in page.receipts:
        if receipt.turn_id == session.running:  # it has been resumed
            continue
        response = responses.get(receipt.turn_id, {})
        turn: EndedTurnWire = {
            "turn_id": receipt.turn_id,
            **_receipt_end(receipt, response),
            "ended_at": receipt.ended_at,
            "error": cast("FailureWire | None", receipt.error),
            "response_id": response_id_of(response),
            "stats": encode_stats(receipt.stats) if receipt.stats else None,
        }
        if receipt.budget_usage is not None:
            turn["spent"] = encode_budget_usage(receipt.budget_usage)
        if receipt.joined_turn_id:
            turn["joined_turn_id"] = receipt.joined_turn_id
        turns.append(turn)
    view: ConversationWire = {
        "agent": agent,
        "session_id": session_id,
        "thread_id": session_id,
        "message_count": session.message_count,
        "messages": cast("list[ConversationMessageWire]", messages),
        "previous": None if page.previous is None else str(page.previous),
        "running_turn_id": session.running,
        "queued_turn_ids": list(session.queue),
        "turns": turns,
    }
    if running is not None and running.outcome is None:
        view["running_turn"] = {
            "turn_id": running.request.turn_id,
            "message": running.request.message,
            "created_at": running.request.created_at,
            "status": "waiting" if running.pending else "running",
        }
    if session.budget_usage is not None:
        view["spent"] = encode_budget_usage(session.budget_usage)
    if page.left_out:
        view["left_out"] = [
            {"turn_id": turn_id, "path": format_json_path(text.path), "size": text.text_size}
            for turn_id, text in page.left_out
        ]
    if keepers := {external_provider_of(entry) for entry in page.entries} - {None}:
        view["kept_by"] = sorted(map(str, keepers))
    if page.problems:
        view["problems"] = [repair_change_view(problem) for problem in page.problems]
    return view


def _receipt_end(receipt: Receipt, response_entry: Mapping[str, Any]) -> TurnEndWire:
    end = AnswerEnd() if receipt.status != "completed" else end_of_entry(response_entry)
    return {
        "status": visible_turn_status(receipt.status, end.finish_reason),
        **_end_view(end.finish_reason, end.refusal),
    }


def repair_change_view(change: RepairChange) -> RepairChangeWire:
    """Return a problem of a conversation and its repair, as clients see it."""
    return {"place": change.location, "problem": change.problem, "repair": change.repair}
