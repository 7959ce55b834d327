"""Writes long requests in parts, in a thread, so that the loop and other threads run in between.

The SDKs write a body with one call of `json.dumps`, which blocks all threads of the process: 30 MB take 0.3 s.
Anthropic's also copies it before, on the loop of all agents. So the messages of a long request are written here, and
the SDK gets a short text in their place, which is replaced in the body that the SDK has written: whatever its hooks
change around the messages stays.
"""

# ruff: noqa: SLF001 - SDKs have no public way to write a body

import asyncio
import io
import json
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from durable_agent_host.agent.overriding import copy_with
from durable_agent_host.errors import ProviderError
from durable_agent_host.loops.aside import MANY
from durable_agent_host.loops.giving_way import give_way
from durable_agent_host.loops.weak_context_var import WeakContextVar
from durable_agent_host.providers.whole_characters import encoded

_LONG_CHARACTERS: Final = 256 * 1024
"""A longer text is written in parts, some milliseconds each."""
_LONG_LIST: Final = 512 * 1024
"""From this many characters of messages, an SDK would take some milliseconds."""
_SDKS: Final = ("openai.", "anthropic.")
_HOOKS: Final = ("request", "_prepare_options", "_build_request", "_prepare_request")
_MESSAGES: Final = ("messages", "input")


def sends_in_parts(sdk: Any) -> Any:
    """Copy a client of an SDK so that it writes long requests in parts.

    Guarantee: pure; the bodies are those of the given client.

    Args:
        sdk: of OpenAI or Anthropic. It is returned unchanged when it has middleware, puts contents into its traces, or
            is of a class of the app's own that overrides how requests are made: these read the messages. So is anything
            else.

    Returns:
        A copy that shares the connections.
    """
    kind = cast("type[Any]", type(sdk))
    made_by = [str(getattr(getattr(kind, name, None), "__module__", "")) for name in _HOOKS]
    is_traced = bool(getattr(getattr(sdk, "_otel", None), "records_content", False))
    is_read = is_traced or bool(getattr(sdk, "middleware", ()))
    return copy_with(sdk, _SendsInParts) if all(name.startswith(_SDKS) for name in made_by) and not is_read else sdk


def check_sent() -> None:
    """Check that the messages are back in the request that is sent; called before each.

    Raises:
        ProviderError: the SDK makes requests in another way than those that are known here.
    """
    if (taken := _TAKEN.get()) is not None and not taken.is_back:
        raise ProviderError(
            "this version of the model's SDK makes requests in an unknown way, so a long one was not sent: install the "
            "version of requirements.txt",
            retryable=False,
        )


def is_long(items: Sequence[Any]) -> bool:
    """Return whether messages take long to write. Guarantee: pure."""
    return len(items) > MANY or sum(map(_characters, items)) > _LONG_LIST


def encoded_items(items: Sequence[Any]) -> list[bytes] | None:
    """Write messages as the SDKs of OpenAI and Anthropic do, half a surrogate pair as the replacement character.

    Guarantee: pure.

    Args:
        items: of a request.

    Returns:
        Their JSON without the brackets, in parts; None when one is not a JSON value: the SDK may know how to write it.
    """
    parts: list[bytes] = []
    try:
        for item in items:
            give_way()
            parts.append(b",")
            _write(item, parts)
    except (TypeError, ValueError, RecursionError):
        return None
    return parts[1:]


def encoded_body(body: Mapping[str, Any]) -> bytes | None:
    """Write a whole body, see `encoded_items`."""
    parts = encoded_items([body])
    return _joined(parts) if parts is not None else None


class _SendsInParts:
    """The override; stands before the SDK's own class in the method resolution order."""

    async def request(self, cast_to: Any, options: Any, **kwargs: Any) -> Any:
        client: Any = super()
        options, taken = await _taken_out(options)
        token = _TAKEN.set(taken)
        try:
            return await client.request(cast_to, options, **kwargs)
        finally:
            _TAKEN.reset(token)

    async def _prepare_request(self, request: Any) -> None:
        client: Any = super()
        if (taken := _TAKEN.get()) is not None:
            body = await asyncio.to_thread(taken.put_back, request.content)
            headers = request.headers.copy()
            del headers["content-length"]
            kind = cast("type[Any]", type(request))
            whole = kind(request.method, request.url, headers=headers, content=body, extensions=request.extensions)
            request.__dict__.update(whole.__dict__)
        await client._prepare_request(request)


class _Taken:
    """The messages of one request, and the text in their place.

    Args:
        parts: their JSON.
    """

    def __init__(self, parts: list[bytes]) -> None:
        self.stand_in = uuid.uuid4().hex
        self.is_back = False
        self._parts = parts

    def put_back(self, body: bytes) -> bytes:
        """Put the messages into the body that the SDK has written."""
        self.is_back = True
        before, *after = body.split(f'"{self.stand_in}"'.encode())
        parts = [before]
        for rest in after:
            parts += *self._parts, rest
        return _joined(parts)


_TAKEN: Final = WeakContextVar[_Taken]("durable_agent_long_body")


async def _taken_out(options: Any) -> tuple[Any, _Taken | None]:
    """Return a request's options without long messages, and these."""
    for place in ("extra_json", "json_data"):
        given: Any = getattr(options, place, None)
        body = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
        for name in _MESSAGES:
            items: Any = body.get(name)
            if isinstance(items, list) and is_long(cast("list[Any]", items)):
                parts = await asyncio.to_thread(encoded_items, cast("list[Any]", items))
                if parts is None:
                    return options, None
                taken = _Taken(parts)
                return options.model_copy(update={place: {**body, name: [taken.stand_in]}}), taken
    return options, None


_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


def _joined(parts: Sequence[bytes]) -> bytes:
    whole = io.BytesIO()
    for part in parts:
        give_way()
        whole.write(part)
    return whole.getvalue()  # without one more copy: of 30 MB, that takes 10 ms


def _characters(value: Any) -> int:
    count, waiting = 0, [value]
    while waiting:
        one: Any = waiting.pop()
        if isinstance(one, str):
            count += len(one)
        elif isinstance(one, dict):
            waiting += cast("dict[str, Any]", one).values()
        elif isinstance(one, list):
            waiting += cast("list[Any]", one)
    return count


def _write(value: Any, parts: list[bytes]) -> None:
    if _characters(value) <= _LONG_CHARACTERS:
        parts.append(encoded(_json(value)))
    elif isinstance(value, dict):
        opening = "{"
        for name, one in cast("dict[Any, Any]", value).items():
            if not isinstance(name, str):
                raise TypeError(type(name).__name__)
            parts.append(encoded(f"{opening}{_json(name)}:"))
            _write(one, parts)
            opening = ","
        parts.append(b"}")
    elif isinstance(value, list):
        opening = b"["
        for one in cast("list[Any]", value):
            give_way()
            parts.append(opening)
            _write(one, parts)
            opening = b","
        parts.append(b"]")
    else:
        parts.append(b'"')
        for start in range(0, len(value), _LONG_CHARACTERS):
            give_way()
            parts.append(encoded(_json(value[start : start + _LONG_CHARACTERS])[1:-1]))
        parts.append(b'"')
