"""What becomes of a turn's work: the entries to store, or the reason why there are none."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from agent_framework import AgentResponse, AgentResponseUpdate, Content

from durable_agent_host.codec.answer import check_answer
from durable_agent_host.codec.content import decode_usage, encode_content, plain_json
from durable_agent_host.codec.journal import decode_tool_result
from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.durable.work import AgentWork
from durable_agent_host.errors import CorruptStateError, InvalidAnswerError, TurnCancelledError, error_details
from durable_agent_host.history.provider import DurableSession, TranscriptProvider
from durable_agent_host.log.journal import Recorded, ToolKey
from durable_agent_host.model.turn import TurnOutcome, TurnRequest, TurnStats
from durable_agent_host.turns.closing import close_calls, finished_part
from durable_agent_host.turns.events import answer_text
from durable_agent_host.turns.fold import fold_updates
from durable_agent_host.turns.repair import repair_entries

CANCELLED: Final = "durable_agent_host.cancelled"
"""Key in the ``additional_properties`` of a stored response: the turn was cancelled, and this is what there was."""

_NOT_RUN: Final = "Error: The turn was cancelled before this call; the tool did not run."
_CUT_OFF: Final = (
    "Error: The turn was cancelled while the tool was running; the outcome is not known, "
    "and the call may or may not have taken effect."
)


def utc_now() -> str:
    """Tell the time. Returns: UTC, ISO-8601 with microseconds."""
    return datetime.now(UTC).isoformat()


def completed(work: AgentWork, response: AgentResponse[Any]) -> TurnOutcome:
    """Make the outcome of a turn whose agent has answered.

    Args:
        work: done.
        response: folded from its updates.

    Returns:
        An outcome with the entries to append.

    Raises:
        InvalidAnswerError: the answer does not fit the response format that was asked for, or it, or what the agent's
            session keeps, holds what JSON cannot.
    """
    if work.request.response_format is not None:
        check_answer(answer_text(response), work.request.response_format)
    try:
        return _with_entries(work, response, "completed")
    except CorruptStateError as error:  # of what would be stored; the session is as it was
        raise InvalidAnswerError(f"the agent's answer cannot be stored: {error}") from error


def cancelled(work: AgentWork, recorded: Recorded) -> TurnOutcome:
    """Make the outcome of a turn that was cancelled: what it had produced, as a valid transcript.

    The model's service does not know what was cut off, so the next turn goes on from the stored transcript.

    Args:
        work: cut off.
        recorded: what its journal says now.

    Returns:
        An outcome with the entries to append, the response marked.
    """
    whole = [update for update, position in work.updates if position is None or position in recorded.responses]
    cut = [update for update, position in work.updates if not (position is None or position in recorded.responses)]
    response = fold_updates(whole, work.provider)
    response.messages += finished_part(fold_updates(cut, work.provider).messages)
    position = work.run.journal.position if work.run is not None else -1
    response.messages = close_calls(
        response.messages, lambda call_id, n: _told(recorded, ToolKey(position, call_id, n))
    )
    response.additional_properties = {**(response.additional_properties or {}), CANCELLED: True}
    work.agent_session.service_session_id = None
    outcome = _with_entries(work, response, "cancelled")
    request_entry, response_entry = outcome.entries
    mended, _ = repair_entries([request_entry, response_entry])
    error = TurnCancelledError("the turn was cancelled; what it had produced is part of the conversation")
    return replace(outcome, entries=mended, error=error_details(error))


def _told(recorded: Recorded, key: ToolKey) -> Content:
    """Say what is known of a call that the model has not been told of."""
    known = recorded.tools.get(key)
    if known is None:
        return Content.from_function_result(key.call_id, result=_NOT_RUN)
    if known.finished is None:
        return Content.from_function_result(key.call_id, result=_CUT_OFF)
    result = known.finished["result"]
    if "items" in result:
        return Content.from_function_result(key.call_id, result=decode_tool_result(result))
    return Content.from_function_result(
        key.call_id, result="Error: Function failed.", exception=str(result.get("message", ""))
    )


def failed(request: TurnRequest, error: BaseException, *, milliseconds: float = 0.0) -> TurnOutcome:
    """Make the outcome of a turn that leaves the conversation as it was. Guarantee: pure but for the clock.

    Args:
        request: what was asked.
        error: why.
        milliseconds: time inside the agent.

    Returns:
        An outcome without entries.
    """
    return TurnOutcome(
        turn_id=request.turn_id,
        status="failed",
        error=error_details(error),
        stats=TurnStats(agent_milliseconds=milliseconds),
        request_hash=request.request_hash,
        ended_at=utc_now(),
    )


def suspended(work: AgentWork) -> TurnOutcome:
    """Make the result of an activity whose turn waits for a person.

    Args:
        work: given up at the calls that wait.

    Returns:
        An outcome with ``pending``, and no entries.
    """
    return TurnOutcome(
        turn_id=work.request.turn_id,
        status="suspended",
        pending=tuple(work.run.pending) if work.run is not None else (),
        stats=TurnStats(agent_milliseconds=work.milliseconds()),
        request_hash=work.request.request_hash,
    )


def _with_entries(work: AgentWork, response: AgentResponse[Any], status: Any) -> TurnOutcome:
    ended_at = utc_now()
    request = work.request
    entries = (encode_request_entry(request), encode_response_entry(request.turn_id, response, created_at=ended_at))
    usage = entries[1].get("usage")
    return TurnOutcome(
        turn_id=request.turn_id,
        status=status,
        text=answer_text(response),
        entries=cast("tuple[Mapping[str, Any], ...]", entries),
        agent_session=_save_session(work.agent_session),
        usage=decode_usage(usage) if usage else None,
        message_count=len(work.session.entries) + len(entries),
        stats=replace(_weigh(work, response), bytes_stored=_size(entries)),
        request_hash=request.request_hash,
        ended_at=ended_at,
    )


def _save_session(agent_session: DurableSession) -> Mapping[str, Any]:
    if not agent_session.state.get(TranscriptProvider.SOURCE_ID):
        agent_session.state.pop(TranscriptProvider.SOURCE_ID, None)
    return plain_json(agent_session.to_dict(), path="agent session")


def _weigh(work: AgentWork, response: AgentResponse[Any]) -> TurnStats:
    updates: list[AgentResponseUpdate] = [update for update, _ in work.updates]
    return TurnStats(
        chunks_streamed=len(updates),
        bytes_streamed=sum(_size([encode_content(content) for content in update.contents]) for update in updates),
        contents_stored=sum(len(message.contents) for message in response.messages),
        agent_milliseconds=work.milliseconds(),
        calls_refused=len(work.lost),
    )


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
