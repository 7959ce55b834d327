"""Send hostile requests over persistent connections, and report the outcome."""

import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus

from tests.durable_agent_host.hostile_requests import RawRequest, exchange

ANSWER_SECONDS = 60
HANGS = -1
"""Instead of a status: a whole request had no answer in time."""

_FRAMING = {"content-length", "transfer-encoding", "expect", "connection"}


@dataclass
class Outcome:
    """What came of some requests.

    Attributes:
        statuses: how often each; 0 where no answer came, which only a request with broken framing may get.
        failures: requests that were answered with 500 or not at all, and the answers.
    """

    statuses: Counter[int] = field(default_factory=Counter[int])
    failures: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])

    def record(self, sent: RawRequest, status: int, response: bytes, *, is_complete: bool = False) -> None:
        """Note an answer."""
        self.statuses[status] += 1
        if status in {HTTPStatus.INTERNAL_SERVER_ERROR, HANGS} or (is_complete and not status):
            self.failures[sent.encode()[:2000]] = response[-600:]


def play(port: int, requests: list[RawRequest], at_once: int) -> Outcome:
    """Send requests over some connections.

    Args:
        port: of the host.
        requests: to send, in no order.
        at_once: connections.
    """
    total = Outcome()
    with ThreadPoolExecutor(at_once) as pool:
        for outcome in pool.map(lambda part: _play_part(port, part), (requests[at::at_once] for at in range(at_once))):
            total.statuses += outcome.statuses
            total.failures |= outcome.failures
    return total


def _play_part(port: int, requests: Iterable[RawRequest]) -> Outcome:
    outcome = Outcome()
    connection = _Connection(port)
    for sent in requests:
        names = {name for name, _ in sent.headers}
        if names & _FRAMING or sent.target.startswith("//") or b"\r" in sent.encode().partition(b"\r\n")[0]:
            outcome.record(sent, *exchange(port, sent))
        else:
            outcome.record(sent, *connection.exchange(sent), is_complete=True)
    connection.close()
    return outcome


class _Connection:
    """One connection, opened anew whenever the host has closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self._read = b""

    def exchange(self, sent: RawRequest) -> tuple[int, bytes]:
        """Send a request and read its whole answer; of a stream of events the head alone."""
        data = sent.encode().replace(b"\r\nConnection: close\r\n\r\n", b"\r\n\r\n", 1)
        for _ in range(2):  # a connection that was idle may have been closed
            is_new = self._socket is None
            connection = self._connect()
            with suppress(ConnectionError):
                connection.sendall(data)
                try:
                    head, response, is_over = self._read_response(sent.method)
                except TimeoutError:
                    self.close()
                    return HANGS, b"no answer"
                if head:
                    if is_over:
                        self.close()
                    return int(head.split(None, 2)[1]), head + response
            self.close()
            if is_new:
                break
        return exchange(self._port, sent)

    def close(self) -> None:
        """Close it."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._read = None, b""

    def _connect(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), timeout=ANSWER_SECONDS)
        return self._socket

    def _read_response(self, method: str) -> tuple[bytes, bytes, bool]:
        head = self._until(b"\r\n\r\n")
        fields = dict(_fields(head))
        is_over = fields.get(b"connection") == b"close"
        if not head or b"event-stream" in fields.get(b"content-type", b""):
            return head, b"", True
        if method == "HEAD" or head.split(None, 2)[1] in {b"204", b"304"}:
            return head, b"", is_over
        if b"content-length" in fields:
            return head, self._exactly(int(fields[b"content-length"])), is_over
        if fields.get(b"transfer-encoding") != b"chunked":
            return head, b"", True
        parts: list[bytes] = []
        while size := int(self._until(b"\r\n") or b"0", 16):
            parts.append(self._exactly(size + 2)[:-2])
        self._until(b"\r\n")
        return head, b"".join(parts), is_over

    def _until(self, mark: bytes) -> bytes:
        while mark not in self._read:
            if not self._more():
                return b""
        data, _, self._read = self._read.partition(mark)
        return data + mark

    def _exactly(self, size: int) -> bytes:
        while len(self._read) < size and self._more():
            pass
        data, self._read = self._read[:size], self._read[size:]
        return data

    def _more(self) -> bool:
        chunk = self._connect().recv(65536)
        self._read += chunk
        return bool(chunk)


def _fields(head: bytes) -> Iterator[tuple[bytes, bytes]]:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        yield name.strip().lower(), value.strip().lower()
