"""Passes parts through Google's SDK unchanged, in both directions.

The SDK's types drop unknown fields of a response silently, and refuse those of a request. The copy of the SDK's client
here sends the parts of a conversation as JSON that the SDK does not read, and returns each response together with its
original JSON, in ``sdk_http_response.body``.
"""

# ruff: noqa: SLF001 - SDKs have no public way to see the words of a request or a response

import base64
import copy
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

from durable_agent_host.agent.overriding import copy_with
from durable_agent_host.loops.aside import aside
from durable_agent_host.loops.giving_way import resting
from durable_agent_host.providers.gemini.paired_calls import named_calls, paired_calls
from durable_agent_host.providers.gemini.signatures import with_signatures

_STAND_IN = "."
_LONG_URL: Final = 512 * 1024
_CHECKED_CHARACTERS: Final = 256 * 1024
"""A multiple of four. Other threads run between two such parts."""
_TOOLS: Final = frozenset({"toolCall", "toolResponse"})


def with_words(client: Any) -> Any:
    """Copy a client of Google's SDK so that it keeps the JSON of requests and responses.

    Guarantee: pure; the given client is not changed, and shares its connections with the copy.

    Args:
        client: of the class ``google.genai.Client``; others are returned unchanged.

    Returns:
        The copy.
    """
    if not any(one.__module__.startswith("google.genai") for one in type(client).__mro__):
        return client
    hosted, there = copy_with(client, _Borrowed), copy_with(client.aio, _Borrowed)
    hosted._aio, there._models = there, copy_with(there.models, _KeepsWords)
    return hosted


def words_of(response: Any) -> dict[str, Any]:
    """Return a response, or a chunk, as the service wrote it.

    Args:
        response: of the SDK; one from another source is written as the SDK parsed it.
    """
    http: Any = getattr(response, "sdk_http_response", None)
    body: Any = getattr(http, "body", None)
    said = json.loads(body) if body else response.model_dump(mode="json", by_alias=True, exclude_none=True)
    return cast("dict[str, Any]", said) if isinstance(said, dict) else {}


def kept_part(words: Mapping[str, Any]) -> Any:
    """Make a part of the SDK that is sent as exactly this JSON.

    Args:
        words: with the API's names; not interpreted.
    """
    part = _kept_part_class().model_construct()
    part.kept_words = dict(words)
    return part


def long_data_part(uri: str, media_type: str) -> Any:
    """Make a part from a long data URL without decoding it: the framework decodes it, and the SDK encodes it again.

    Args:
        uri: of any kind.
        media_type: of the data.

    Returns:
        The part; None for a short URL, and one that is not valid base64.
    """
    if len(uri) <= _LONG_URL or not uri.startswith("data:"):
        return None
    data = uri.partition(";base64,")[2]
    try:
        for start in resting(range(0, len(data), _CHECKED_CHARACTERS)):
            base64.b64decode(data[start : start + _CHECKED_CHARACTERS], validate=True)
    except ValueError:
        return None
    return kept_part({"inlineData": {"data": data, "mimeType": media_type}}) if data else None


def request_words(contents: Sequence[Any]) -> list[dict[str, Any]]:
    """Write the contents of a request as JSON.

    Args:
        contents: of the SDK, with parts of any origin.
    """
    return [{"role": one.role, "parts": [_part_words(part) for part in one.parts or ()]} for one in resting(contents)]


def _part_words(part: Any) -> dict[str, Any]:
    if isinstance(part, _kept_part_class()):
        return {name: _accepted(value) if name in _TOOLS else value for name, value in part.kept_words.items()}
    return cast("dict[str, Any]", part.model_dump(mode="json", by_alias=True, exclude_none=True))


def _accepted(tool: Any) -> Any:
    """Write the type of a hosted tool under the name used in the recorded requests that were accepted."""
    known: Any = tool
    if not isinstance(tool, dict):
        return known
    return {"tool_type" if name == "toolType" else name: value for name, value in known.items()}


@cache
def _kept_part_class() -> type[Any]:
    from google.genai.types import Part  # noqa: PLC0415 - only where the client is installed
    from pydantic import PrivateAttr  # noqa: PLC0415 - comes with it

    class KeptPart(Part):
        _kept: dict[str, Any] = PrivateAttr(default_factory=dict[str, Any])

        @property
        def kept_words(self) -> dict[str, Any]:
            return self._kept

        @kept_words.setter
        def kept_words(self, words: dict[str, Any]) -> None:
            self._kept = words

    return KeptPart


def _offered(config: Any) -> frozenset[str]:
    """Return the names of the functions that a request offers."""
    tools: Any = getattr(config, "tools", None) or ()
    declared = (getattr(tool, "function_declarations", None) or () for tool in tools)
    return frozenset(str(one.name) for functions in declared for one in functions)


class _Borrowed:
    """A copy shares the connections of its original and must not close them when it is collected."""

    def __del__(self) -> None:
        pass


class _KeepsWords:
    """Overrides the SDK's ``AsyncModels``."""

    _api_client: Any

    async def generate_content_stream(self, *, model: str, contents: Any, config: Any = None) -> AsyncIterator[Any]:
        call = await aside(len(contents), lambda: _Call(self._api_client, model, contents, config))
        models: Any = super(_KeepsWords, call.models(self))
        stream = await models.generate_content_stream(model=model, contents=_STAND_IN, config=config)
        return call.with_words(stream)

    async def generate_content(self, *, model: str, contents: Any, config: Any = None) -> Any:
        call = await aside(len(contents), lambda: _Call(self._api_client, model, contents, config))
        models: Any = super(_KeepsWords, call.models(self))
        return call.with_body(await models.generate_content(model=model, contents=_STAND_IN, config=config))


class _Call:
    """The SDK's API client for one call: changes the request and records the response."""

    def __init__(self, api: Any, model: str, contents: Any, config: Any) -> None:
        self._api = api
        words = named_calls(request_words(contents), _offered(config))
        self._contents = with_signatures(model, paired_calls(words))
        self._body: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def models(self, models: Any) -> Any:
        """Copy the SDK's models for this call."""
        mine = copy.copy(models)
        mine._api_client = self
        return mine

    async def async_request(self, method: str, path: str, request: dict[str, Any], options: Any = None) -> Any:
        """Send a request with the contents of the call."""
        answer = await self._api.async_request(method, path, {**request, "contents": self._contents}, options)
        self._body = answer.body
        return answer

    async def async_request_streamed(self, method: str, path: str, request: dict[str, Any], options: Any = None) -> Any:
        """Send a request with the contents of the call, and record each chunk."""
        chunks = await self._api.async_request_streamed(method, path, {**request, "contents": self._contents}, options)
        return self._noted(chunks)

    async def _noted(self, chunks: Any) -> AsyncIterator[Any]:
        try:
            async for chunk in chunks:
                self._body = chunk.body
                yield chunk
        finally:
            await chunks.aclose()

    async def with_words(self, stream: Any) -> AsyncIterator[Any]:
        """Yield the chunks of a stream with their JSON."""
        try:
            async for chunk in stream:
                yield self.with_body(chunk)
        finally:
            await stream.aclose()

    def with_body(self, response: Any) -> Any:
        """Put the JSON of a response into it."""
        if response.sdk_http_response is not None:
            response.sdk_http_response.body = self._body
        return response
