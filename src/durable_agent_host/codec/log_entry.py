"""Entries of the turn log to JSON and back.

The JSON is ASCII, so that a lone surrogate, which UTF-8 cannot represent, is stored as its escape and restored. The two
halves of an adjacent pair are restored as their character.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import with_nulls
from durable_agent_host.errors import CorruptStateError, LogError
from durable_agent_host.model.log_entry import AT, LogEntry

_KIND: Final = "kind"
_DATA: Final = "data"
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode_log_entry(entry: LogEntry) -> str:
    """Encode an entry as one line of JSON, ``{"kind": …, "data": {…}}``.

    Returns:
        The line, without its end.

    Raises:
        LogError: the data has a value that JSON cannot represent.
    """
    try:
        return encode_compact({_KIND: entry.kind, _DATA: entry.data})
    except (TypeError, ValueError, RecursionError) as error:
        raise LogError(
            f"an entry of kind {entry.kind!r} cannot be stored ({error}): give data that JSON can hold"
        ) from error


def encode_compact(data: Mapping[str, Any]) -> str:
    """Encode JSON without spaces, in ASCII, with null for numbers that are not finite.

    Raises:
        TypeError, ValueError, RecursionError: it has a value that JSON cannot represent.
    """
    try:
        return _ENCODER.encode(data)
    except ValueError:
        return _ENCODER.encode(with_nulls(data))


def decode_log_entry(line: str | bytes) -> LogEntry:
    """Decode an entry from the output of `encode_log_entry`.

    Returns:
        The entry; an unknown kind is kept as it is.

    Raises:
        CorruptStateError: it is something else.
    """
    try:
        read: Any = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise CorruptStateError(
            f"an entry of the turn log is damaged, and cannot be read ({error}): restore a copy; nothing was changed"
        ) from error
    if isinstance(read, dict):
        wire = cast("dict[str, Any]", read)
        kind = wire.get(_KIND)
        data = wire.get(_DATA)
        if isinstance(kind, str) and isinstance(data, dict):
            return LogEntry(kind, cast("dict[str, Any]", data))
    raise CorruptStateError(
        "an entry of the turn log is damaged: it is JSON, and no entry. Restore a copy; nothing was changed"
    )


def format_entry_time(data: Mapping[str, Any]) -> str | None:
    """Return when the writer received an entry, in ISO-8601 with milliseconds; None for one without a time."""
    milliseconds = data.get(AT)
    if milliseconds is None:
        return None
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds")
