"""Guards on the connections of hosted clients: no retries by the SDK, no foreign redirects, answers of bounded size.

A hosted run gets copies of the SDK's client that share its connections; the app's chat client and its SDK client are
unchanged. Supported by their shape are the SDKs of OpenAI and Anthropic, which one generator builds on httpx, and
Google's, which uses aiohttp where that is installed. An httpx client held by a chat client of the app is limited in the
size of answers, too.

- **Redirects.** The conversation and the key are sent only to the origin that the app configured. A redirect within it,
  or from http to https on the same host, is followed; any other raises an error before anything is sent.
- **Size.** An answer is decompressed in small steps and counted (`durable_agent_host.agent.bounds`): a few kilobytes of
  gzip can hold gigabytes, and a line may never end. `bounded_sessions` does the same for aiohttp.
- **Long requests.** They are written in parts (`long_bodies`), so that they hold no other turn up.
"""

# ruff: noqa: SLF001 - SDKs have no public way to copy a client with other hooks

import asyncio
import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final, cast

from durable_agent_host.agent.bounds import AnswerMeter, received
from durable_agent_host.agent.exchanges import Exchange, sent
from durable_agent_host.agent.overriding import copy_with, overridden_class
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.bounded_sessions import EVENT_STREAM, BoundedSession
from durable_agent_host.providers.endings import is_whole
from durable_agent_host.providers.long_bodies import check_sent, encoded_body, is_long, sends_in_parts
from durable_agent_host.providers.open_answers import closed_at_the_end, note_answer, noted_answers
from durable_agent_host.providers.whole_characters import sends_whole_characters
from durable_agent_host.redaction import add_known_secrets

_SECRET_HEADER: Final = re.compile(r"authorization|key|token|secret|cookie", re.IGNORECASE)
_STEP_BYTES: Final = 256 * 1024
_TRAILER_BYTES: Final = 8
"""Of gzip: checksum and length."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def sdk_clients(client: Any, *, retries: bool = False) -> dict[str, Any]:
    """Copy the SDK's clients of a chat client with guards.

    Args:
        client: a chat client; unchanged.
        retries: whether the SDK retries failed requests, as the app has set it.

    Returns:
        The attributes to replace in a copy of the chat client; empty for clients of unknown SDKs.
    """
    found: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", vars(client)).items():
        if callable(getattr(value, "with_options", None)) and hasattr(value, "max_retries"):
            copied = value.with_options(max_retries=value.max_retries if retries else 0)
            if (http := getattr(copied, "_client", None)) is not None and hasattr(http, "event_hooks"):
                copied._client = _guarded(http)
            found[name] = sends_whole_characters(sends_in_parts(copied))
            add_known_secrets(_keys_of(copied))
        elif hasattr(value, "_api_client") and any(
            one.__module__.startswith("google.genai") for one in type(value).__mro__
        ):
            found[name] = _guarded_google(value, retries=retries)
            add_known_secrets(_keys_of(value._api_client))
        elif hasattr(value, "event_hooks") and callable(getattr(value, "aclose", None)):
            found[name] = _bounded_only(value)
    return found


def _keys_of(sdk: Any) -> list[str]:
    """List the text credentials of an SDK's client."""
    headers: Any = getattr(sdk, "_custom_headers", None)
    secret = {name: str(value) for name, value in dict(headers or {}).items() if _SECRET_HEADER.search(name)}
    keys = [getattr(sdk, name, None) for name in ("api_key", "auth_token", "_azure_ad_token", "admin_api_key")]
    return [key for key in (*keys, *secret.values()) if isinstance(key, str)]


class _KeepsConnections:
    """A copy shares the connections of its original and must not close them when it is collected."""

    def __del__(self) -> None:
        pass


def _guarded(http: Any) -> Any:
    """Copy an httpx client with hooks that check every answer before it is read or followed."""
    copied = copy_with(http, _KeepsConnections)
    hooks = http.event_hooks
    copied.event_hooks = {
        "request": [_check, *hooks.get("request", ()), _ask_for_gzip, _tell],
        "response": [*hooks.get("response", ()), _refuse_detours, _bound],
    }
    return copied


def _bounded_only(http: Any) -> Any:
    """Copy an httpx client of the app's own chat client, which follows redirects by its own rules."""
    copied = copy_with(http, _KeepsConnections)
    hooks = http.event_hooks
    copied.event_hooks = {
        "request": [_check, *hooks.get("request", ()), _ask_for_gzip],
        "response": [*hooks.get("response", ()), _bound],
    }
    return copied


async def _check(_: Any) -> None:
    """Send nothing after a limit was exceeded: Anthropic's SDK treats that as a lost connection, and retries."""
    received().check()
    check_sent()


async def _ask_for_gzip(request: Any) -> None:
    request.headers["accept-encoding"] = "gzip"


_EXCHANGE: Final = "durable_agent_host.exchange"
"""Extension of an httpx request: the receiver of its answer."""


async def _tell(request: Any) -> None:
    """Report what is sent; a form or stream body has no content before it is read."""
    if request.headers.get("content-type", "application/json").startswith("application/json"):
        body = getattr(request, "_content", b"")
        request.extensions = {**request.extensions, _EXCHANGE: await sent(request.method, request.url, body)}


async def _refuse_detours(response: Any) -> None:
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    same_host = here.host == there.host
    is_upgrade = (here.scheme, there.scheme) == ("http", "https") and _port(here) == 80 and _port(there) == 443  # noqa: PLR2004
    if not same_host or not (is_upgrade or (here.scheme == there.scheme and _port(here) == _port(there))):
        raise ProviderError(
            f"the model's endpoint redirects to {there.scheme}://{there.host}:{_port(there)}, which the app has not "
            "named; the conversation was not sent there: check the endpoint's address, or name the other one",
            retryable=False,
        )


def _port(url: Any) -> int | None:
    return url.port or _DEFAULT_PORTS.get(url.scheme)


async def _bound(response: Any) -> None:
    note_answer(response)
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in {"gzip", "x-gzip", "identity", ""}:
        raise ProviderError(
            f"the model's service sent its answer packed as {encoding!r}, which was not requested: check the "
            "endpoint's address, and proxies in front of it",
            retryable=False,
        )
    if "content-encoding" in response.headers:
        del response.headers["content-encoding"]
    base = next((kind for kind in type(response.stream).__mro__ if kind.__name__ == "AsyncByteStream"), object)
    is_stream = response.headers.get("content-type", "").partition(";")[0].strip().lower() == EVENT_STREAM
    meter = AnswerMeter(is_stream=is_stream)
    exchange: Exchange | None = response.request.extensions.get(_EXCHANGE)
    if exchange is not None:
        exchange.answered(response.status_code, is_stream=is_stream)
    bounded = overridden_class(base, _Bounded)
    packed = encoding.endswith("gzip")
    response.stream = bounded(response.stream, meter, exchange, is_packed=packed, is_stream=is_stream)


class _Bounded:
    """The body of an answer, decompressed step by step."""

    def __init__(
        self, stream: Any, meter: AnswerMeter, exchange: Exchange | None, *, is_packed: bool, is_stream: bool
    ) -> None:
        self._stream = stream
        self._is_stream = is_stream
        self._meter = meter
        self._exchange = exchange
        self._unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS) if is_packed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body: list[bytes] = []
        try:
            async for raw in self._stream:
                for part in self._parts(raw):
                    rest = part
                    while rest:
                        piece, rest = self._unpacked(rest)
                        if whole := self._meter.take(piece):
                            body += () if self._is_stream else (whole,)
                            yield self._told(whole)
        except Exception:
            if self._is_stream or received().crossed is not None or not is_whole(body):
                raise
        if last := self._meter.rest():
            yield self._told(last)
        if self._is_stream and (not last or last.endswith(b"}")):
            yield b"\n\n"  # SDKs drop an event without the blank line that ends it

    def _parts(self, raw: bytes) -> tuple[bytes, ...]:
        """Separate what may be the trailer of gzip: when it is wrong, what comes with it is lost."""
        return (raw,) if self._unpacker is None else (raw[:-_TRAILER_BYTES], raw[-_TRAILER_BYTES:])

    def _told(self, piece: bytes) -> bytes:
        if self._exchange is not None:
            self._exchange.take(piece)
        return piece

    def _unpacked(self, raw: bytes) -> tuple[bytes, bytes]:
        if self._unpacker is None:
            return raw, b""
        try:
            return self._unpacker.decompress(raw, _STEP_BYTES), self._unpacker.unconsumed_tail
        except zlib.error as error:
            raise ProviderError(
                f"the model's service sent an answer that cannot be unpacked ({error}); try again", retryable=True
            ) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


class _StaysOfGoogle(_KeepsConnections):
    """An API client of Google's SDK that follows no redirects, writes in parts, and reads answers of bounded size."""

    async def _async_request_once(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        client: Any = super()
        data: Any = request.data
        body = cast("dict[str, Any]", data) if isinstance(data, dict) else {}
        if is_long(body.get("contents") or ()):
            request.data = await asyncio.to_thread(encoded_body, body) or body
        elif body:
            request.data = encoded_body(body) or body
        return await client._async_request_once(request, *args, **kwargs)

    async def async_request_streamed(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        client: Any = super()
        with noted_answers() as answers:
            chunks = await client.async_request_streamed(*args, **kwargs)
        return closed_at_the_end(chunks, answers)

    async def _get_aiohttp_session(self) -> Any:
        client: Any = super()
        return BoundedSession(await client._get_aiohttp_session())

    def _ensure_aiohttp_ssl_ctx(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        client: Any = super()
        return {**client._ensure_aiohttp_ssl_ctx(*args, **kwargs), "allow_redirects": False}


class _OnceOfGoogle(_StaysOfGoogle):
    """The same without retries."""

    async def _async_request_once(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        client: Any = super()
        return await client._async_request_once(request, *args, **{**kwargs, "implicit_retry": False})

    async def _async_retry(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)


def _guarded_google(client: Any, *, retries: bool) -> Any:
    api = copy_with(client._api_client, _StaysOfGoogle if retries else _OnceOfGoogle)
    if isinstance(found := getattr(api, "_async_client_session_request_args", None), dict):
        api._async_client_session_request_args = {**cast("dict[str, Any]", found), "allow_redirects": False}
    if hasattr(http := getattr(api, "_async_httpx_client", None), "event_hooks"):
        api._async_httpx_client = _guarded(http)
    if not retries:
        api.__dict__.pop("_async_retry", None)  # the override's is used then
    hosted, there = copy_with(client, _KeepsConnections), copy_with(client.aio, _KeepsConnections)
    models = copy_with(there.models, _KeepsConnections)
    hosted._api_client = there._api_client = models._api_client = api
    hosted._aio, there._models = there, models
    return hosted
