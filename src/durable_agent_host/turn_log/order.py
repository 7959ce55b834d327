"""What the order of a log's records says of it: that none is missing and none was put in another's place. Pure.

Offsets have no gaps, attempts only grow, and each begins once. A store that has lost records, or from which somebody
has taken some, does not say so by itself; a recovery that believed it would run again what has run.
"""

from collections.abc import Iterable

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.log_entry import ATTEMPT, LogRecord


def check_order(log_id: str, records: Iterable[LogRecord], *, after: LogRecord | None = None) -> LogRecord | None:
    """Check that records of a log follow each other. Guarantee: pure.

    Args:
        log_id: which log.
        records: in the order of their offsets.
        after: the record before them; None when that is not known.

    Returns:
        The last record; ``after`` when there is none.

    Raises:
        CorruptStateError: one is missing, or stands where it cannot stand.
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
        log_id: which log.
        offset: of the first one that is missing.
    """
    return CorruptStateError(
        f"the turn log {log_id} has lost entries from {offset} on: restore a copy; nothing was changed"
    )
