"""A session: what the entity of one conversation holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from durable_agent_host.model.turn import TurnStats, TurnStatus


@dataclass(frozen=True)
class Receipt:
    """The proof that a turn has ended, and how.

    Attributes:
        turn_id: which turn.
        status: how it ended.
        ended_at: UTC, ISO-8601.
        request_hash: of what was asked; empty for callers that gave none.
        error: ``type`` and ``message`` of a turn without an answer.
        stats: what the turn weighed; None for turns that did not run.
    """

    turn_id: str
    status: TurnStatus
    ended_at: str = ""
    request_hash: str = ""
    error: Mapping[str, Any] | None = None
    stats: TurnStats | None = None


@dataclass(frozen=True)
class Session:
    """What the entity holds, with the conversation as it is stored.

    The entries stay JSON until a turn rehydrates them: admission and commit read none of them, so what this program
    does not know in them survives to the letter.

    Attributes:
        entries: request and response entries in order, oldest first.
        agent_session: the framework's session as it serializes itself, or None before the first turn.
        running: the turn that holds the session, or None.
        queue: turns that wait, first come first served.
        receipts: ended turns, oldest first, a bounded window.
        schema_version: of the document it was read from.
        document: that document, for the fields that this program does not know.
    """

    entries: tuple[Mapping[str, Any], ...] = ()
    agent_session: Mapping[str, Any] | None = None
    running: str | None = None
    queue: tuple[str, ...] = ()
    receipts: tuple[Receipt, ...] = ()
    schema_version: str = "1.1.0"
    document: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def receipt_of(self, turn_id: str) -> Receipt | None:
        """Find the receipt of a turn. Guarantee: pure.

        Args:
            turn_id: which turn.

        Returns:
            Its receipt, or None when it has not ended or is no longer remembered.
        """
        return next((receipt for receipt in reversed(self.receipts) if receipt.turn_id == turn_id), None)
