"""Checks by the order of a log's records that none is missing and none is out of place. Pure.

Offsets have no gaps, attempts only grow, and each begins once. A store that has lost records, or had some removed, does
not report it; a recovery that trusted it would repeat finished work.
"""

from collections.abc import Iterable

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.log_entry import ATTEMPT, LogRecord


def check_order(log_id: str, records: Iterable[LogRecord], *, after: LogRecord | None = None) -> LogRecord | None:
    """Check that records of a log follow each other. Guarantee: pure.

    Args:
        log_id: the log.
        records: in the order of their offsets.
        after: the record before them; None when unknown.

    Returns:
        The last record; ``after`` when there are none.

    Raises:
        CorruptStateError: one is missing, or out of place.
    """
    for record in records:
        if after is not None:
            if record.offset != after.offset + 1:
                raise missing_entries(log_id, after.offset + 1)
            begins_again = record.entry.kind == ATTEMPT and record.attempt == after.attempt
            if record.attempt < after.attempt or begins_again:
                raise CorruptStateError(
                    f"entry {record.offset} of the turn log {log_id} has been changed, or was moved there from another "
                    "place: restore a copy; nothing was changed"
                )
        after = record
    return after


def missing_entries(log_id: str, offset: int) -> CorruptStateError:
    """Make the error for a log that has lost entries. Guarantee: pure.

    Args:
        log_id: the log.
        offset: of the first missing one.
    """
    return CorruptStateError(
        f"the turn log {log_id} has lost entries from {offset} on: restore a copy; nothing was changed"
    )
