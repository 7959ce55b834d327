"""What all services share, and one request in progress: its entry in the log, from arrival to the last byte."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request

from practice_model.dialects.responses.ids import IdMint
from practice_model.dialects.responses.items import Json
from practice_model.json_text import JsonAnswer
from practice_model.play.plans import Plan
from practice_model.request_log import RequestLog


@dataclass(frozen=True)
class Shared:
    """What all services of one practice model share.

    Attributes:
        mint: generates ids.
        plans: posted by tests; each service's player takes its steps from them.
        request_log: of all services.
        recordings_folder: of recorded traffic, with a subfolder for each provider; None to play none.
        is_strict: whether rules that are only inferred are enforced, too.
    """

    mint: IdMint
    plans: list[Plan]
    request_log: RequestLog
    recordings_folder: Path | None
    is_strict: bool


@dataclass
class Exchange:
    """One request in progress.

    Attributes:
        body: of the request, parsed; None when it is not JSON.
        response_id: of the answer, set by the service.
        output: final items of the answer, set by the service.
    """

    request_log: RequestLog
    entry: Json
    began: float
    body: Any
    response_id: str | None = None
    output: list[Json] | None = None

    @classmethod
    async def begin(cls, request: Request, request_log: RequestLog) -> "Exchange":
        """Read a request and record it."""
        began = time.perf_counter()
        try:
            body: Any = await request.json()
        except ValueError:
            body = None
        entry = request_log.open(
            at=datetime.now(UTC).isoformat(),
            method=request.method,
            path=request.url.path,
            headers=dict(request.headers),
            body=body,
        )
        return cls(request_log, entry, began, body)

    def refuse(self, status: int, body: Json, retry_after: float | None = None) -> JsonAnswer:
        """Answer with an error.

        Args:
            status: of HTTP.
            body: in the form of the service; its ``error`` is logged.
            retry_after: seconds, for the header.
        """
        self._close("refused", status=status, error=body.get("error", body))
        return error_answer(status, body, retry_after)

    def answer(self, body: Any, headers: Mapping[str, str] | None = None) -> JsonAnswer:
        """Answer with JSON."""
        self.ended("complete", 0, ())
        return JsonAnswer(body, headers=headers)

    def ended(self, how: str, events: int, sent_at: Sequence[float]) -> None:
        """Note the end of the answer; `EventStream` calls it."""
        seen: dict[str, Any] = {"events": events} | ({"sent_at": list(sent_at)} if sent_at else {})
        self._close(how, status=200, response_id=self.response_id, output=self.output, **seen)

    def _close(self, how: str, **seen: Any) -> None:
        spent = (time.perf_counter() - self.began) * 1000
        self.request_log.close(self.entry, ended=how, milliseconds=spent, **seen)


def error_answer(status: int, body: Json, retry_after: float | None = None) -> JsonAnswer:
    """Make the response of an error.

    Args:
        status: of HTTP.
        body: in the form of the service.
        retry_after: seconds, for the header.
    """
    return JsonAnswer(body, status, {} if retry_after is None else {"retry-after": f"{retry_after:g}"})
