"""Makes the events of a service's stream well-formed before its SDK reads them.

The SDKs of OpenAI and Anthropic, which one generator builds, take what a compatible service sends as it is: a missing
list is None, and the framework fails at its first use. The copy of an SDK's client here passes the JSON of each event
through a normalizer of its dialect, which may change, drop or add events. What is stored is still the service's own.
The SDKs of Google and of Azure AI Agents read only events that are written as their services write them; they get
events that are decoded here.
"""

# ruff: noqa: SLF001 - the SDKs have no public way to change a stream's events

import json
import re
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar, Final, NamedTuple, Protocol, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.retry_classification import read_failure
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.providers.neutral_contents import as_objects

Json = dict[str, Any]

_DONE: Final = "[DONE]"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_OTHER_LINE: Final = re.compile(rb"$|:|\w")
"""A blank line, a comment, another field of an event."""
_JSON_LINE: Final = re.compile(rb"(?<=\})\s*[\r\n]\s*(?=\{)")
"""Between two objects, one a line; JSON has no line ends within texts."""
_LINE_END: Final = re.compile(rb"\r\n|\n|\r(?=[^\n])")


class EventNormalizer(Protocol):
    """Reads the events of one stream in order."""

    def read(self, name: str | None, data: Any, /) -> Iterable[Json]:
        """Return an event as the SDK can read it, with the events that are missing before it.

        Args:
            name: of the event, None without one.
            data: its JSON.
        """
        ...

    def end(self, *, is_done: bool) -> Iterable[Json]:
        """Return the events that are missing at the end of the stream.

        Args:
            is_done: whether the service has sent ``[DONE]``; otherwise the connection was closed in good order.
        """
        ...


class NormalizedEventsMixin:
    """Passes the events of an SDK's streams through a normalizer; precedes the client's own class in the MRO.

    Attributes:
        create_normalizer: the class of the normalizers, without parameters.
    """

    create_normalizer: ClassVar[type[EventNormalizer]]

    def _make_sse_decoder(self) -> Any:
        client: Any = super()
        return NormalizingDecoder(client._make_sse_decoder(), self.create_normalizer())


def normalize_streams(adapter: Any, client: Any, mixin: type[NormalizedEventsMixin]) -> Any:
    """Give an adapted chat client copies of its SDK's clients with a normalizer; they share the connections.

    Returns:
        The adapter, which was changed, unless it is the app's client itself.
    """
    if adapter is not client:
        for name, sdk in list(cast("dict[str, Any]", vars(adapter)).items()):
            if callable(getattr(sdk, "_make_sse_decoder", None)) and not isinstance(sdk, mixin):
                setattr(adapter, name, copy_with_mixin(sdk.with_options(), mixin))
    return adapter


class NormalizingDecoder(NamedTuple):
    """Decodes the events of one stream, and passes them through a normalizer.

    Attributes:
        decoder: of bytes into events; the SDK's own where it has one.
        normalizer: of the dialect.
    """

    decoder: Any
    normalizer: EventNormalizer

    async def aiter_bytes(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Decode a stream, or the JSON of a service that does not stream."""
        body: list[bytes] = []
        async for event in self.decoder.aiter_bytes(_without_json(chunks, body)):
            if not event.data:
                continue  # not an event, by the specification of event streams
            if event.data.startswith(_DONE):
                for fields in self.normalizer.end(is_done=True):
                    yield _Event(fields.get("type"), fields)
                yield event
                return
            data = json.loads(event.data)
            fields = object_at(data)
            is_event = fields.get("type") or fields.get("choices")
            if not is_event or fields.get("object") == "error" or isinstance(fields.get("error"), str):
                data = _failure_event(fields) or data
            for fields in self.normalizer.read(event.event, data):
                yield _Event(fields.get("type"), fields)
        for fields in (*self._read_body(body), *self.normalizer.end(is_done=bool(body))):
            yield _Event(fields.get("type"), fields)

    def _read_body(self, body: list[bytes]) -> Iterable[Json]:
        for value in json.loads(b"[" + _JSON_LINE.sub(b",", b"".join(body)) + b"]"):
            for response in to_object_list(value):
                yield from self.normalizer.read(None, _failure_event(response) or response)


class EventDecoder:
    """Decodes server-sent events, and failures that a service writes among them as plain JSON."""

    async def aiter_bytes(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Yield the events that have data, without their ids."""
        name = b""
        data: list[bytes] = []
        async for line in _read_lines(chunks):
            if line.startswith(b"data:"):
                data.append(line[5:])
            elif line.startswith(b"event:"):
                name = line[6:]
            elif not line and data:
                yield _Event(name.decode().strip(), None, b"\n".join(data).decode().strip())
                name = b""
                data = []
            elif not _OTHER_LINE.match(line):
                data.append(line)


async def _read_lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    line = b""
    async for chunk in chunks:
        *lines, line = _LINE_END.split(line + chunk)
        for complete_line in lines:
            yield complete_line
    yield line.rstrip(b"\r")
    yield b""


async def _without_json(chunks: AsyncIterator[bytes], body: list[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a stream; add those of a response that is JSON instead to its body."""
    has_started = False
    async for raw_chunk in chunks:
        chunk = raw_chunk if has_started or body else raw_chunk.removeprefix(_BYTE_ORDER_MARK).lstrip()
        if body or (not has_started and chunk.startswith((b"{", b"["))):
            body.append(chunk)
        elif chunk:
            has_started = True
            yield chunk


def _failure_event(fields: Json) -> Json | None:
    """Return the API's event for a failure that a service reports in a form of its own; None for other events."""
    if isinstance(fields.get("error"), dict):
        return {**fields, "type": "error"}
    code, message = read_failure(fields)
    return {"type": "error", "error": {"message": message, "code": code}} if message else None


class _Event(NamedTuple):
    """An event as SDKs have it, whose data may be parsed already."""

    event: Any
    fields: Json | None
    data: str = "{}"

    def json(self) -> Any:
        return json.loads(self.data) if self.fields is None else self.fields


_FIRST_MILLISECONDS: Final = 10**11
"""As seconds, the year 5138."""


def unix_seconds(value: Any) -> float:
    """Return the time of a response in seconds: some services send milliseconds, and some nothing."""
    if isinstance(value, str) and value.replace(".", "", 1).isdigit():
        value = float(value)
    if not isinstance(value, int | float) or not 0 <= value < _FIRST_MILLISECONDS**2:
        return int(time.time())
    while value >= _FIRST_MILLISECONDS:
        value /= 1000
    return value


def joined_text(value: Any) -> str:
    """Return a text that may be a list of texts or of typed parts."""
    if isinstance(value, list):
        return "".join(map(joined_text, cast("list[Any]", value)))
    if isinstance(value, dict):
        fields = cast("Json", value)
        return joined_text(next((fields[name] for name in ("text", "refusal", "value") if fields.get(name)), ""))
    return value if isinstance(value, str) else "" if value is None or isinstance(value, bool) else str(value)


def to_object_list(value: Any) -> list[Json]:
    """Return the objects of a list, which may be missing, or a single object instead."""
    return [cast("Json", value)] if isinstance(value, dict) else as_objects(value)


def json_text(value: Any) -> str:
    """Return the JSON text of arguments, which may be an object."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
