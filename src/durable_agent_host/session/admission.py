"""Admission: turns of one session run one after the other, and each runs once.

The session's entity calls these functions; their result is the entity's next state. A turn is granted, queued or
rejected; a turn with a receipt has ended and never runs again.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.errors import StateError, TurnRejectedError
from durable_agent_host.model.budget import NO_USAGE, BudgetUsage
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import Policy, TurnOutcome
from durable_agent_host.session.receipts import is_same_request, short_hash
from durable_agent_host.session.sealing import apply_sealing, clear_segments, receipt_of_outcome

GO_ON: Final = "what this turn did is part of the conversation, so a new message can go on from it"
"""What a client can do about a failed turn that cannot resume."""


def is_erasing(state: Any) -> bool:
    """Return whether a session is being erased."""
    with suppress(StateError):
        return bool(decode_session(state).erasing)
    return False


def raise_if_busy(state: Any) -> None:
    """Refuse to overwrite a session in which a turn runs or waits.

    Raises:
        TurnRejectedError: a turn runs or waits.
    """
    try:
        session = decode_session(state)
    except StateError:
        return  # no turn can be admitted to an unreadable session
    if holder := session.running or next(iter(session.queue), None):
        raise TurnRejectedError(
            f"turn {holder} of the session is running or waits: cancel it, or try again when it has ended",
            running_turn_id=holder,
        )


MAX_REJECTED_TURNS: Final = 64
"""How many refused turns a session remembers; the records of the others expire with their retention."""

AdmissionStatus = Literal["granted", "queued", "ended", "reused", "rejected", "full", "erasing"]


@dataclass(frozen=True)
class ReceiptWindow:
    """Which receipts a session keeps.

    Attributes:
        keep: how many; the oldest go first.
        now: UTC, ISO-8601; the end of a turn that does not carry its own.
    """

    keep: int
    now: str = ""


@dataclass(frozen=True)
class Admission:
    """The answer to a turn that asks to run.

    Attributes:
        status: ``granted`` it holds the session, and resumes if it has a receipt; ``queued`` it will be woken;
            ``ended`` it has run before; ``reused`` a turn with its id has run before, for another request; ``rejected``
            the session is busy; ``full`` the queue is; ``erasing`` the session is being erased.
        receipt: of the ended turn, or of the end from which a turn resumes.
        running: the turn that holds the session.
        interrupts: the running turn must be cancelled for this one.
        cancelled_turn_id: a turn that waited to interrupt, and was cancelled because this one interrupts.
    """

    status: AdmissionStatus
    receipt: Receipt | None = None
    running: str | None = None
    interrupts: bool = False
    cancelled_turn_id: str | None = None


def decide_admission(
    session: Session,
    turn_id: str,
    policy: Policy,
    *,
    max_queued_turns: int,
    window: ReceiptWindow,
    request_hash: str,
    resumes: bool,
) -> tuple[Session, Admission]:
    """Decide whether a turn may run now.

    A turn that has failed resumes if its failure is transient, or if somebody has it resumed. A steering turn waits
    like any other; the running turn's commit ends it if its agent has got the message.

    An interrupting turn goes before those that wait, because its message is about the running turn. Of several
    interrupting turns the last one wins: one that still waits to interrupt is cancelled without running.

    Returns:
        The session to store, and the answer.
    """
    if session.erasing:
        return session, Admission("erasing")
    receipt = session.receipt_of(turn_id)
    if session.running == turn_id:
        return session, Admission("granted", receipt=receipt, running=turn_id)
    if receipt is not None:
        return _admit_again(session, receipt, request_hash, resumes=resumes)
    if session.running is None and session.queue[:1] in ((), (turn_id,)):
        return _grant(session, turn_id), Admission("granted", running=turn_id)
    if turn_id in session.queue:
        interrupts = session.interrupting == turn_id
        return session, Admission("queued", running=session.running, interrupts=interrupts)
    if policy == "reject":
        return session, Admission("rejected", running=session.running)
    if policy == "interrupt":
        return _interrupt(session, turn_id, max_queued_turns, window)
    if len(session.queue) >= max_queued_turns:
        return session, Admission("full", running=session.running)
    return replace(session, queue=(*session.queue, turn_id)), Admission("queued", running=session.running)


def _admit_again(session: Session, receipt: Receipt, request_hash: str, *, resumes: bool) -> tuple[Session, Admission]:
    if not is_same_request(receipt.request_hash, request_hash):
        return session, Admission("reused", receipt=receipt)
    turn_id = receipt.turn_id
    if (resumes or is_retryable(receipt.error)) and find_resume_obstacle(session, turn_id) is None:
        return _grant(session, turn_id), Admission("granted", receipt=receipt, running=turn_id)
    return session, Admission("ended", receipt=receipt)


def is_retryable(error: Mapping[str, Any] | None) -> bool:
    """Return whether the reason of a turn's failure may be gone later."""
    return error is not None and error.get("retryable") is True


def find_resume_obstacle(session: Session, turn_id: str) -> str | None:
    """Return why an ended turn cannot resume, or None if the session allows it."""
    receipt = session.receipt_of(turn_id)
    if receipt is None or receipt.status != "failed":
        return "the turn has not failed, so there is nothing to resume"
    if receipt.joined_turn_id:
        return f"the message of the turn is part of turn {receipt.joined_turn_id}: resume that turn"
    own_receipts = [receipt for receipt in session.receipts if receipt.joined_turn_id != turn_id]
    if session.running or session.queue or own_receipts[-1].turn_id != turn_id:
        return f"a later turn of the session has begun: {GO_ON}"
    return None


def withdraw_receipt(session: Session, turn_id: str, *, with_entries: bool) -> Session:
    """Take the failed end of a turn back, for its next one.

    Args:
        session: with the receipt of the turn or without.
        turn_id: of the turn.
        with_entries: whether the head's entries of the turn and its spending are replaced, too.
    """
    receipt = session.receipt_of(turn_id)
    if receipt is None:
        return session
    session = replace(session, receipts=tuple(other for other in session.receipts if other is not receipt))
    if not with_entries:
        return session
    if session.budget_usage is not None and receipt.budget_usage is not None:
        session = replace(session, budget_usage=session.budget_usage.minus(receipt.budget_usage))
    return replace(session, entries=tuple(entry for entry in session.entries if entry.get("correlationId") != turn_id))


def _interrupt(
    session: Session, turn_id: str, max_queued_turns: int, window: ReceiptWindow
) -> tuple[Session, Admission]:
    """Put a turn first in the queue, replacing one that waits to interrupt; grant it when no turn runs."""
    cancelled_turn_id = session.interrupting
    if session.running is not None and len(session.queue) - bool(cancelled_turn_id) >= max_queued_turns:
        return session, Admission("full", running=session.running)
    if cancelled_turn_id:
        session = _cancel_in_queue(session, cancelled_turn_id, f"turn {turn_id} interrupted after it", window)
    if session.running is None:
        return _grant(session, turn_id), Admission("granted", running=turn_id, cancelled_turn_id=cancelled_turn_id)
    session = replace(session, queue=(turn_id, *session.queue), interrupting=turn_id)
    return session, Admission("queued", running=session.running, interrupts=True, cancelled_turn_id=cancelled_turn_id)


def queue_request(
    session: Session, turn_id: str, request: Mapping[str, Any], *, max_queued_turns: int
) -> tuple[Session, bool]:
    """Queue a turn without an orchestration: it came as a signal, whose sender waits for no answer.

    Returns:
        The session to store, and whether there was room.
    """
    if turn_id in (session.running, *session.queue) or session.receipt_of(turn_id):
        return session, True
    if len(session.queue) >= max_queued_turns:
        return session, False
    return replace(session, queue=(*session.queue, turn_id), requests={**session.requests, turn_id: request}), True


def record_rejected(session: Session, turn_id: str) -> Session:
    """Remember a rejected turn, so that its orchestration is deleted with the session."""
    if turn_id in session.rejected_turn_ids:
        return session
    return replace(session, rejected_turn_ids=(*session.rejected_turn_ids, turn_id)[-MAX_REJECTED_TURNS:])


def commit_outcome(session: Session, outcome: TurnOutcome, *, window: ReceiptWindow) -> tuple[Session, str | None]:
    """Add a turn's end to the session: the only step by which a conversation grows.

    The end of a resumed turn replaces that of its failure, unless it adds nothing.

    Returns:
        The session to store, and the turn to wake, or None.

    Raises:
        TurnRejectedError: another turn holds the session.
        CorruptStateError: the outcome seals entries that the session does not hold.
    """
    earlier_receipt = session.receipt_of(outcome.turn_id)
    if outcome.status == "rejected" or (earlier_receipt is not None and session.running != outcome.turn_id):
        session = replace(session, running=None) if session.running == outcome.turn_id else session
        return session, _first(session) if session.running is None else None
    if session.running not in (None, outcome.turn_id):
        raise TurnRejectedError(
            f"turn {outcome.turn_id} does not hold the session, turn {session.running} does",
            running_turn_id=session.running,
        )
    if earlier_receipt is not None:
        session = withdraw_receipt(session, outcome.turn_id, with_entries=outcome.adds_entries)
    if outcome.sealing is not None:
        session = apply_sealing(session, outcome.sealing)
    receipt = receipt_of_outcome(outcome, ended_at=window.now)
    if earlier_receipt is not None or outcome.budget_usage is not None:
        session, receipt = _count(session, outcome, receipt, earlier_receipt)
    session = _with_receipt(replace(session, running=None), receipt, window)
    session = _end_joined_turns(session, outcome, receipt, window)
    if outcome.overlay is not None:
        session = replace(session, overlay=outcome.overlay or None)
    if outcome.status == "completed":
        session = replace(session, entries=session.entries + outcome.entries, agent_session=outcome.agent_session)
    elif outcome.adds_entries:
        agent_session = session.agent_session if outcome.agent_session is None else outcome.agent_session
        if session.sealed.agent_session:
            agent_session = None
        session = replace(session, entries=session.entries + outcome.entries, agent_session=agent_session)
    return session, _first(session)


def _count(
    session: Session, outcome: TurnOutcome, receipt: Receipt, earlier_receipt: Receipt | None
) -> tuple[Session, Receipt]:
    """Add what a turn has used to the session; a resumed turn that adds nothing has the figures of its failure."""
    if earlier_receipt is not None and not outcome.adds_entries:
        return session, replace(
            receipt, has_entries=earlier_receipt.has_entries, budget_usage=earlier_receipt.budget_usage
        )
    if outcome.budget_usage is None:
        return session, receipt
    usage = (session.budget_usage or NO_USAGE).plus(outcome.budget_usage)
    return replace(session, budget_usage=usage), receipt


def _end_joined_turns(session: Session, outcome: TurnOutcome, receipt: Receipt, window: ReceiptWindow) -> Session:
    """End the queued turns whose messages the agent of another one has got, as that one has ended."""
    for turn_id, request_hash in outcome.steered_by.items():
        earlier_receipt = session.receipt_of(turn_id)
        has_joined = (
            earlier_receipt is not None and earlier_receipt.joined_turn_id == outcome.turn_id
        )  # before the turn has resumed
        if has_joined:
            session = withdraw_receipt(session, turn_id, with_entries=False)
        if turn_id in session.queue or has_joined:
            joined_receipt = Receipt(
                turn_id,
                receipt.status,
                ended_at=receipt.ended_at,
                request_hash=short_hash(request_hash),
                error=receipt.error,
                joined_turn_id=outcome.turn_id,
            )
            session = _with_receipt(_remove_from_queue(session, turn_id), joined_receipt, window)
    return session


def terminated_outcome(turn_id: str, usage: BudgetUsage | None) -> TurnOutcome:
    """Build the outcome of a turn whose orchestration is gone."""
    error = {"type": "TurnError", "message": "the turn was ended from outside before it had an answer"}
    return TurnOutcome(turn_id, "failed", error=error, budget_usage=usage)


def leave_session(
    session: Session,
    turn_id: str,
    *,
    window: ReceiptWindow,
    is_cancelled: bool,
    usage: BudgetUsage | None,
) -> tuple[Session, str | None]:
    """Remove a queued or running turn whose orchestration is gone, or which was cancelled.

    A turn that ran or was cancelled gets a receipt, so that a late commit of it changes nothing.

    Returns:
        The session to store, and the turn to wake instead, or None.
    """
    if session.running == turn_id:
        if is_cancelled:  # it was granted in between, and its agent is notified
            return session, None
        return commit_outcome(session, terminated_outcome(turn_id, usage), window=window)
    if is_cancelled and not session.receipt_of(turn_id):
        session = _cancel_in_queue(session, turn_id, "it was cancelled", window)
    else:
        session = _remove_from_queue(session, turn_id)
    return session, _first(session) if session.running is None else None


def _grant(session: Session, turn_id: str) -> Session:
    return replace(_remove_from_queue(session, turn_id), running=turn_id)


def _first(session: Session) -> str | None:
    return session.queue[0] if session.queue else None


def _remove_from_queue(session: Session, turn_id: str) -> Session:
    if turn_id not in session.queue:
        return session
    return replace(
        session,
        queue=tuple(queued_turn_id for queued_turn_id in session.queue if queued_turn_id != turn_id),
        interrupting=None if session.interrupting == turn_id else session.interrupting,
        requests={
            queued_turn_id: request for queued_turn_id, request in session.requests.items() if queued_turn_id != turn_id
        },
    )


def _cancel_in_queue(session: Session, turn_id: str, reason: str, window: ReceiptWindow) -> Session:
    error = {"type": "TurnCancelledError", "message": f"the turn did not run: {reason} while it waited"}
    receipt = Receipt(turn_id, "cancelled", ended_at=window.now, error=error)
    return _with_receipt(_remove_from_queue(session, turn_id), receipt, window)


def _with_receipt(session: Session, receipt: Receipt, window: ReceiptWindow) -> Session:
    return session.with_receipt(receipt, keep=window.keep)


def reset_session(session: Session) -> Session:
    """Clear the conversation; receipts stay, so that a retry of an earlier turn is not a second turn.

    Returns:
        The session without entries and without the framework's session.

    Raises:
        TurnRejectedError: a turn is running, and its end would belong to a conversation that is gone.
    """
    if session.running is not None:
        raise TurnRejectedError(
            f"the session cannot be reset while turn {session.running} is running: wait for its end",
            running_turn_id=session.running,
        )
    return replace(session, entries=(), agent_session=None, overlay=None, sealed=clear_segments(session.sealed))
