"""The session's entity: load, one operation, save.

Operations of the turn orchestration (``admit``, ``commit``, ``leave``) read no message; ``run`` and ``reset`` are
upstream's, for orchestrations and workflows that call the entity directly.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from azure.durable_functions import DurableEntityContext
from azure.durable_functions.entity import Entity
from pydantic import BaseModel

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.agent.outcome_builder import error_raised_again, utc_now
from durable_agent_host.codec.content_fields import dump_value
from durable_agent_host.codec.entity_state import (
    decode_owner,
    decode_session,
    decode_spent,
    document_digest,
    encode_session,
)
from durable_agent_host.codec.message import decode_response
from durable_agent_host.codec.strict_json import names_python_class
from durable_agent_host.durable.app_secret import AppSecret, signal_place
from durable_agent_host.durable.session_documents import PUT_OPERATION, refuse_busy
from durable_agent_host.durable.store_health import CHECK_OPERATION
from durable_agent_host.errors import (
    IdempotencyKeyReusedError,
    RequestError,
    StateError,
    TurnError,
    TurnRejectedError,
)
from durable_agent_host.model.ids import MAX_WHOLE_ID_CHARACTERS, check_session_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.segments.conversation_reader import TurnRecord
from durable_agent_host.segments.turn_data_storage import Keeper, SessionName
from durable_agent_host.session.admission import (
    MAX_REFUSED,
    ReceiptWindow,
    commit_outcome,
    decide_admission,
    leave_session,
    note_refused,
    queue_request,
    reset_session,
)
from durable_agent_host.session.ownership import bind_session, known_as, unknown_session
from durable_agent_host.session.receipts import is_same_request
from durable_agent_host.session.sealing import has_mark
from durable_agent_host.settings import Settings
from durable_agent_host.turn.error_texts import error_details
from durable_agent_host.turn.timeline import timeline_without_orchestration
from durable_agent_host.turn.turn_requests import request_of_run
from durable_agent_host.turn.turn_wire import (
    check_figures,
    check_turn_named,
    check_turn_outcome,
    decode_turn_outcome,
    encode_turn_request,
)


def read_run_request(agent: str, session_id: str, payload: Any) -> TurnRequest:
    """Read the input of upstream's ``run`` operation.

    Guarantee: pure except for the clock; imports nothing that the input names.

    Args:
        agent: the agent's registered name.
        session_id: the entity's key.
        payload: upstream's ``RunRequest`` as a dictionary, or a message.

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


# Distinguishes signals from calls inside an entity's operation.
#
# The extension marks each operation as signal or call, and the SDK (azure-functions-durable 1.7) does not pass this
# on. A signal's sender waits for no answer, so a turn sent as a signal may wait where a call must be refused.

_ATTRIBUTE = "_durable_agent_host_is_signal"


def is_signal(context: DurableEntityContext) -> bool:
    """Return whether the current operation is a signal.

    Args:
        context: the entity's.

    Returns:
        False for a call, and when unknown.
    """
    return getattr(context, _ATTRIBUTE, False) is True


def entity_handle(operate: Callable[[DurableEntityContext], None]) -> Callable[[Any], str]:
    """Make the function that the worker calls for an entity, as the SDK's ``Entity.create`` does.

    Args:
        operate: runs one operation.

    Returns:
        The function, which lets operations know whether they are signals.
    """

    def handle(context: Any) -> str:
        known, batch = DurableEntityContext.from_json(getattr(context, "body", None) or context)
        signals = iter([operation.get("isSignal") is True for operation in batch])

        def operate_next(one: DurableEntityContext) -> None:
            setattr(one, _ATTRIBUTE, next(signals, False))
            operate(one)

        return Entity(operate_next).handle(known, batch)

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

    Attributes:
        has_owners: whether the app identifies its callers, so that a session belongs to the first caller who acts in
            it.
    """

    has_owners = False

    def __init__(self, runner: AgentRunner, settings: Settings) -> None:
        self.runner = runner
        self.settings = settings

    @property
    def keeper(self) -> Keeper:
        """Reads and stores the parts of sessions that are outside their entities."""
        return self.runner.keeper

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
        check_session_id(str(context.entity_key), most=MAX_WHOLE_ID_CHARACTERS)
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
        changed, result = operation(session, payload, context)
        if changed is not session:
            self.save(context, replace(changed, used_at=self._window().now) if changed.owner else changed)
        context.set_result(result)

    def _put_document(self, payload: Any, context: DurableEntityContext) -> None:
        """Replace the document that the caller has seen, even a malformed one."""
        state: Any = context.get_state(lambda: None)
        if document_digest(state) != payload["instead_of"]:
            raise TurnRejectedError("the session has changed since the caller read it: read it again")
        refuse_busy(state)
        context.set_result({"status": "written"})
        if payload["document"] is None:
            context.destruct_on_exit()
        else:
            context.set_state(payload["document"])

    def _bound(self, session: Session, owner: Owner | None) -> Session | None:
        return bind_session(session, owner) if self.has_owners else session

    def _admit(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        check_turn_named(payload)
        if (bound := self._bound(session, decode_owner(payload.get("owner")))) is None:
            return session, {"status": "foreign", "running": None}
        changed, admission = decide_admission(
            bound,
            payload["turn_id"],
            payload["policy"],
            max_queued_turns=self.settings.max_queued_turns,
            window=self._window(),
            request_hash=payload.get("request_hash") or "",
        )
        if admission.status in {"rejected", "full"}:
            changed = note_refused(changed, payload["turn_id"], keep=MAX_REFUSED)
        result: dict[str, Any] = {"status": admission.status, "running": admission.running}
        if admission.status == "granted" and self.runner.counts_spending:
            result["counts"] = True
        if admission.status == "queued":
            result |= _next(changed, changed.queue[0])
            result |= {"interrupts": admission.interrupts, "dropped": admission.dropped}
        return changed, result

    def _commit(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        check_turn_outcome(payload)
        window = self._window()
        changed, following = commit_outcome(session, decode_turn_outcome(payload), window=window)
        return changed, _next(changed, following) | {"message_count": changed.message_count, "ended_at": window.now}

    def _leave(self, session: Session, payload: Any, _: DurableEntityContext) -> tuple[Session, Any]:
        check_turn_named(payload)
        check_figures(payload)
        cancelled = payload.get("cancelled") is True
        spent = decode_spent(payload.get("spent"))
        changed, following = leave_session(
            session, payload["turn_id"], window=self._window(), cancelled=cancelled, spent=spent
        )
        return changed, _next(changed, following)

    def _reset(self, session: Session, payload: Any, context: DurableEntityContext) -> tuple[Session, Any]:
        del payload
        changed = reset_session(session)
        history = self.runner.history
        if history.where.owners:
            history.where.refuse(self.runner.name, "reset")
            kept = submit(self.keeper.record(session).agent_session()).result()
            submit(history.clear(known_as(str(context.entity_key), session.owner, kept))).result()
        return changed, {"status": "reset"}

    def _run(self, session: Session, payload: Any, context: DurableEntityContext) -> tuple[Session, Any]:
        request = read_run_request(self.runner.name, str(context.entity_key), payload)
        if (bound := self._bound(session, request.session_owner)) is None:
            raise unknown_session(request.agent, request.session_id)
        session = bound
        receipt = session.receipt_of(request.turn_id)
        if receipt is None and _may_have_ended(session, request.turn_id):
            known = self._turn_of(session, request)
            if _response_in(known):
                return session, _response_dict(request.turn_id, known)
        if receipt is None and session.running is not None:
            return self._run_later(session, request, context)
        if receipt is None:
            submit(self.keeper.owned.note_turn(request.agent, request.session_id, session)).result()
            outcome = submit(self.runner.run(session, request)).result()
            if (timeline := timeline_without_orchestration(request, outcome)) is not None:
                self.runner.tell_end(timeline)
            session, _ = commit_outcome(session, _without_suspension(outcome), window=self._window())
            self.save(context, session)
            receipt = session.receipts[-1]
        elif not is_same_request(receipt.request_hash, request.request_hash):
            raise IdempotencyKeyReusedError(
                f"correlationId {request.turn_id!r} was used for another request: "
                "send the same request again, or another correlationId"
            )
        if receipt.error is not None:
            raise error_raised_again(receipt.error)
        return session, _response_dict(request.turn_id, self._turn_of(session, request))

    def _turn_of(self, session: Session, request: TurnRequest) -> TurnRecord:
        return submit(
            self.keeper.record(session, SessionName(request.agent, request.session_id)).turn(request.turn_id)
        ).result()

    def _run_later(self, session: Session, request: TurnRequest, context: DurableEntityContext) -> tuple[Session, Any]:
        """Queue a signal behind the running turn; refuse a call, whose caller waits for the answer now."""
        if is_signal(context):
            changed, has_room = queue_request(
                session,
                request.turn_id,
                encode_turn_request(submit(self.keeper.keep_request(request)).result()),
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


def refuse_foreign_signal(context: DurableEntityContext, secret: AppSecret) -> None:
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
    place = signal_place(str(context.entity_name), str(context.entity_key), name)
    if name == PUT_OPERATION and not secret.has_mark(place, _input_of(context)):
        raise RequestError(f"the operation {name!r} is for this host alone: use its routes")


def _names_class(context: Any) -> bool:
    text = str(context._input)  # noqa: SLF001 - before the SDK reads it
    return names_python_class(text) or (text.startswith('"') and names_python_class(str(json.loads(text))))


def _next(session: Session, turn_id: str | None) -> dict[str, Any]:
    """Return the turn to wake, with its request when it has no orchestration yet."""
    request = session.requests.get(turn_id) if turn_id else None
    return {"next": turn_id} | ({"next_request": dict(request)} if request else {})


def _without_suspension(outcome: TurnOutcome) -> TurnOutcome:
    """Fail a turn that waits for a person: a waiting entity would block its session for days."""
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
