"""Guards on the connections of adapted clients: no SDK retries, no cross-origin redirects, limited responses.

A hosted run gets copies of the SDK's client that share its connections; the app's chat client and its SDK client are
unchanged. SDKs are recognized by their attributes: those of OpenAI and Anthropic, which one generator builds on httpx,
and Google's, which uses aiohttp where that is installed. An httpx client held by a chat client of the app also gets
limited responses.

- **Redirects.** The conversation and the key are sent only to the origin that the app configured. A redirect within it,
  or from http to https on the same host, is followed; any other raises an error before anything is sent.
- **Size.** A response is decompressed in small steps and counted (`durable_agent_host.agent.response_limits`): a few
  kilobytes of gzip can hold gigabytes, and a line may never end. `bounded_aiohttp` does the same for aiohttp.
"""

# ruff: noqa: SLF001 - SDKs have no public way to copy a client with other hooks

import re
import zlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress
from typing import Any, Final, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin, overridden_class
from durable_agent_host.agent.http_exchange import HttpExchange, record_request
from durable_agent_host.agent.response_limits import ResponseSizeMeter, received_bytes
from durable_agent_host.agent.retry_classification import read_failure
from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.bounded_aiohttp import EVENT_STREAM, BoundedSession
from durable_agent_host.providers.client_errors import response_failure
from durable_agent_host.providers.event_normalization import EventDecoder, Json, NormalizingDecoder, to_object_list
from durable_agent_host.providers.response_cleanup import closing_responses, track_response, tracked_responses
from durable_agent_host.providers.stream_completion import is_complete_json
from durable_agent_host.providers.surrogate_replacement import encode_body, with_surrogate_replacement
from durable_agent_host.redaction import add_known_secrets

_SECRET_HEADER: Final = re.compile(r"authorization|key|token|secret|cookie", re.IGNORECASE)
_STEP_BYTES: Final = 256 * 1024
_TRAILER_BYTES: Final = 8
"""Of gzip: checksum and length."""

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


def sdk_clients(client: Any) -> dict[str, Any]:
    """Copy the SDK's clients of a chat client with guards.

    Returns:
        The attributes to replace in a copy of the chat client; empty for clients of unknown SDKs.
    """
    guarded_clients: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", vars(client)).items():
        if callable(getattr(value, "with_options", None)) and hasattr(value, "max_retries"):
            sdk_client = value.with_options(max_retries=0)
            if (http := getattr(sdk_client, "_client", None)) is not None and hasattr(http, "event_hooks"):
                sdk_client._client = _guard_http_client(http, is_sdk=True)
            guarded_clients[name] = with_surrogate_replacement(sdk_client)
            add_known_secrets(_list_credentials(sdk_client))
        elif hasattr(value, "_api_client") and any(
            base.__module__.startswith("google.genai") for base in type(value).__mro__
        ):
            guarded_clients[name] = _guard_google_client(value)
            add_known_secrets(_list_credentials(value._api_client))
        elif hasattr(value, "event_hooks") and callable(getattr(value, "aclose", None)):
            guarded_clients[name] = _guard_http_client(value, is_sdk=False)
    return guarded_clients


def _list_credentials(sdk: Any) -> list[str]:
    """List the text credentials of an SDK's client."""
    headers: Any = getattr(sdk, "_custom_headers", None)
    secrets = [str(value) for name, value in dict(headers or {}).items() if _SECRET_HEADER.search(name)]
    keys = [getattr(sdk, name, None) for name in ("api_key", "auth_token", "_azure_ad_token", "admin_api_key")]
    return [key for key in (*keys, *secrets) if isinstance(key, str)]


class _SharedConnectionsMixin:
    """A copy shares the connections of its original and must not close them when it is collected."""

    def __del__(self) -> None:
        pass


def _guard_http_client(http: Any, *, is_sdk: bool) -> Any:
    """Copy an httpx client with hooks that check every response before it is read or followed.

    The client of an app's own chat client follows redirects by its own rules.
    """
    clone = copy_with_mixin(http, _SharedConnectionsMixin)
    request_hooks = [_check, *http.event_hooks.get("request", ()), _ask_for_gzip]
    response_hooks = http.event_hooks.get("response", ())
    clone.event_hooks = (
        {
            "request": [*request_hooks, _record_request],
            "response": [*response_hooks, _reject_foreign_redirects, _limit_response],
        }
        if is_sdk
        else {"request": request_hooks, "response": [*response_hooks, _limit_response]}
    )
    return clone


async def _check(_: Any) -> None:
    """Block requests after a limit was exceeded: Anthropic's SDK treats that as a lost connection, and retries."""
    received_bytes().check()


async def _ask_for_gzip(request: Any) -> None:
    request.headers["accept-encoding"] = "gzip"


_EXCHANGE: Final = "durable_agent_host.exchange"
"""Extension of an httpx request: the receiver of its response."""


async def _record_request(request: Any) -> None:
    """Record the request; a form or stream body has no content before it is read."""
    if request.headers.get("content-type", "application/json").startswith("application/json"):
        body = b""
        with suppress(RuntimeError):  # of httpx, for a body that has not been read
            body = request.content
        request.extensions = {**request.extensions, _EXCHANGE: await record_request(request.method, request.url, body)}


async def _reject_foreign_redirects(response: Any) -> None:
    if not response.has_redirect_location:
        return
    here = response.request.url
    there = here.join(response.headers["location"])
    same_host = here.host == there.host
    is_upgrade = (here.scheme, there.scheme) == ("http", "https") and _port(here) == 80 and _port(there) == 443  # noqa: PLR2004
    if not same_host or not (is_upgrade or (here.scheme == there.scheme and _port(here) == _port(there))):
        raise ProviderError(
            f"the model's endpoint redirects to {there.scheme}://{there.host}:{_port(there)}, which the app has "
            "not named; the conversation was not sent there: check the endpoint's address, or name the other one",
            retryable=False,
        )


def _port(url: Any) -> int | None:
    return url.port or _DEFAULT_PORTS.get(url.scheme)


async def _limit_response(response: Any) -> None:
    track_response(response)
    encoding = response.headers.pop("content-encoding", "identity").strip().lower()
    if encoding not in {"gzip", "x-gzip", "identity", ""}:
        raise ProviderError(
            f"the model's service sent its response compressed as {encoding!r}, which was not requested: check "
            "the endpoint's address, and proxies in front of it",
            retryable=False,
        )
    base = next((kind for kind in type(response.stream).__mro__ if kind.__name__ == "AsyncByteStream"), object)
    is_stream = response.headers.get("content-type", "").partition(";")[0].strip().lower() == EVENT_STREAM
    meter = ResponseSizeMeter(is_stream=is_stream)
    exchange: HttpExchange | None = response.request.extensions.get(_EXCHANGE)
    if exchange is not None:
        exchange.record_status(response.status_code)
    body_class = overridden_class(base, _LimitedBody)
    is_compressed = encoding.endswith("gzip")
    response.stream = body_class(response.stream, meter, exchange, is_compressed=is_compressed, is_stream=is_stream)


class _LimitedBody:
    """The body of a response, decompressed step by step."""

    def __init__(
        self,
        stream: Any,
        meter: ResponseSizeMeter,
        exchange: HttpExchange | None,
        *,
        is_compressed: bool,
        is_stream: bool,
    ) -> None:
        self._stream = stream
        self._is_stream = is_stream
        self._meter = meter
        self._exchange = exchange
        self._decompressor = zlib.decompressobj(16 + zlib.MAX_WBITS) if is_compressed else None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        body: list[bytes] = []
        try:
            async for raw in self._stream:
                for part in self._parts(raw):
                    remaining = part
                    while remaining:
                        chunk, remaining = self._decompress(remaining)
                        if complete_data := self._meter.feed(chunk):
                            body += () if self._is_stream else (complete_data,)
                            yield self._record_chunk(complete_data)
        except Exception:
            if self._is_stream or received_bytes().exceeded_limit is not None or not is_complete_json(body):
                raise
        if last := self._meter.flush():
            yield self._record_chunk(last)
        if self._is_stream and (not last or last.endswith(b"}")):
            yield b"\n\n"  # SDKs drop an event without the blank line that ends it

    def _parts(self, raw: bytes) -> tuple[bytes, ...]:
        """Separate the possible gzip trailer: if it is invalid, zlib drops the data that comes with it."""
        return (raw,) if self._decompressor is None else (raw[:-_TRAILER_BYTES], raw[-_TRAILER_BYTES:])

    def _record_chunk(self, chunk: bytes) -> bytes:
        if self._exchange is not None:
            self._exchange.record_chunk(chunk)
        return chunk

    def _decompress(self, raw: bytes) -> tuple[bytes, bytes]:
        if self._decompressor is None:
            return raw, b""
        try:
            return self._decompressor.decompress(raw, _STEP_BYTES), self._decompressor.unconsumed_tail
        except zlib.error as error:
            raise ProviderError(
                f"the model's service sent a response that cannot be decompressed ({error}); try again", retryable=True
            ) from error

    async def aclose(self) -> None:
        await self._stream.aclose()


class _GoogleStream:
    """In place of a streamed response of Google's SDK, which reads only what is written as Google writes it."""

    def __init__(self, response: Any) -> None:
        self.headers = response.headers
        self._body = response.response_stream

    async def __aiter__(self) -> AsyncIterator[Json]:
        chunks = self._body.aiter_bytes() if hasattr(self._body, "aiter_bytes") else aiter(self._body.content)
        async for event in NormalizingDecoder(EventDecoder(), self).aiter_bytes(chunks):
            yield event.json()

    def read(self, _name: str | None, data: Any) -> list[Json]:
        """Return the chunks of an event; the SDK expects the code of an error to be a status."""
        if value_at(data, "error"):
            raise response_failure(*read_failure(data))
        return to_object_list(data)

    def end(self, *, is_done: bool) -> tuple[()]:
        """Add nothing."""
        del is_done
        return ()


class _GuardedGoogleMixin(_SharedConnectionsMixin):
    """An API client of Google's SDK without redirects and retries, with valid UTF-8 and limited responses."""

    async def _async_request_once(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        client: Any = super()
        if body := object_at(request.data):
            request.data = encode_body(body) or body
        response = await client._async_request_once(request, *args, **{**kwargs, "implicit_retry": False})
        return response if isinstance(response.response_stream, list) else _GoogleStream(response)

    async def _async_retry(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    async def async_request_streamed(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        client: Any = super()
        with tracked_responses() as responses:
            chunks = await client.async_request_streamed(*args, **kwargs)
        return closing_responses(chunks, responses)

    async def _get_aiohttp_session(self) -> Any:
        client: Any = super()
        return BoundedSession(await client._get_aiohttp_session())

    def _ensure_aiohttp_ssl_ctx(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        client: Any = super()
        return {**client._ensure_aiohttp_ssl_ctx(*args, **kwargs), "allow_redirects": False}


def _guard_google_client(client: Any) -> Any:
    api = copy_with_mixin(client._api_client, _GuardedGoogleMixin)
    if isinstance(request_args := getattr(api, "_async_client_session_request_args", None), dict):
        api._async_client_session_request_args = {**cast("dict[str, Any]", request_args), "allow_redirects": False}
    if hasattr(http := getattr(api, "_async_httpx_client", None), "event_hooks"):
        api._async_httpx_client = _guard_http_client(http, is_sdk=True)
    api.__dict__.pop("_async_retry", None)  # the override's is used then
    client_copy = copy_with_mixin(client, _SharedConnectionsMixin)
    async_client = copy_with_mixin(client.aio, _SharedConnectionsMixin)
    models = copy_with_mixin(async_client.models, _SharedConnectionsMixin)
    client_copy._api_client = async_client._api_client = models._api_client = api
    client_copy._aio = async_client
    async_client._models = models
    return client_copy
