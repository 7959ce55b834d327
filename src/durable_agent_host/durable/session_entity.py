"""The session's entity: load, one operation, save.

Operations of the turn orchestration (``admit``, ``commit``, ``leave``) read no message; ``run`` and ``reset`` are
upstream's, for orchestrations and workflows that call the entity directly.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, cast

from azure.durable_functions import DurableEntityContext
from azure.durable_functions.entity import Entity
from pydantic import BaseModel

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.outcome_builder import rebuild_error, utc_now
from durable_agent_host.agent.run_result import Failed
from durable_agent_host.codec.content_fields import dump_value
from durable_agent_host.codec.entity_state import (
    decode_budget_usage,
    decode_owner,
    decode_session,
    document_digest,
    encode_session,
)
from durable_agent_host.codec.message import decode_response
from durable_agent_host.codec.strict_json import names_python_class
from durable_agent_host.durable.app_secret import AppSecret, signal_purpose
from durable_agent_host.durable.session_documents import PUT_OPERATION, raise_if_busy
from durable_agent_host.durable.store_health import CHECK_OPERATION
from durable_agent_host.errors import IdempotencyKeyReusedError, RequestError, StateError, TurnError, TurnRejectedError
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.conversation_reader import TurnRecord
from durable_agent_host.segments.turn_data_storage import SessionKey, TurnDataStorage
from durable_agent_host.session.admission import (
    ReceiptWindow,
    commit_outcome,
    decide_admission,
    leave_session,
    queue_request,
    record_rejected,
    reset_session,
)
from durable_agent_host.session.ownership import bind_session, unknown_session
from durable_agent_host.session.receipts import is_same_request
from durable_agent_host.session.sealing import has_mark
from durable_agent_host.settings import Settings
from durable_agent_host.turn.error_texts import error_details
from durable_agent_host.turn.turn_report import report_without_orchestration
from durable_agent_host.turn.turn_requests import request_of_run
from durable_agent_host.turn.turn_wire import (
    check_turn_named,
    decode_turn_outcome,
)


def read_run_request(agent: str, session_id: str, payload: Any) -> TurnRequest:
    """Read the input of upstream's ``run`` operation.

    Returns:
        The request; the correlation id is the turn's id.

    Raises:
        RequestError: the message is missing, or the response format is not usable.
    """
    return request_of_run(agent, session_id, payload, now=utc_now(), schema_of=_response_schema)


def _response_schema(response_format: Any) -> dict[str, Any] | None:
    if response_format is None:
        return None
    if not isinstance(response_format, dict):
        raise RequestError(f"response_format is {type(response_format).__name__}: give a JSON schema as an object")
    schema = cast("dict[str, Any]", response_format)
    if schema.get("__response_schema_type__") != "pydantic_model":
        return schema
    loaded_class: Any = sys.modules.get(str(schema.get("module")))
    for part in str(schema.get("qualname")).split("."):
        loaded_class = getattr(loaded_class, part, None)
    if isinstance(loaded_class, type) and issubclass(loaded_class, BaseModel):
        return loaded_class.model_json_schema()
    raise RequestError(
        f"response_format names {schema.get('module')}.{schema.get('qualname')}, which this app has not "
        "loaded: import it in function_app.py, or give a JSON schema"
    )


# Distinguishes signals from calls inside an entity's operation.
#
# The extension marks each operation as signal or call, and the SDK (azure-functions-durable 1.7) does not pass this
# on. A signal's sender waits for no answer, so a turn sent as a signal may wait where a call must be refused.

_ATTRIBUTE = "_durable_agent_host_is_signal"


def is_signal(context: DurableEntityContext) -> bool:
    """Return whether the current operation is a signal.

    Returns:
        False for a call, and when unknown.
    """
    return getattr(context, _ATTRIBUTE, False) is True


def entity_handle(operate: Callable[[DurableEntityContext], None]) -> Callable[[Any], str]:
    """Make the function that the worker calls for an entity, as the SDK's ``Entity.create`` does.

    Returns:
        The function, which lets operations know whether they are signals.
    """

    def handle(context: Any) -> str:
        entity_context, operations = DurableEntityContext.from_json(getattr(context, "body", None) or context)
        signals = iter([operation.get("isSignal") is True for operation in operations])

        def operate_next(operation_context: DurableEntityContext) -> None:
            setattr(operation_context, _ATTRIBUTE, next(signals, False))
            operate(operation_context)

        return Entity(operate_next).handle(entity_context, operations)

    handle.__name__ = getattr(operate, "__name__", "entity")
    handle.__annotations__ = {}  # the worker refuses annotations on an entity's context
    cast("Any", handle).entity_function = operate
    return handle


_OF_TURNS: Final = frozenset({"admit", "commit", "leave"})
_OF_CALLERS: Final = frozenset({"run", "run_agent", "reset", PUT_OPERATION})

Operation = Callable[[Session, Any, DurableEntityContext], tuple[Session, Any]]


class DurableAgentEntity:
    """The entity behind one agent's sessions.

    To add operations or change what is stored, subclass it, override `operations`, `load` or `save`, and pass the
    subclass as ``DurableAgentApp(entity_class=…)``. An operation takes the session, its input and the entity's context,
    and returns the session to store and a result; when it raises, the call fails and nothing is stored.
    `Session.app_state` is the place for data of the subclass.

    Args:
        runner: runs the agent.
        settings: limits of queue and receipts.
        has_owners: whether the app identifies its callers, so that a session belongs to the first caller who acts in
            it.
        reports: whether features of the app get reports of waits and ends of turns.
    """

    def __init__(self, runner: AgentRunner, settings: Settings, *, has_owners: bool, reports: bool = False) -> None:
        self.runner = runner
        self.settings = settings
        self.has_owners = has_owners
        self.reports = reports

    @property
    def storage(self) -> TurnDataStorage:
        """Reads and stores the parts of sessions that are outside their entities."""
        return self.runner.storage

    def operations(self) -> dict[str, Operation]:
        """Return the table of operations, by name."""
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
        """Run one operation.

        Raises:
            RequestError: there is no such operation, or the entity's key is not usable as a session id.
            StateError: the session cannot be read; ``admit`` returns it as an answer instead.
        """
        name = context.operation_name
        if name == CHECK_OPERATION:
            return
        check_session_id(str(context.entity_key))
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
        if session.erasing and name != "admit":
            raise TurnRejectedError("the session is being erased: try again in a moment, in a session that is new")
        changed_session, result = operation(session, payload, context)
        if changed_session is not session:
            self.save(
                context,
                replace(changed_session, used_at=self._window().now) if changed_session.owner else changed_session,
            )
        context.set_result(result)

    def _put_document(self, payload: Any, context: DurableEntityContext) -> None:
        """Replace the document that the caller has seen, even a malformed one."""
        state: Any = context.get_state(lambda: None)
        if document_digest(state) != payload["instead_of"]:
            raise TurnRejectedError("the session has changed since the caller read it: read it again")
        raise_if_busy(state)
        context.set_result({"status": "written"})
        if payload["document"] is None:
            context.destruct_on_exit()
        else:
            context.set_state(payload["document"])

    def _bound(self, session: Session, owner: Owner | None) -> Session | None:
        return bind_session(session, owner) if self.has_owners else session

    def _admit(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        check_turn_named(payload)
        if (owned_session := self._bound(session, decode_owner(payload.get("owner")))) is None:
            return session, {"status": "foreign", "running": None}
        changed_session, admission = decide_admission(
            owned_session,
            payload["turn_id"],
            payload["policy"],
            max_queued_turns=self.settings.max_queued_turns,
            window=self._window(),
            request_hash=payload.get("request_hash") or "",
            resumes=payload.get("resumes") is True,
        )
        if admission.status in {"rejected", "full"}:
            changed_session = record_rejected(changed_session, payload["turn_id"])
        result: dict[str, Any] = {"status": admission.status, "running": admission.running}
        if admission.status == "granted" and self.runner.tracks_budget:
            result["counts"] = True
        if admission.status == "granted" and self.reports:
            result["reports"] = True
        if admission.status == "granted" and admission.receipt is not None:
            result["resumes"] = admission.receipt.ended_at
        if admission.status == "queued":
            result |= _next(changed_session, changed_session.queue[0])
            result |= {"interrupts": admission.interrupts, "dropped": admission.cancelled_turn_id}
        return changed_session, result

    def _commit(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        outcome = decode_turn_outcome(payload)
        window = self._window()
        changed_session, following = commit_outcome(session, outcome, window=window)
        return changed_session, _next(changed_session, following) | {
            "message_count": changed_session.message_count,
            "ended_at": window.now,
        }

    def _leave(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        check_turn_named(payload)
        is_cancelled = payload.get("cancelled") is True
        usage = decode_budget_usage(payload.get("budget_usage"))
        changed_session, following = leave_session(
            session, payload["turn_id"], window=self._window(), is_cancelled=is_cancelled, usage=usage
        )
        return changed_session, _next(changed_session, following)

    def _reset(self, session: Session, *_: Any) -> tuple[Session, Any]:
        self.runner.history.reject_unsupported(self.runner.name, "reset")
        return reset_session(session), {"status": "reset"}

    def _run(self, session: Session, payload: Any, context: DurableEntityContext) -> tuple[Session, Any]:
        self.runner.history.reject_unsupported(self.runner.name, "run")
        request = read_run_request(self.runner.name, str(context.entity_key), payload)
        if (bound := self._bound(session, request.session_owner)) is None:
            raise unknown_session(request.agent, request.session_id)
        session = bound
        receipt = session.receipt_of(request.turn_id)
        if receipt is None and _may_have_ended(session, request.turn_id):
            stored_turn = self._turn_of(session, request)
            if _response_in(stored_turn):
                return session, _response_dict(request.turn_id, stored_turn)
        if receipt is None and session.running is not None:
            return self._run_later(session, request, context)
        if receipt is None:
            submit(self.storage.owned.record_turn_owner(request.agent, request.session_id, session)).result()
            outcome = submit(self.runner.run(session, request)).result()
            if outcome.status == "suspended":
                failure = Failed(TurnError(_CANNOT_WAIT))
                outcome = submit(self.runner.run(session, request, collects=failure)).result()
            if (report := report_without_orchestration(request, outcome)) is not None:
                self.runner.notify_end(report)
            session, _ = commit_outcome(session, outcome, window=self._window())
            self.save(context, session)
            receipt = session.receipts[-1]
        elif not is_same_request(receipt.request_hash, request.request_hash):
            raise IdempotencyKeyReusedError(
                f"correlationId {request.turn_id!r} was used for another request: send the same request again, "
                "or another correlationId"
            )
        if receipt.error is not None:
            raise rebuild_error(receipt.error)
        return session, _response_dict(request.turn_id, self._turn_of(session, request))

    def _turn_of(self, session: Session, request: TurnRequest) -> TurnRecord:
        return submit(
            self.storage.record(session, SessionKey(request.agent, request.session_id)).turn(request.turn_id)
        ).result()

    def _run_later(self, session: Session, request: TurnRequest, context: DurableEntityContext) -> tuple[Session, Any]:
        """Queue a signal behind the running turn; refuse a call, whose caller waits for the answer now."""
        if is_signal(context):
            changed_session, is_queued = queue_request(
                session,
                request.turn_id,
                submit(self.storage.keep_request(request)).result(),
                max_queued_turns=self.settings.max_queued_turns,
            )
            if is_queued:
                return changed_session, {"status": "queued", "turn_id": request.turn_id}
        raise TurnRejectedError(
            f"the session is busy with turn {session.running}: call it again when that has ended",
            running_turn_id=session.running,
        )

    def _window(self) -> ReceiptWindow:
        return ReceiptWindow(self.settings.max_receipts, datetime.now(UTC).isoformat())


def reject_foreign_signal(context: DurableEntityContext, secret: AppSecret) -> None:
    """Refuse a signal from outside for an operation that only this host uses.

    Turns call their operations, and only orchestrations of the app can call. The host's client can only signal, and
    marks what it sends.

    Raises:
        RequestError: it is such a signal; nothing was changed.
    """
    name = str(context.operation_name)
    if name in _OF_TURNS and is_signal(context):
        raise RequestError(f"the operation {name!r} is for turns of this host alone: run a turn, or signal 'run'")
    if name in _OF_CALLERS and is_signal(context) and _names_class(context):
        raise RequestError(f"the input of {name!r} names a class of Python: give its fields other names")
    purpose = signal_purpose(str(context.entity_name), str(context.entity_key), name)
    if name == PUT_OPERATION and not secret.has_mark(purpose, _input_of(context)):
        raise RequestError(f"the operation {name!r} is for this host alone: use its routes")


def _names_class(context: Any) -> bool:
    text = str(context._input)  # noqa: SLF001 - before the SDK reads it
    return names_python_class(text) or (text.startswith('"') and names_python_class(str(json.loads(text))))


def _next(session: Session, turn_id: str | None) -> dict[str, Any]:
    """Return the turn to wake, with its request when it has no orchestration yet."""
    request = session.requests.get(turn_id) if turn_id else None
    return {"next": turn_id} | ({"next_request": dict(request)} if request else {})


_CANNOT_WAIT: Final = (
    "a tool needs a person's approval, and a call of the entity cannot wait for one: run the turn over HTTP, or as the "
    "sub-orchestration 'agent_turn'"
)
"""A waiting entity would block its session for days."""


def _input_of(context: DurableEntityContext) -> Any:
    try:
        return context.get_input()
    except TypeError:  # the operation has no input
        return None


def _may_have_ended(session: Session, turn_id: str) -> bool:
    """Return whether to check the record for a turn whose receipt the head lacks."""
    in_head = any(entry.get("correlationId") == turn_id for entry in session.entries)
    return in_head or has_mark(session.sealed.seen, turn_id)


def _response_in(turn: TurnRecord) -> Mapping[str, Any] | None:
    return next((entry for entry in turn.entries.values() if entry.get("$type") == "response"), None)


def _response_dict(turn_id: str, turn: TurnRecord) -> dict[str, Any]:
    entry = _response_in(turn)
    if entry is None:
        raise TurnError(f"turn {turn_id} has ended, and its answer is no longer part of the session")
    return dump_value(decode_response(entry).to_dict(), "answer")
