"""The model's response: items to stream, or a failure to simulate."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from practice_model.dialects.responses import event_grammar
from practice_model.dialects.responses.items import Json


@dataclass(frozen=True)
class Delivery:
    """How a response is sent; the defaults are a complete, fast stream.

    Args:
        chunk_characters: length of text, code and argument deltas.
        delay_milliseconds: pause before every event; 0 for none.
        break_after_events: the connection closes after this many events; None for never.
        clock: whether the request log records the time of each delta, to measure delays.
        until_file: a stream sends its last event once this file exists; empty to send it immediately.
    """

    chunk_characters: int = event_grammar.DEFAULT_CHUNK_CHARACTERS
    delay_milliseconds: int = 0
    break_after_events: int | None = None
    clock: bool = False
    until_file: str = ""

    @classmethod
    def parse(cls, step: Json) -> "Delivery":
        """Read the delivery of a plan's step."""
        return cls(*(step.get(field.name, field.default) for field in fields(cls)))


@dataclass(frozen=True)
class FakeResponse:
    """The response to one model call.

    Args:
        items: final output items.
        failure: `code` and `message` of an error event that ends the stream.
        incomplete: the reason of an incomplete response.
        usage: token counts that override the computed ones.
    """

    items: list[Json] = field(default_factory=list[Json])
    delivery: Delivery = field(default_factory=Delivery)
    failure: Mapping[str, Any] | None = None
    incomplete: str | None = None
    usage: Mapping[str, Any] | None = None
