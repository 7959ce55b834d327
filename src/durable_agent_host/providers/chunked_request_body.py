"""Writes long requests in chunks, in a thread, so that the loop and other threads run in between.

The SDKs write a body with one call of `json.dumps`, which blocks all threads of the process: 30 MB take 0.3 s.
Anthropic's also copies it before, on the loop of all agents. So the messages of a long request are written here, and
the SDK gets a short placeholder, which is replaced in the body that the SDK has written: other changes by its hooks
remain.
"""

# ruff: noqa: SLF001 - SDKs have no public way to write a body

import asyncio
import io
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.concurrency.cooperative_yield import yield_if_due
from durable_agent_host.concurrency.thread_offload import MANY
from durable_agent_host.concurrency.weak_context_var import WeakContextVar
from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.surrogate_replacement import encode_text

_LONG_CHARACTERS: Final = 256 * 1024
"""A longer text is written in chunks, some milliseconds each."""
_LONG_LIST: Final = 512 * 1024
"""From this many characters of messages, an SDK would take some milliseconds."""
_SDKS: Final = ("openai.", "anthropic.")
_HOOKS: Final = ("request", "_prepare_options", "_build_request", "_prepare_request")
_MESSAGES: Final = ("messages", "input")


def with_chunked_bodies(sdk: Any) -> Any:
    """Copy a client of an SDK so that it writes long requests in chunks.

    Guarantee: pure; the bodies equal those of the client.

    Args:
        sdk: of OpenAI or Anthropic. It is returned unchanged when it has middleware, puts contents into its traces, or
            is of a class of the app's own that overrides how requests are made: these read the messages. So is anything
            else.

    Returns:
        A copy that shares the connections.
    """
    kind = cast("type[Any]", type(sdk))
    hook_modules = [str(getattr(getattr(kind, name, None), "__module__", "")) for name in _HOOKS]
    is_traced = bool(getattr(getattr(sdk, "_otel", None), "records_content", False))
    is_read = is_traced or bool(getattr(sdk, "middleware", ()))
    return (
        copy_with_mixin(sdk, _ChunkedBodyMixin)
        if all(name.startswith(_SDKS) for name in hook_modules) and not is_read
        else sdk
    )


def check_messages_restored() -> None:
    """Check that the messages are back in the request that is sent; called before each.

    Raises:
        ProviderError: the SDK makes requests in another way than those that are known here.
    """
    if (extracted_messages := _EXTRACTED_MESSAGES.get()) is not None and not extracted_messages.is_restored:
        raise ProviderError(
            "this version of the model's SDK makes requests in an unknown way, so a long one was not sent: install the "
            "version of requirements.txt",
            retryable=False,
        )


def is_long(items: Sequence[Any]) -> bool:
    """Return whether messages take long to write. Guarantee: pure."""
    return len(items) > MANY or sum(map(_count_characters, items)) > _LONG_LIST


def encode_items(items: Sequence[Any]) -> list[bytes] | None:
    """Write messages as the SDKs of OpenAI and Anthropic do, half a surrogate pair as the replacement character.

    Guarantee: pure.

    Args:
        items: of a request.

    Returns:
        Their JSON without the brackets, in chunks; None when an item is not JSON: the SDK may be able to write it.
    """
    parts: list[bytes] = []
    try:
        for item in items:
            yield_if_due()
            parts.append(b",")
            _write(item, parts)
    except (TypeError, ValueError, RecursionError):
        return None
    return parts[1:]


def encode_body(body: Mapping[str, Any]) -> bytes | None:
    """Write a full body, see `encode_items`."""
    parts = encode_items([body])
    return _join_chunks(parts) if parts is not None else None


class _ChunkedBodyMixin:
    """The override; precedes the SDK's own class in the method resolution order."""

    async def request(self, cast_to: Any, options: Any, **kwargs: Any) -> Any:
        client: Any = super()
        options, extracted_messages = await _extract_messages(options)
        token = _EXTRACTED_MESSAGES.set(extracted_messages)
        try:
            return await client.request(cast_to, options, **kwargs)
        finally:
            _EXTRACTED_MESSAGES.reset(token)

    async def _prepare_request(self, request: Any) -> None:
        client: Any = super()
        if (extracted_messages := _EXTRACTED_MESSAGES.get()) is not None:
            body = await asyncio.to_thread(extracted_messages.restore, request.content)
            headers = request.headers.copy()
            del headers["content-length"]
            kind = cast("type[Any]", type(request))
            full_request = kind(
                request.method, request.url, headers=headers, content=body, extensions=request.extensions
            )
            request.__dict__.update(full_request.__dict__)
        await client._prepare_request(request)


class _ExtractedMessages:
    """The messages of one request, and their placeholder.

    Args:
        parts: their JSON.
    """

    def __init__(self, parts: list[bytes]) -> None:
        self.placeholder = uuid.uuid4().hex
        self.is_restored = False
        self._parts = parts

    def restore(self, body: bytes) -> bytes:
        """Put the messages into the body that the SDK has written."""
        self.is_restored = True
        head, *tails = body.split(f'"{self.placeholder}"'.encode())
        parts = [head]
        for tail in tails:
            parts += *self._parts, tail
        return _join_chunks(parts)


_EXTRACTED_MESSAGES: Final = WeakContextVar[_ExtractedMessages]("durable_agent_long_body")


async def _extract_messages(options: Any) -> tuple[Any, _ExtractedMessages | None]:
    """Return a request's options without long messages, and these."""
    for field_name in ("extra_json", "json_data"):
        value: Any = getattr(options, field_name, None)
        body = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
        for name in _MESSAGES:
            items: Any = body.get(name)
            if isinstance(items, list) and is_long(cast("list[Any]", items)):
                parts = await asyncio.to_thread(encode_items, cast("list[Any]", items))
                if parts is None:
                    return options, None
                extracted_messages = _ExtractedMessages(parts)
                return options.model_copy(
                    update={field_name: {**body, name: [extracted_messages.placeholder]}}
                ), extracted_messages
    return options, None


_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _join_chunks(parts: Sequence[bytes]) -> bytes:
    buffer = io.BytesIO()
    for part in parts:
        yield_if_due()
        buffer.write(part)
    return buffer.getvalue()  # without another copy, which takes 10 ms for 30 MB


def _count_characters(value: Any) -> int:
    count = 0
    pending_values = [value]
    while pending_values:
        current_value: Any = pending_values.pop()
        if isinstance(current_value, str):
            count += len(current_value)
        elif isinstance(current_value, dict):
            pending_values += cast("dict[str, Any]", current_value).values()
        elif isinstance(current_value, list):
            pending_values += cast("list[Any]", current_value)
    return count


def _write(value: Any, parts: list[bytes]) -> None:
    if _count_characters(value) <= _LONG_CHARACTERS:
        parts.append(encode_text(_json(value)))
    elif isinstance(value, dict):
        opening = "{"
        for name, element in cast("dict[Any, Any]", value).items():
            if not isinstance(name, str):
                raise TypeError(type(name).__name__)
            parts.append(encode_text(f"{opening}{_json(name)}:"))
            _write(element, parts)
            opening = ","
        parts.append(b"}")
    elif isinstance(value, list):
        opening = b"["
        for element in cast("list[Any]", value):
            yield_if_due()
            parts.append(opening)
            _write(element, parts)
            opening = b","
        parts.append(b"]")
    else:
        parts.append(b'"')
        for start in range(0, len(value), _LONG_CHARACTERS):
            yield_if_due()
            parts.append(encode_text(_json(value[start : start + _LONG_CHARACTERS])[1:-1]))
        parts.append(b'"')
