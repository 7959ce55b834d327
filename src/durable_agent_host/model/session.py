"""A session: the state of one conversation's entity."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.segment_refs import NOTHING_SEALED, SegmentList
from durable_agent_host.model.turn import TurnStats, TurnStatus

WORKFLOW_STATE: Final = "durable_agent_host.workflow"
"""Key in the state of the framework's session: the state of an agent's workflow between the session's turns."""


def without_workflow_state(agent_session: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Remove a workflow's state, so that its next run continues from the transcript.

    Args:
        agent_session: the framework's session, serialized, or None.

    Returns:
        The same, or a copy when something was removed.
    """
    state: Any = agent_session.get("state") if agent_session is not None else None
    if agent_session is None or not isinstance(state, Mapping) or WORKFLOW_STATE not in state:
        return agent_session
    retained_state = {name: value for name, value in cast("Mapping[str, Any]", state).items() if name != WORKFLOW_STATE}
    return {**agent_session, "state": retained_state}


def without_overlay(session: "Session") -> "Session":
    """Discard what compaction decided, so that the next turn decides anew.

    Args:
        session: with an overlay or without.
    """
    return replace(session, overlay=None, sealed=replace(session.sealed, overlay=""))


@dataclass(frozen=True)
class Receipt:
    """The proof that a turn has ended, and how.

    Attributes:
        turn_id: the turn.
        status: how it ended.
        ended_at: UTC, ISO-8601.
        request_hash: of the request; empty for callers that gave none.
        error: ``type`` and ``message`` of a turn without an answer.
        stats: sizes and times of the turn; None for turns that did not run.
        budget_usage: the turn's spending; None when nothing counted it.
        joined_turn_id: the running turn that got this one's message; empty for other turns.
        has_entries: whether a failed turn has entries in the conversation.
        stored: as it was read, for unknown fields; None for a new one.
    """

    turn_id: str
    status: TurnStatus
    ended_at: str = ""
    request_hash: str = ""
    error: Mapping[str, Any] | None = None
    stats: TurnStats | None = None
    budget_usage: BudgetUsage | None = None
    joined_turn_id: str = ""
    has_entries: bool = False
    stored: Mapping[str, Any] | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Session:
    """The state of the entity, with the conversation in stored form.

    The entries stay JSON until a turn rehydrates them: admission and commit read none of them, so unknown parts of them
    survive exactly.

    Attributes:
        entries: the newest request and response entries in order, oldest first.
        sealed: the entries before those, in blobs outside the entity.
        agent_session: the framework's session, serialized, or None before the first turn.
        owner: of the session; None for a session that upstream began, and in an app that identifies nobody.
        running: the turn that holds the session, or None.
        queue: turns that wait, first come first served.
        interrupting: the first of the queue, when it has interrupted the running turn, or None.
        requests: by id, the requests of queued turns that came as a signal and have no orchestration yet.
        receipts: ended turns, oldest first, a bounded window.
        rejected_turn_ids: rejected turns, oldest first, a bounded window: their records are deleted with the session.
        overlay: what of the conversation is its context, as `durable_agent_host.codec.overlay` writes it; None when
            that is all of it. It can be thrown away and made again.
        budget_usage: by all turns that had a budget, those that failed included; None when there was none.
        erasing: since when it is being erased, UTC, ISO-8601; no turn is admitted then. Empty otherwise.
        used_at: when its entity last changed it, UTC, ISO-8601; empty for a session without an owner.
        app_state: the app's own data, JSON, for operations that a subclass of the entity adds; turns do not see it.
        schema_version: of the document it was read from.
        document: that document, for unknown fields.
    """

    entries: tuple[Mapping[str, Any], ...] = ()
    sealed: SegmentList = NOTHING_SEALED
    agent_session: Mapping[str, Any] | None = None
    owner: Owner | None = None
    running: str | None = None
    queue: tuple[str, ...] = ()
    interrupting: str | None = None
    requests: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    receipts: tuple[Receipt, ...] = ()
    rejected_turn_ids: tuple[str, ...] = ()
    overlay: Mapping[str, Any] | None = None
    budget_usage: BudgetUsage | None = None
    erasing: str = ""
    used_at: str = ""
    app_state: Mapping[str, Any] = field(default_factory=dict[str, Any])
    schema_version: str = "1.1.0"
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def message_count(self) -> int:
        """How many entries the conversation has."""
        return self.sealed.entries + len(self.entries)

    def receipt_of(self, turn_id: str) -> Receipt | None:
        """Return the receipt of a turn.

        Args:
            turn_id: which turn.

        Returns:
            Its receipt, or None when it has not ended or is no longer remembered.
        """
        return next((receipt for receipt in reversed(self.receipts) if receipt.turn_id == turn_id), None)

    def with_receipt(self, receipt: Receipt, *, keep: int) -> "Session":
        """Return the session with one more receipt.

        Args:
            receipt: the newest.
            keep: how many stay; the oldest are dropped first.

        Returns:
            A new session.
        """
        return replace(self, receipts=(*self.receipts, receipt)[-keep:])
