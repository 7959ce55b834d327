"""The log of requests with responses and durations, read by tests and appended to a file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from practice_model.dialects.responses.items import Json

_SECRET_HEADERS = frozenset({"authorization", "api-key", "cookie"})


@dataclass
class RequestLog:
    """Requests in order of arrival; an entry is complete once its response has been sent.

    Args:
        file: receives complete entries as JSON lines; None for memory only.
    """

    file: Path | None = None
    entries: list[Json] = field(default_factory=list[Json])
    count: int = 0

    def open_entry(self, *, at: str, method: str, path: str, headers: Mapping[str, str], body: Any) -> Json:
        """Record a request; return its entry."""
        self.count += 1
        entry: Json = {
            "n": self.count,
            "at": at,
            "method": method,
            "path": path,
            "headers": {name: value for name, value in headers.items() if name.lower() not in _SECRET_HEADERS},
            "body": body,
            "status": None,
            "error": None,
            "response_id": None,
            "output": None,
            "events": None,
            "ended": None,
            "milliseconds_streaming": None,
        }
        self.entries.append(entry)
        return entry

    def close_entry(self, entry: Json, *, outcome: str, milliseconds: float, **details: Any) -> None:
        """Complete an entry."""
        entry.update(details, ended=outcome, milliseconds_streaming=round(milliseconds, 3))
        if self.file:
            with self.file.open("a") as file:
                file.write(json.dumps(entry) + "\n")
