"""Makes the events of a service's stream well-formed before its SDK reads them.

The SDKs of OpenAI and Anthropic, which one generator builds, take what a compatible service sends as it is: a missing
list is None, and the framework fails at its first use. The copy of an SDK's client here passes the JSON of each event
through a normalizer of its dialect, which may change, drop or add events. What is stored is still the service's own.
"""

# ruff: noqa: SLF001 - the SDKs have no public way to change a stream's events

import json
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, ClassVar, Final, Protocol, cast

from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.providers.neutral_contents import as_objects

Json = dict[str, Any]

DONE: Final = "[DONE]"
"""The data of the event after the last one; Anthropic does not send it."""


class EventNormalizer(Protocol):
    """Reads the events of one stream in order."""

    def read(self, name: str | None, data: Any, /) -> Iterable[Json]:
        """Return an event as the SDK can read it, with the events that are missing before it.

        Args:
            name: of the event, None without one.
            data: its JSON, or `DONE`.
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
        return _NormalizingDecoder(client._make_sse_decoder(), self.create_normalizer())


def with_normalized_events(client: Any, mixin: type[NormalizedEventsMixin]) -> Any:
    """Copy an SDK's client with a normalizer of its streams' events.

    Returns:
        A copy that shares the connections; anything that is not such a client unchanged.
    """
    if not callable(getattr(client, "_make_sse_decoder", None)) or isinstance(client, mixin):
        return client
    return copy_with_mixin(client.with_options(), mixin)


class _NormalizingDecoder:
    def __init__(self, decoder: Any, normalizer: EventNormalizer) -> None:
        self._decoder = decoder
        self._normalizer = normalizer

    async def aiter_bytes(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[Any]:
        """Decode a stream."""
        async for event in self._decoder.aiter_bytes(chunks):
            is_done = event.data.startswith(DONE)
            try:
                data = DONE if is_done else json.loads(event.data)
            except ValueError:
                yield event  # the SDK reports it
                continue
            for normalized_data in self._normalizer.read(event.event, data):
                yield _ParsedEvent(normalized_data.get("type") or event.event, normalized_data)
            if is_done:
                yield event


class _ParsedEvent:
    """An event of the SDK whose data is parsed already."""

    data: Final = "{}"

    def __init__(self, event: Any, fields: Json) -> None:
        self.event = event
        self._fields = fields

    def json(self) -> Json:
        """Return the data."""
        return self._fields


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


def listed_objects(value: Any) -> list[Json]:
    """Return the objects of a list, which may be missing, or a single object instead."""
    return [cast("Json", value)] if isinstance(value, dict) else as_objects(value)


def json_text(value: Any) -> str:
    """Return the JSON text of arguments, which may be an object."""
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
