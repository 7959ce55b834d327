"""Passes parts through Google's SDK unchanged, in both directions.

The SDK's types drop unknown fields of a response silently, and reject those of a request. The copy of the SDK's client
here sends the parts of a conversation as JSON that the SDK does not read, and returns each response together with its
original JSON, in ``sdk_http_response.body``.
"""


# ruff: noqa: SLF001 - the SDK has no public access to the JSON of a request or a response

import copy
import json
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from functools import cache
from typing import Any, Final, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_many
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.call_pairing import Json, PartFormat, accepted_name, pair_results

# Signatures for function calls that Gemini 3 did not make itself.
#
# The models reject a turn in which the first call of a response has no thought signature. Calls by another model, or
# by an earlier Gemini, have none; for these the service accepts a placeholder that turns the check off.
#
# Source: https://ai.google.dev/gemini-api/docs/thought-signatures, "transferring a conversation trace"

_CHECKS: Final = re.compile(r"(^|/)gemini-([3-9]|\d\d)")
UNCHECKED: Final = "skip_thought_signature_validator"


def with_signatures(model: str, contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give calls of the current turn without a signature the placeholder that the service accepts.

    Returns:
        The same contents, or copies where a signature was missing.
    """
    if _CHECKS.search(model) is None:
        return list(contents)
    request_indexes = [
        n
        for n, content in enumerate(contents)
        if content["role"] != "model" and not any("functionResponse" in part for part in content["parts"])
    ]
    turn_start = request_indexes[-1] if request_indexes else 0
    return [
        _with_placeholder(content) if n > turn_start and content["role"] == "model" else content
        for n, content in enumerate(contents)
    ]


def _with_placeholder(content: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = content["parts"]
    first = next((n for n, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return content
    signed_part = {**parts[first], "thoughtSignature": UNCHECKED}
    return {**content, "parts": [*parts[:first], signed_part, *parts[first + 1 :]]}


# Calls and their responses in a request. A model can call by any name, and the service rejects most of them.

_CALL: Final = "functionCall"
_RESPONSE: Final = "functionResponse"


def _lost_response(call: Json) -> Json:
    call_fields = {name: call[name] for name in ("id", "name") if name in call}
    return {_RESPONSE: {**call_fields, "response": {"result": LOST_RESULT}}}


PART_FORMAT: Final = PartFormat("parts", lambda part: part.get(_CALL), lambda part: part.get(_RESPONSE), _lost_response)


def _join_model_contents(contents: Sequence[Json]) -> list[Json]:
    """Join answers that follow each other, as compaction can leave them: the service accepts no call after words."""
    merged_contents: list[Json] = []
    for content in contents:
        if merged_contents and merged_contents[-1]["role"] == content["role"] == "model":
            merged_contents[-1] = {**content, "parts": [*merged_contents[-1]["parts"], *content["parts"]]}
        else:
            merged_contents.append(content)
    return merged_contents


def with_valid_names(contents: Sequence[Json], tool_names: Collection[str]) -> list[Json]:
    """Give calls and their responses names that the service accepts."""
    return [
        {**content, "parts": [_with_valid_name(part, tool_names) for part in content["parts"]]} for content in contents
    ]


def _with_valid_name(part: Json, tool_names: Collection[str]) -> Json:
    kind = next((kind for kind in (_CALL, _RESPONSE) if isinstance(part.get(kind), dict)), None)
    if kind is None:
        return part
    name = accepted_name(part[kind].get("name"), tool_names)
    return part if name == part[kind].get("name") else {**part, kind: {**part[kind], "name": name}}


_PLACEHOLDER = "."
_TOOLS: Final = frozenset({"toolCall", "toolResponse"})


def with_raw_json(client: Any) -> Any:
    """Copy a client of Google's SDK so that it keeps the JSON of requests and responses."""
    client_copy = copy_with_mixin(client, _SharedConnections)
    async_client = copy_with_mixin(client.aio, _SharedConnections)
    client_copy._aio = async_client
    async_client._models = copy_with_mixin(async_client.models, _RawJsonModels)
    return client_copy


def raw_json(response: Any) -> dict[str, Any]:
    """Return the JSON of a chunk."""
    return object_at(json.loads(response.sdk_http_response.body))


def raw_part(part_json: Mapping[str, Any]) -> Any:
    """Make a part of the SDK that is sent as exactly this JSON."""
    return _raw_part_class().model_construct(part_json=dict(part_json))


def data_part(uri: str, media_type: str) -> Any:
    """Make a part from a data URL without decoding it: the framework decodes it, and the SDK encodes it again.

    Returns:
        The part; None for another URL.
    """
    data = uri.partition(";base64,")[2]
    return (
        raw_part({"inlineData": {"data": data, "mimeType": media_type}}) if data and uri.startswith("data:") else None
    )


def request_json(contents: Sequence[Any]) -> list[dict[str, Any]]:
    """Write the contents of a request as JSON."""
    return [{"role": content.role, "parts": [_part_json(part) for part in content.parts or ()]} for content in contents]


def _part_json(part: Any) -> dict[str, Any]:
    if isinstance(part, _raw_part_class()):
        return {
            name: _with_accepted_names(value) if name in _TOOLS else value for name, value in part.part_json.items()
        }
    return cast("dict[str, Any]", part.model_dump(mode="json", by_alias=True, exclude_none=True))


def _with_accepted_names(tool: Any) -> Any:
    """Write the type of a hosted tool under the name used in the recorded requests that were accepted."""
    return {"tool_type" if name == "toolType" else name: value for name, value in object_at(tool).items()}


@cache
def _raw_part_class() -> type[Any]:
    from google.genai.types import Part

    class RawPart(Part):
        part_json: dict[str, Any]

    return RawPart


def _tool_names(config: Any) -> frozenset[str]:
    """Return the names of the functions that a request declares."""
    tools: Any = getattr(config, "tools", None) or ()
    declarations = (getattr(tool, "function_declarations", None) or () for tool in tools)
    return frozenset(str(function.name) for functions in declarations for function in functions)


class _SharedConnections:
    """A copy shares the connections of its original and must not close them when it is collected."""

    def __del__(self) -> None:
        pass


class _RawJsonModels:
    """Overrides the SDK's ``AsyncModels``."""

    _api_client: Any

    async def generate_content_stream(self, *, model: str, contents: Any, config: Any = None) -> AsyncIterator[Any]:
        call = await run_in_thread_if_many(len(contents), lambda: _Call(self._api_client, model, contents, config))
        models: Any = super(_RawJsonModels, call.models(self))
        stream = await models.generate_content_stream(model=model, contents=_PLACEHOLDER, config=config)
        return call.with_bodies(stream)


class _Call:
    """The SDK's API client for one call: changes the request and records the response."""

    def __init__(self, api: Any, model: str, contents: Any, config: Any) -> None:
        self._api = api
        contents_json = with_valid_names(request_json(contents), _tool_names(config))
        self._contents = with_signatures(model, _join_model_contents(pair_results(contents_json, PART_FORMAT)))
        self._body: str | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._api, name)

    def models(self, models: Any) -> Any:
        """Copy the SDK's models for this call."""
        call_models = copy.copy(models)
        call_models._api_client = self
        return call_models

    async def async_request_streamed(self, method: str, path: str, request: dict[str, Any], options: Any = None) -> Any:
        """Send a request with the contents of the call, and record each chunk."""
        chunks = await self._api.async_request_streamed(method, path, {**request, "contents": self._contents}, options)
        return self._record_chunks(chunks)

    async def _record_chunks(self, chunks: Any) -> AsyncIterator[Any]:
        try:
            async for chunk in chunks:
                self._body = chunk.body
                yield chunk
        finally:
            await chunks.aclose()

    async def with_bodies(self, stream: Any) -> AsyncIterator[Any]:
        """Yield the chunks of a stream with their JSON."""
        try:
            async for chunk in stream:
                chunk.sdk_http_response.body = self._body
                yield chunk
        finally:
            await stream.aclose()
