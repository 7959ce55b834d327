"""Who may run: turns of one session run one after the other, and each runs once.

The entity of the session calls these functions; their result is the entity's next state. A turn is granted, waits in
the queue, or is sent away; a turn that has a receipt has ended and never runs again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from durable_agent_host.errors import TurnRejectedError
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import Policy, TurnOutcome

_HASH_CHARACTERS: Final = 32
"""Of a SHA-256 in hexadecimal digits, how many a receipt keeps: 128 bits tell any two requests apart."""

AdmissionStatus = Literal["granted", "queued", "ended", "rejected", "full"]


@dataclass(frozen=True)
class Admission:
    """The answer to a turn that wants to run.

    Attributes:
        status: ``granted`` it holds the session; ``queued`` it will be woken; ``ended`` it has run before;
            ``rejected`` the session is busy; ``full`` the queue is.
        receipt: of the ended turn.
        running: the turn that holds the session.
    """

    status: AdmissionStatus
    receipt: Receipt | None = None
    running: str | None = None


def decide_admission(
    session: Session, turn_id: str, policy: Policy, *, max_queued_turns: int
) -> tuple[Session, Admission]:
    """Decide whether a turn may run now.

    Guarantee: pure; asking again for the same turn changes nothing and gives the same answer.

    Args:
        session: as it is.
        turn_id: the turn that asks.
        policy: ``queue`` waits while another turn runs, ``reject`` does not.
        max_queued_turns: how many turns may wait.

    Returns:
        The session as it is to be stored, and the answer.
    """
    if receipt := session.receipt_of(turn_id):
        return session, Admission("ended", receipt=receipt)
    if session.running == turn_id:
        return session, Admission("granted", running=turn_id)
    if session.running is None and session.queue[:1] in ((), (turn_id,)):
        return replace(session, running=turn_id, queue=session.queue[1:]), Admission("granted", running=turn_id)
    if turn_id in session.queue:
        return session, Admission("queued", running=session.running)
    if policy == "reject":
        return session, Admission("rejected", running=session.running)
    if len(session.queue) >= max_queued_turns:
        return session, Admission("full", running=session.running)
    return replace(session, queue=(*session.queue, turn_id)), Admission("queued", running=session.running)


def commit_outcome(session: Session, outcome: TurnOutcome, *, max_receipts: int) -> tuple[Session, str | None]:
    """Make a turn's end part of the session: the one step by which a conversation grows.

    Guarantee: pure; idempotent by the turn's id. A turn without an answer leaves the conversation as it was.

    Args:
        session: as it is.
        outcome: how the turn ended.
        max_receipts: how many receipts are kept; the oldest go first.

    Returns:
        The session as it is to be stored, and the turn that is to be woken, or None.

    Raises:
        TurnRejectedError: another turn holds the session.
    """
    waiting = session.queue[0] if session.queue else None
    if session.receipt_of(outcome.turn_id):
        return session, waiting if session.running is None else None
    if session.running not in (None, outcome.turn_id):
        raise TurnRejectedError(
            f"turn {outcome.turn_id} does not hold the session, turn {session.running} does",
            running_turn_id=session.running,
        )
    receipt = Receipt(
        turn_id=outcome.turn_id,
        status=outcome.status,
        ended_at=outcome.ended_at,
        request_hash=outcome.request_hash[:_HASH_CHARACTERS],
        error=outcome.error,
        stats=outcome.stats,
    )
    session = replace(session, running=None).with_receipt(receipt, keep=max_receipts)
    if outcome.status == "completed":
        session = replace(session, entries=session.entries + outcome.entries, agent_session=outcome.agent_session)
    return session, waiting


def leave_session(session: Session, turn_id: str, *, max_receipts: int) -> tuple[Session, str | None]:
    """Take a turn whose orchestration is gone out of the session, where it waits or runs.

    A turn that ran gets a receipt, so that a commit of it that comes late changes nothing.

    Guarantee: pure; idempotent.

    Args:
        session: as it is.
        turn_id: the turn whose orchestration is gone.
        max_receipts: how many receipts are kept.

    Returns:
        The session as it is to be stored, and the turn that is to be woken instead, or None.
    """
    if session.running == turn_id:
        error = {"type": "TurnError", "message": "the turn was ended from outside before it had an answer"}
        session, following = commit_outcome(
            session, TurnOutcome(turn_id, "failed", error=error), max_receipts=max_receipts
        )
        return session, following
    queue = tuple(waiting for waiting in session.queue if waiting != turn_id)
    return replace(session, queue=queue), queue[0] if queue and session.running is None else None


def reset_session(session: Session) -> Session:
    """Clear the conversation; receipts stay, so that a retry of an earlier turn still is no second turn.

    Guarantee: pure.

    Args:
        session: as it is.

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
    return replace(session, entries=(), agent_session=None)


def response_of(session: Session, turn_id: str) -> Mapping[str, Any] | None:
    """Find the stored response of a turn.

    Guarantee: pure.

    Args:
        session: where to look.
        turn_id: the turn, which is the entry's correlation id.

    Returns:
        The response entry as it is stored, or None when the turn left none.
    """
    for entry in reversed(session.entries):
        if entry.get("correlationId") == turn_id and entry.get("$type") == "response":
            return entry
    return None
