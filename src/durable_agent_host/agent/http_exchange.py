"""Keeps the wire traffic of a turn's model calls in the turn's log.

Theory of operation. The copies of SDK clients (`durable_agent_host.providers.http_client_guards`)
report each request with a JSON body that they send, and the decompressed response; never headers.
The beginning of each body is stored as it was sent or received, without its credentials, compressed. A request is
written with the next write, or after a second, so that a call that never ends is visible; an answer is written before
the journal's entry of its call, in the same write.
"""

import asyncio
from collections.abc import Callable, Generator, Mapping
from contextlib import aclosing, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from durable_agent_host.agent.model_call import ModelCall, ModelStream, NextModelCall
from durable_agent_host.errors import LogError, log_reason
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.log_entry import MODEL_RECEIVED, MODEL_SENT, LogEntry
from durable_agent_host.redaction import mask_credentials, mask_secrets
from durable_agent_host.turn.model_call_reader import encode_body
from durable_agent_host.turn_log.writer import TurnLogWriter

_LAZY_SECONDS: Final = 1.0
"""How long a recorded exchange may wait for other entries of the log."""
_LONG_BYTES: Final = 64 * 1024
"""From this size on, compressing a body takes longer than crossing threads twice."""
_SECRET_BYTES: Final = 4 * 1024
"""How much is searched beyond the end of what is kept: a secret may be there only in part."""
_ENTRY_BYTES: Final = 256
_ERROR_STATUS: Final = 400


@dataclass
class HttpExchange:
    """One request, and its answer as it arrives.

    Attributes:
        name: unique in the turn.
        max_bytes: of the answer, how many are wanted.
        status: of the answer, or None.
        size: bytes of the answer so far.
        body: the beginning of the answer.
    """

    name: str
    max_bytes: int
    status: int | None = None
    size: int = 0
    body: bytearray = field(default_factory=bytearray)

    def record_status(self, status: int) -> None:
        self.status = status

    def record_chunk(self, chunk: bytes) -> None:
        """Record a fragment of the answer's body."""
        self.size += len(chunk)
        if len(self.body) < self.max_bytes:
            self.body += chunk[: self.max_bytes - len(self.body)]


class ExchangeRecorder:
    """Keeps the model calls of one attempt.

    Args:
        writer: of the attempt.
        max_bytes: of one request or one answer; 0 keeps nothing.
        attempt: its number, from 1.
    """

    def __init__(self, writer: TurnLogWriter, max_bytes: int, *, attempt: int) -> None:
        self._writer = writer
        self._max_bytes = max_bytes
        self._attempt = attempt
        self._count = 0
        self._call: Mapping[str, Any] | None = None
        self._open: list[HttpExchange] = []

    @property
    def is_enabled(self) -> bool:
        """Whether anything is kept."""
        return self._max_bytes > 0

    async def record_call(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Keep what is sent and received in a call; a layer of its chain."""
        with self._recording(call.path):
            async with aclosing(call_next(call)) as items:
                async for item in items:
                    yield item

    @contextmanager
    def _recording(self, path: CallPath) -> Generator[None]:
        before = self._call
        open_exchanges = self._open
        number = path.compaction_number
        self._call = {"position": path.position} | ({} if number is None else {"number": number})
        self._open = []
        error: BaseException | None = None
        try:
            yield
        except BaseException as raised_error:
            error = raised_error
            raise
        finally:
            with suppress(LogError):  # the next write reports it
                for exchange in self._open:
                    self._append_response(exchange, error)
            self._call = before
            self._open = open_exchanges

    async def record_request(self, method: str, url: str, body: bytes) -> HttpExchange | None:
        """Keep a request of the call that is made; what is sent besides calls is not kept.

        Args:
            method: HTTP method.
            url: with its query, which may contain a key.
            body: JSON; empty for none.

        Returns:
            The receiver of the answer; None when it is not wanted.
        """
        if self._call is None:
            return None
        parts = urlsplit(url)
        address = f"{parts.scheme}://{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}{parts.path}"
        exchange = HttpExchange(f"{self._attempt}.{self._count}", self._max_bytes + _SECRET_BYTES)
        self._count = self._count + 1
        open_exchanges = self._open
        request = {"name": exchange.name, "method": method, "url": address, "bytes": len(body)}
        data: dict[str, Any] = {**self._call, **request}
        if len(body) > _LONG_BYTES:
            data |= await asyncio.to_thread(self._encode, body, mask_credentials)
        elif body:
            data |= self._encode(body, mask_credentials)
        open_exchanges.append(exchange)
        size_bytes = len(data.get("body", "")) + _ENTRY_BYTES
        with suppress(LogError):
            self._writer.append_soon(LogEntry(MODEL_SENT, data), size_bytes=size_bytes, within_seconds=_LAZY_SECONDS)
        return exchange

    def _append_response(self, exchange: HttpExchange, error: BaseException | None) -> None:
        data: dict[str, Any] = {"name": exchange.name, "status": exchange.status, "bytes": exchange.size}
        if error is not None:
            data["error"] = mask_secrets(log_reason(error)) if isinstance(error, Exception) else "it was cut off"
        if exchange.size:
            has_failed = error is not None or (exchange.status or 0) >= _ERROR_STATUS
            data |= self._encode(exchange.body, _without_any if has_failed else mask_credentials)
        self._writer.append_soon(LogEntry(MODEL_RECEIVED, data), size_bytes=_ENTRY_BYTES, within_seconds=_LAZY_SECONDS)

    def _encode(self, body: bytes | bytearray, clean: Callable[[str], str]) -> dict[str, Any]:
        """Encode the beginning of a body, and say whether that is all of it."""
        text = clean(body[: self._max_bytes + _SECRET_BYTES].decode("utf-8", "replace")).encode("utf-8", "replace")
        wire: dict[str, Any] = {"body": encode_body(text[: self._max_bytes].decode("utf-8", "ignore"))}
        return wire if len(text) <= self._max_bytes else wire | {"is_cut": True}


def _without_any(text: str) -> str:
    """Remove all secrets: an error may quote the request."""
    return mask_credentials(mask_secrets(text))


EXCHANGES: Final = ContextVar[ExchangeRecorder | None]("durable_agent_exchanges", default=None)
"""Of the attempt that runs; None when nothing is kept."""


async def record_request(method: Any, url: Any, body: Any) -> HttpExchange | None:
    """Tell of a request, if anybody wants to know."""
    exchanges = EXCHANGES.get()
    if exchanges is None:
        return None
    if isinstance(body, str):
        body = body.encode()
    if body is not None and not isinstance(body, bytes):
        return None
    return await exchanges.record_request(str(method).upper(), str(url), body or b"")
