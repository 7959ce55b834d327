"""The size limit of request bodies, on every route."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions_host.errors import StartupError
from functions_host.web.problems import problem

BODY_LIMIT_SETTING = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"
DISCARDED_BYTES = 64 * 1024 * 1024
DEFAULT_BODY_BYTES = 210 * 1024 * 1024
"""Azure's limit. Source: "Service limits" of the Azure Functions documentation."""


def read_body_limit(environment: Mapping[str, str]) -> int:
    """Read the maximum body size in bytes, from the real host's app setting.

    Raises:
        StartupError: it is not a whole number above 0.
    """
    text = environment.get(BODY_LIMIT_SETTING, "").strip()
    if not text:
        return DEFAULT_BODY_BYTES
    if not (text.isascii() and text.isdecimal() and len(text) < 20 and int(text) > 0):  # noqa: PLR2004 - 64 bits
        raise StartupError(f"{BODY_LIMIT_SETTING} is {text!r}; set it to a number of bytes above 0, or leave it out.")
    return int(text)


class BodyLimit:
    """ASGI middleware that refuses larger bodies: by their declared length, else when they exceed the limit."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        exchange = _Exchange(scope, receive, send)
        declared_length = exchange.declared_length
        if declared_length.isdigit() and (len(declared_length) > 20 or int(declared_length) > self._max_bytes):  # noqa: PLR2004 - 64 bits
            await self._reject(scope, exchange)
            return
        size = 0
        has_response = False
        is_rejected = False

        async def count() -> Message:
            nonlocal size, is_rejected
            message = await exchange.receive()
            size += len(message.get("body", b""))
            if size <= self._max_bytes:
                return message
            if not is_rejected:
                is_rejected = True
                if not has_response:
                    await self._reject(scope, exchange)
            return {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal has_response
            if not is_rejected:
                has_response = True
                await exchange.send(message)

        await self._app(scope, count, answer)

    async def _reject(self, scope: Scope, exchange: "_Exchange") -> None:
        refusal = problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is over {self._max_bytes} bytes; send less, or raise the app setting {BODY_LIMIT_SETTING}.",
        )
        await refusal(scope, exchange.receive, exchange.send)


class _Exchange:
    """A request and its response, which ends when the client has sent its body: who is cut off loses the answer."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict[bytes, bytes](scope["headers"])
        self.declared_length = headers.get(b"content-length", b"0")
        self._is_sending = self.declared_length != b"0" or b"transfer-encoding" in headers
        self._receive = receive
        self._send = send

    async def receive(self) -> Message:
        """Receive a message."""
        message = await self._receive()
        self._is_sending = message.get("more_body", False)
        return message

    async def send(self, message: Message) -> None:
        """Send a message; before the end, discard what the client still sends, up to a limit."""
        if self._is_sending and message["type"] == "http.response.body" and not message.get("more_body"):
            await self._send({**message, "more_body": True})
            left_bytes = DISCARDED_BYTES
            while self._is_sending and left_bytes > 0:
                left_bytes -= len((await self.receive()).get("body", b""))
            message = {"type": "http.response.body"}
        await self._send(message)
