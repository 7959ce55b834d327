"""Copies of the SDK clients of a chat client: no SDK retries, and what is sent and received is recorded.

A hosted run gets copies of the SDK's client that share its connections; the app's chat client and its SDK client are
unchanged. SDKs are recognized by their attributes: those of OpenAI and Anthropic, which one generator builds on httpx,
and Google's. An httpx client held by a chat client of the app is recorded, too.

A model can write half of a surrogate pair anywhere in its response: in a text, in arguments, in an id. It is stored
unchanged, and every later request repeats it; so it is replaced where requests are written.

An SDK's stream and its reader often refer to each other. A response that is not read to its end is closed here, or its
service would continue to write (and charge) until the next garbage collection.
"""

# ruff: noqa: SLF001 - SDKs have no public way to copy a client with other hooks, or to write a body

import json
import re
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Generator, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from typing import Any, Final, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.http_exchange import HttpExchange, record_request
from durable_agent_host.agent.response_limits import close_response, turn_traffic
from durable_agent_host.agent.retry_classification import read_failure
from durable_agent_host.codec.strict_json import map_texts, object_at, value_at
from durable_agent_host.providers.client_errors import response_failure
from durable_agent_host.providers.event_normalization import EventDecoder, Json, NormalizingDecoder, to_object_list
from durable_agent_host.redaction import add_known_secrets

EVENT_STREAM: Final = "text/event-stream"
_SECRET_HEADER: Final = re.compile(r"authorization|key|token|secret|cookie", re.IGNORECASE)


def sdk_clients(client: Any) -> dict[str, Any]:
    """Copy the SDK's clients of a chat client.

    Returns:
        The attributes to replace in a copy of the chat client; empty for clients of unknown SDKs.
    """
    copies: dict[str, Any] = {}
    for name, value in cast("dict[str, Any]", vars(client)).items():
        if callable(getattr(value, "with_options", None)) and hasattr(value, "max_retries"):
            sdk_client = value.with_options(max_retries=0)
            sdk_client._client = _recorded_client(sdk_client._client)
            copies[name] = copy_with_mixin(sdk_client, _SurrogateReplacingMixin)
            add_known_secrets(_list_credentials(sdk_client))
        elif hasattr(value, "_api_client") and any(
            base.__module__.startswith("google.genai") for base in type(value).__mro__
        ):
            copies[name] = _guard_google_client(value)
            add_known_secrets(_list_credentials(value._api_client))
        elif hasattr(value, "event_hooks") and callable(getattr(value, "aclose", None)):
            copies[name] = _recorded_client(value)
    return copies


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


def _recorded_client(http: Any) -> Any:
    """Copy an httpx client with hooks that record requests and responses."""
    clone = copy_with_mixin(http, _SharedConnectionsMixin)
    clone.event_hooks = {
        "request": [*http.event_hooks.get("request", ()), _record_request],
        "response": [*http.event_hooks.get("response", ()), _record_response],
    }
    return clone


_EXCHANGE: Final = "durable_agent_host.exchange"
"""Extension of an httpx request: the receiver of its response."""


async def _record_request(request: Any) -> None:
    """Record the request; a form or stream body has no content before it is read."""
    if request.headers.get("content-type", "application/json").startswith("application/json"):
        body = b""
        with suppress(RuntimeError):  # of httpx, for a body that has not been read
            body = request.content
        request.extensions = {**request.extensions, _EXCHANGE: await record_request(request.method, request.url, body)}


async def _record_response(response: Any) -> None:
    track_response(response)
    is_stream = response.headers.get("content-type", "").partition(";")[0].strip().lower() == EVENT_STREAM
    exchange: HttpExchange | None = response.request.extensions.get(_EXCHANGE)
    if exchange is not None:
        exchange.record_status(response.status_code)

    async def aiter_bytes(chunk_size: int | None = None) -> AsyncGenerator[bytes]:
        """Yield the body."""
        del response.aiter_bytes  # the client's own method
        last = b""
        async with aclosing(response.aiter_bytes(chunk_size)) as chunks:
            async for chunk in chunks:
                if exchange is not None:
                    exchange.record_chunk(chunk)
                last = chunk or last
                yield chunk
        if is_stream and (not last or last.endswith((b"}", b"\n", b"\r"))):
            yield b"\n\n"  # SDKs drop an event without the blank line that ends it

    response.aiter_bytes = aiter_bytes


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
    """An API client of Google's SDK without retries, with valid UTF-8, over httpx unless the app needs aiohttp."""

    def _use_aiohttp(self) -> bool:
        client: Any = super()
        api: Any = self
        needs_aiohttp = api._async_httpx_client is None or api._http_options.aiohttp_client is not None
        return needs_aiohttp and client._use_aiohttp()

    async def _async_request_once(self, request: Any, *args: Any, **kwargs: Any) -> Any:
        client: Any = super()
        if body := object_at(request.data):
            request.data = _valid_text(json.dumps(body, ensure_ascii=False)).encode()
        response = await client._async_request_once(request, *args, **{**kwargs, "implicit_retry": False})
        return response if isinstance(response.response_stream, list) else _GoogleStream(response)

    async def _async_retry(self, call: Any, *args: Any, **kwargs: Any) -> Any:
        return await call(*args, **kwargs)

    async def async_request_streamed(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any]:
        client: Any = super()
        with tracked_responses() as responses:
            chunks = await client.async_request_streamed(*args, **kwargs)
        return closing_responses(chunks, responses)


def _guard_google_client(client: Any) -> Any:
    api = copy_with_mixin(client._api_client, _GuardedGoogleMixin)
    if hasattr(http := getattr(api, "_async_httpx_client", None), "event_hooks"):
        api._async_httpx_client = _recorded_client(http)
    api.__dict__.pop("_async_retry", None)  # the override's is used then
    client_copy = copy_with_mixin(client, _SharedConnectionsMixin)
    async_client = copy_with_mixin(client.aio, _SharedConnectionsMixin)
    models = copy_with_mixin(async_client.models, _SharedConnectionsMixin)
    client_copy._api_client = async_client._api_client = models._api_client = api
    client_copy._aio = async_client
    async_client._models = models
    return client_copy


_BODIES: Final = ("json_data", "extra_json")


def without_lone_surrogates(value: Any) -> Any:
    """Return a JSON value whose texts are encodable as UTF-8."""
    return map_texts(value, _valid_text)


def _valid_text(text: str) -> str:
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class _SurrogateReplacingMixin:
    """The override that sends every string; precedes the SDK's own class in the method resolution order."""

    def _build_request(self, options: Any, **kwargs: Any) -> Any:
        client: Any = super()
        try:
            return client._build_request(options, **kwargs)
        except UnicodeEncodeError:
            bodies = {name: without_lone_surrogates(getattr(options, name)) for name in _BODIES}
            return client._build_request(options.model_copy(update=bodies), **kwargs)


_TRACKED_RESPONSES: Final[ContextVar[list[Any] | None]] = ContextVar("durable_agent_host_opened", default=None)


def track_response(response: Any) -> None:
    """Record a response with an unread body, for the turn and inside a `tracked_responses` block."""
    turn_traffic().track_response(response)
    if (responses := _TRACKED_RESPONSES.get()) is not None:
        responses.append(response)


@contextmanager
def tracked_responses() -> Generator[list[Any]]:
    """Collect the responses to the requests that are made within the block."""
    responses: list[Any] = []
    token = _TRACKED_RESPONSES.set(responses)
    try:
        yield responses
    finally:
        _TRACKED_RESPONSES.reset(token)


async def closing_responses[T](parts: AsyncGenerator[T], responses: Sequence[Any]) -> AsyncGenerator[T]:
    """Yield the parts of a stream, and close its responses when the reader stops."""
    try:
        async with aclosing(parts):
            async for part in parts:
                yield part
    finally:
        for response in responses:
            await close_response(response)


def closing_stream(stream: AsyncIterable[Any]) -> AbstractAsyncContextManager[Any]:
    """Return a context manager that closes a stream at its end, if the stream can be closed."""
    return aclosing(cast("Any", stream)) if callable(getattr(stream, "aclose", None)) else nullcontext()
