"""The size limit of request bodies, on every route."""

from collections.abc import Mapping
from http import HTTPStatus

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions_host.errors import StartupError
from functions_host.web.problems import problem

BODY_LIMIT_SETTING = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"
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
        declared_length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
        if declared_length.isdigit() and (len(declared_length) > 20 or int(declared_length) > self._max_bytes):  # noqa: PLR2004 - 64 bits
            await self._reject(scope, receive, send)
            return
        size = 0
        has_response = False
        is_rejected = False

        async def count() -> Message:
            nonlocal size, has_response, is_rejected
            message = await receive()
            size += len(message.get("body", b""))
            if size <= self._max_bytes:
                return message
            if not is_rejected:
                is_rejected = True
                if not has_response:
                    await self._reject(scope, receive, send)
            return {"type": "http.disconnect"}

        async def answer(message: Message) -> None:
            nonlocal has_response
            if not is_rejected:
                has_response = True
                await send(message)

        await self._app(scope, count, answer)

    async def _reject(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = problem(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            f"The body is over {self._max_bytes} bytes; send less, or raise the app setting {BODY_LIMIT_SETTING}.",
        )
        await refusal(scope, receive, send)
