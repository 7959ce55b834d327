"""What all services share, and one request in progress: its entry in the log, from arrival to the last byte."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from starlette.requests import Request

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.ids import IdGenerator
from practice_model.dialects.responses.items import Json
from practice_model.json_text import JsonResponse
from practice_model.play.plans import Plan
from practice_model.request_log import RequestLog


def get_error_body(error: HttpError) -> Json:
    """Return the body of an error in OpenAI's format."""
    return error.body


@dataclass(frozen=True)
class SharedState:
    """What all services of one practice model share.

    Attributes:
        id_generator: generates ids.
        plans: posted by tests; each service's player takes its steps from them.
        request_log: requests of all services.
        recordings_folder: recorded traffic, with a subfolder for each provider; None if there is none.
    """

    id_generator: IdGenerator
    plans: list[Plan]
    request_log: RequestLog
    recordings_folder: Path | None


@dataclass
class Exchange:
    """One request in progress.

    Attributes:
        body: parsed body of the request; None if it is not JSON.
        response_id: id of the response, set by the service.
        output: final items of the response, set by the service.
        encode_error: encodes an error in the service's format.
    """

    request_log: RequestLog
    entry: Json
    start_time: float
    body: Any
    response_id: str | None = None
    output: list[Json] | None = None
    encode_error: Callable[[HttpError], Json] = get_error_body

    @classmethod
    async def start(
        cls, request: Request, request_log: RequestLog, encode_error: Callable[[HttpError], Json] = get_error_body
    ) -> "Exchange":
        """Read a request and record it."""
        start_time = time.perf_counter()
        try:
            body: Any = await request.json()
        except ValueError:
            body = None
        entry = request_log.open_entry(
            at=datetime.now(UTC).isoformat(),
            method=request.method,
            path=request.url.path,
            headers=dict(request.headers),
            body=body,
        )
        return cls(request_log, entry, start_time, body, encode_error=encode_error)

    def reject(self, error: HttpError) -> JsonResponse:
        """Respond with an error."""
        headers = {} if error.retry_after is None else {"retry-after": f"{error.retry_after:g}"}
        return self.fail(error.status, self.encode_error(error), headers)

    def fail(self, status: int, body: Json, headers: Mapping[str, str] | None = None) -> JsonResponse:
        """Respond with the body of an error."""
        self._close_entry("refused", status=status, error=body.get("error", body))
        return JsonResponse(body, status, headers)

    def respond(self, body: Any, headers: Mapping[str, str] | None = None) -> JsonResponse:
        """Respond with JSON."""
        self.record_end("complete", 0, ())
        return JsonResponse(body, headers=headers)

    def record_end(self, outcome: str, event_count: int, sent_at: Sequence[float]) -> None:
        """Record the end of the response; `EventStream` calls it."""
        details: dict[str, Any] = {"events": event_count} | ({"sent_at": list(sent_at)} if sent_at else {})
        self._close_entry(outcome, status=200, response_id=self.response_id, output=self.output, **details)

    def _close_entry(self, outcome: str, **details: Any) -> None:
        elapsed_milliseconds = (time.perf_counter() - self.start_time) * 1000
        self.request_log.close_entry(self.entry, outcome=outcome, milliseconds=elapsed_milliseconds, **details)
