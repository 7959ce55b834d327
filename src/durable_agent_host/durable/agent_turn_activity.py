"""The activity of a turn that runs the agent."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.outcome_builder import build_failed, rebuild_error, without_log
from durable_agent_host.agent.run_result import Cancelled, Failed
from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.codec.session_blobs import json_bytes_of
from durable_agent_host.durable.session_documents import read_session
from durable_agent_host.errors import FencedError, LogError, StateError, TurnError, log_reason
from durable_agent_host.model.access import GRANTED_TURN
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.segments.turn_data_storage import RECORD, SessionKey, TurnDataStorage
from durable_agent_host.session.receipts import KEY_REUSED, RESPONSE_EXPIRED, is_same_request
from durable_agent_host.session.sealing import has_mark
from durable_agent_host.turn.plan import ENDED_BEFORE
from durable_agent_host.turn.turn_wire import TRAVELS_BYTES, decode_turn_request, encode_turn_outcome

_LOGGER = logging.getLogger(__name__)


async def run_agent_turn(
    wire: Mapping[str, Any],
    client: DurableOrchestrationClient,
    runners: Mapping[str, AgentRunner],
    storage: TurnDataStorage,
) -> dict[str, Any]:
    """Run the agent for a granted turn.

    Reads the conversation from the entity: through the orchestration, its history would grow by the whole conversation
    on every turn.

    Returns:
        The outcome as JSON, including failures of the agent. Without its log, a turn is rejected.

    Raises:
        TurnError: the app no longer has the agent, or the session is held by another turn.
    """
    request = decode_turn_request(wire)
    runner = runners.get(request.agent)
    if runner is None:
        raise TurnError(f"the app has no agent {request.agent!r} any more")
    try:
        session = await _session(request, client, is_resumed=bool(wire.get("failed_at")))
        if not wire.get("failed_at") and (stored := await _find_stored_outcome(request, session, storage)) is not None:
            return stored
        request = await storage.load_request(request)
        replies = await storage.load_replies(request, wire.get("answers") or {})
    except StateError as error:
        return encode_turn_outcome(build_failed(request, error))
    try:
        failure = Failed(rebuild_error(wire["error"])) if wire.get("error") else None
        collects = Cancelled() if wire.get("cancelled") is True else failure
        running = runner.run(
            session, request, replies, collects=collects, resumes=wire.get("failed_at") or "", can_postpone=True
        )
        async with _recording_owner(request, session, storage):
            outcome = await asyncio.wrap_future(submit(running))
        if failure is not None and outcome.status == "failed":
            outcome = replace(outcome, error=wire["error"])
    except FencedError:
        raise
    except StateError as error:
        return encode_turn_outcome(build_failed(request, error))
    except LogError as error:
        _LOGGER.warning(
            "turn %s (agent %s, session %r) cannot use its log: %s",
            request.turn_id,
            request.agent,
            request.session_id,
            log_reason(error),
        )
        outcome = without_log(request, error)
    return encode_turn_outcome(outcome)


@asynccontextmanager
async def _recording_owner(request: TurnRequest, session: Session, storage: TurnDataStorage) -> AsyncGenerator[None]:
    """Record whose session it is while the agent runs, unless that is known.

    The next turn records it if the store does not answer; until then its owner's listing lacks the session.
    """
    if storage.owned.is_recorded(request.agent, request.session_id, session):
        yield
        return
    recording = asyncio.ensure_future(storage.owned.record_turn_owner(request.agent, request.session_id, session))
    try:
        yield
    finally:
        try:
            await recording
        except LogError as error:
            _LOGGER.warning(
                "session %r of agent %s is not listed before its next turn, as its owner could not be noted: %s",
                request.session_id,
                request.agent,
                log_reason(error),
            )


async def _find_stored_outcome(
    request: TurnRequest, session: Session, storage: TurnDataStorage
) -> dict[str, Any] | None:
    """Return the outcome of a turn that has a receipt, which may be in the sealed part of the session."""
    turn_id = request.turn_id
    if session.receipt_of(turn_id) is None and not has_mark(session.sealed.seen, turn_id):
        return None
    completed_turn = await storage.record(session, SessionKey(request.agent, request.session_id)).find_turn_end(turn_id)
    if completed_turn is not None and not is_same_request(completed_turn.outcome.request_hash, request.request_hash):
        return encode_turn_outcome(TurnOutcome(turn_id, "rejected", error=KEY_REUSED)) | {ENDED_BEFORE: True}
    if completed_turn is None or completed_turn.has_lost_response:
        return encode_turn_outcome(TurnOutcome(turn_id, "rejected", error=RESPONSE_EXPIRED)) | {ENDED_BEFORE: True}
    outcome = completed_turn.outcome
    if len(json_bytes_of([outcome.text, outcome.messages])) > TRAVELS_BYTES:
        outcome = replace(outcome, text="", messages=(), text_at=RECORD)
    return encode_turn_outcome(outcome) | {ENDED_BEFORE: True}


async def _session(request: TurnRequest, client: DurableOrchestrationClient, *, is_resumed: bool) -> Session:
    """Read the session of a turn; a store that reads from a replica may show its admission a moment late."""
    for pause in (0.05, 0.2, 0.8, 3.0, None):
        session = decode_session(await read_session(client, GRANTED_TURN, request.agent, request.session_id))
        if session.running == request.turn_id or (session.receipt_of(request.turn_id) and not is_resumed):
            return session
        if pause is not None:
            await asyncio.sleep(pause)
    raise TurnError(f"turn {request.turn_id} does not hold its session, {session.running or 'no turn'} does")
