"""The session's entity: load, one operation, save.

Operations of the turn orchestration (``admit``, ``commit``, ``leave``) read no message; ``run`` and ``reset`` are
upstream's, for orchestrations and workflows that call the entity directly.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from azure.durable_functions import DurableEntityContext
from pydantic import BaseModel

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.codec.message import decode_response
from durable_agent_host.codec.state import decode_session, document_digest, encode_session
from durable_agent_host.codec.turn import decode_turn_outcome, encode_turn_request
from durable_agent_host.durable.agent_loop import submit
from durable_agent_host.durable.documents import PUT_OPERATION, refuse_busy
from durable_agent_host.durable.outcomes import utc_now
from durable_agent_host.durable.run import AgentRunner
from durable_agent_host.durable.signals import is_signal
from durable_agent_host.errors import (
    IdempotencyKeyReusedError,
    ProviderError,
    RequestError,
    StateError,
    TurnError,
    TurnRejectedError,
    error_details,
)
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.settings import Settings
from durable_agent_host.turns.admission import (
    ReceiptWindow,
    commit_outcome,
    decide_admission,
    has_hash,
    leave_session,
    queue_request,
    reset_session,
    response_of,
)
from durable_agent_host.turns.events import answer_text

Operation = Callable[[Session, Any, DurableEntityContext], tuple[Session, Any]]


class DurableAgentEntity:
    """The entity behind one agent's sessions.

    To add operations or to change what is stored, subclass it, override `operations`, `load` or `save`, and name the
    subclass in ``DurableAgentApp(entity_class=…)``. An operation takes the session, its input and the entity's
    context, and returns the session to store and the result; what it raises fails the call and stores nothing.

    Args:
        runner: runs the agent.
        settings: bounds of queue and receipts.
    """

    def __init__(self, runner: AgentRunner, settings: Settings) -> None:
        self.runner = runner
        self.settings = settings

    def operations(self) -> dict[str, Operation]:
        """Give the table of operations, by name."""
        return {
            "admit": self._admit,
            "commit": self._commit,
            "leave": self._leave,
            "run": self._run,
            "run_agent": self._run,
            "reset": self._reset,
        }

    def load(self, context: DurableEntityContext) -> Session:
        """Read the session from the entity.

        Raises:
            StateError: it cannot be read; nothing is changed.
        """
        return decode_session(context.get_state(lambda: None))

    def save(self, context: DurableEntityContext, session: Session) -> None:
        """Write the session to the entity."""
        context.set_state(encode_session(session))

    def handle(self, context: DurableEntityContext) -> None:
        """Carry out one operation.

        Raises:
            RequestError: there is no such operation.
            StateError: the session cannot be read; ``admit`` answers with it instead.
        """
        name = context.operation_name
        if name == PUT_OPERATION:
            self._put_document(_input_of(context), context)
            return
        operation = self.operations().get(name or "")
        if operation is None:
            raise RequestError(f"the entity has no operation {name!r}, only {', '.join(self.operations())}")
        payload = _input_of(context)
        try:
            session = self.load(context)
        except StateError as error:
            if name != "admit":
                raise
            context.set_result({"status": "refused", "error": error_details(error)})
            return
        changed, result = operation(session, payload, context)
        if changed is not session:
            self.save(context, changed)
        context.set_result(result)

    def _put_document(self, payload: Any, context: DurableEntityContext) -> None:
        """Put another document in the place of the one that the caller has seen, which may be one of no shape."""
        state: Any = context.get_state(lambda: None)
        if document_digest(state) != payload["instead_of"]:
            raise TurnRejectedError("the session is not what it was when the caller read it: read it again")
        refuse_busy(state)
        context.set_result({"status": "written"})
        if payload["document"] is None:
            context.destruct_on_exit()
        else:
            context.set_state(payload["document"])

    def _admit(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        changed, admission = decide_admission(
            session,
            payload["turn_id"],
            payload["policy"],
            max_queued_turns=self.settings.max_queued_turns,
            window=self._window(),
            request_hash=payload.get("request_hash") or "",
        )
        result: dict[str, Any] = {"status": admission.status, "running": admission.running}
        if admission.status == "queued":
            result |= _next(changed, changed.queue[0])
            result |= {"interrupts": admission.interrupts, "dropped": admission.dropped}
        if admission.status == "ended" and admission.receipt:
            result |= _ended(session, admission.receipt)
        return changed, result

    def _commit(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        window = self._window()
        changed, following = commit_outcome(session, decode_turn_outcome(payload), window=window)
        return changed, _next(changed, following) | {"message_count": len(changed.entries), "ended_at": window.now}

    def _leave(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        changed, following = leave_session(
            session, payload["turn_id"], window=self._window(), cancelled=payload.get("cancelled") is True
        )
        return changed, _next(changed, following)

    def _reset(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        del payload
        return reset_session(session), {"status": "reset"}

    def _run(self, session: Session, payload: Any, context: DurableEntityContext) -> tuple[Session, Any]:
        request = read_run_request(self.runner.name, str(context.entity_key), payload)
        receipt = session.receipt_of(request.turn_id)
        if receipt is None and response_of(session, request.turn_id):  # of a turn whose receipt is no longer kept
            return session, _response_dict(session, request.turn_id)
        if receipt is None and session.running is not None:
            return self._run_later(session, request, context)
        if receipt is None:
            outcome = submit(self.runner.run(session, request)).result()
            session, _ = commit_outcome(session, _without_suspension(outcome), window=self._window())
            self.save(context, session)
            receipt = session.receipts[-1]
        elif receipt.request_hash and not has_hash(receipt, request.request_hash):
            raise IdempotencyKeyReusedError(
                f"correlationId {request.turn_id!r} was used for another request: "
                "send the same request again, or another correlationId"
            )
        if receipt.error is not None:
            raise _raised_again(receipt.error)
        return session, _response_dict(session, request.turn_id)

    def _run_later(self, session: Session, request: TurnRequest, context: DurableEntityContext) -> tuple[Session, Any]:
        """Let a signal wait for the turn that runs; a caller waits for its answer now, and is told."""
        if is_signal(context):
            changed, has_room = queue_request(
                session,
                request.turn_id,
                encode_turn_request(request),
                max_queued_turns=self.settings.max_queued_turns,
            )
            if has_room:
                return changed, {"status": "queued", "turn_id": request.turn_id}
        raise TurnRejectedError(
            f"the session is busy with turn {session.running}: call it again when that has ended",
            running_turn_id=session.running,
        )

    def _window(self) -> ReceiptWindow:
        now = datetime.now(UTC)
        not_before = now - timedelta(seconds=self.settings.receipt_seconds)
        return ReceiptWindow(self.settings.max_receipts, now.isoformat(), not_before.isoformat())


def _next(session: Session, turn_id: str | None) -> dict[str, Any]:
    """Name the turn that is to be woken, with its request when it has no orchestration yet."""
    request = session.requests.get(turn_id) if turn_id else None
    return {"next": turn_id} | ({"next_request": dict(request)} if request else {})


def _ended(session: Session, receipt: Receipt) -> dict[str, Any]:
    entry = response_of(session, receipt.turn_id)
    places = [n for n, one in enumerate(session.entries, 1) if one.get("correlationId") == receipt.turn_id]
    return {
        "status": "gone" if receipt.status == "completed" and entry is None else "ended",
        "receipt": {"status": receipt.status, "error": receipt.error}
        | {"requestHash": receipt.request_hash, "endedAt": receipt.ended_at},
        "text": answer_text(decode_response(entry)) if entry else "",
        "usage": decode_usage(entry.get("usage") or {}) if entry else None,
        "message_count": max(places, default=len(session.entries)),
    }


def _without_suspension(outcome: TurnOutcome) -> TurnOutcome:
    """Fail a turn that waits for a person: an entity that waits would hold up its session for days."""
    if outcome.status != "suspended":
        return outcome
    message = (
        "a tool needs a person's approval, and a call of the entity cannot wait for one: "
        "run the turn over HTTP, or as the sub-orchestration 'agent_turn'"
    )
    return replace(outcome, status="failed", error={"type": "TurnError", "message": message}, entries=())


def _input_of(context: DurableEntityContext) -> Any:
    try:
        return context.get_input()
    except TypeError:  # the operation came without an input
        return None


def _response_dict(session: Session, turn_id: str) -> dict[str, Any]:
    entry = response_of(session, turn_id)
    if entry is None:
        raise TurnError(f"turn {turn_id} has ended, and its answer is no longer part of the session")
    return decode_response(entry).to_dict()


def _raised_again(error: Mapping[str, Any]) -> TurnError:
    message = str(error.get("message"))
    if "retryable" in error:
        return ProviderError(message, retryable=bool(error["retryable"]))
    return TurnError(message)


def read_run_request(agent: str, session_id: str, payload: Any) -> TurnRequest:
    """Read the input of upstream's ``run`` operation.

    Guarantee: pure, the clock aside; imports nothing that the input names.

    Args:
        agent: the agent's registered name.
        session_id: the entity's key.
        payload: upstream's ``RunRequest`` as a dictionary, or a message.

    Returns:
        The request; the correlation id is the turn's id.

    Raises:
        RequestError: there is no message, or a response format that cannot be used.
    """
    fields = cast("dict[str, Any]", payload) if isinstance(payload, dict) else {"message": payload}
    message = fields.get("message")
    if not isinstance(message, str) or not message:
        raise RequestError("the operation 'run' needs an object with a 'message'")
    created_at = str(fields.get("created_at") or utc_now())
    asked = [message, *(fields.get(name) for name in ("role", "response_format", "enable_tool_calls", "options"))]
    return TurnRequest(
        agent=agent,
        session_id=session_id,
        turn_id=str(fields.get("correlationId") or derived_id(agent, session_id, created_at, message)),
        message=message,
        role=str(fields.get("role") or "user"),
        response_format=_response_schema(fields.get("response_format")),
        enable_tool_calls=fields.get("enable_tool_calls", True) is not False,
        created_at=created_at,
        request_hash=hashlib.sha256(json.dumps(asked, sort_keys=True, default=str).encode()).hexdigest(),
        options=fields.get("options") or {},
        orchestration_id=fields.get("orchestrationId"),
    )


def _response_schema(response_format: Any) -> dict[str, Any] | None:
    if response_format is None:
        return None
    if not isinstance(response_format, dict):
        raise RequestError(f"response_format is {type(response_format).__name__}: give a JSON schema as an object")
    named = cast("dict[str, Any]", response_format)
    if named.get("__response_schema_type__") != "pydantic_model":
        return named
    found: Any = sys.modules.get(str(named.get("module")))
    for part in str(named.get("qualname")).split("."):
        found = getattr(found, part, None)
    if isinstance(found, type) and issubclass(found, BaseModel):
        return found.model_json_schema()
    raise RequestError(
        f"response_format names {named.get('module')}.{named.get('qualname')}, which this app has not loaded: "
        "import it in function_app.py, or give a JSON schema"
    )
