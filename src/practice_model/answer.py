"""What the practice model decided to send: items to stream, a recording to replay, or a failure to act out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from practice_model import grammar
from practice_model.items import Json


@dataclass(frozen=True)
class Delivery:
    """How an answer goes over the wire; the defaults are a healthy, fast stream.

    Args:
        chunk_characters: length of text, code and argument deltas.
        delay_milliseconds: pause before every event, 0 for as fast as possible.
        break_after_events: the connection ends after this many events; None for never.
        clock: whether the log of requests notes when each delta was sent, for those who measure delays.
    """

    chunk_characters: int = grammar.DEFAULT_CHUNK_CHARACTERS
    delay_milliseconds: int = 0
    break_after_events: int | None = None
    clock: bool = False


@dataclass(frozen=True)
class HttpError:
    """An HTTP error in the place of an answer; `retry_after` is in seconds."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    kind: str = "invalid_request_error"
    retry_after: float | None = None

    @property
    def body(self) -> Json:
        """The error body in the API's own shape."""
        shown = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": shown}


@dataclass(frozen=True)
class Answer:
    """One model call's answer.

    Args:
        items: the output items in their final form.
        failure: `code` and `message` of an error event that ends the stream.
        incomplete: the reason of a response that is cut short.
        usage: token counts in the place of the computed ones.
        recorded_response: a recorded response object, sent as it is; `items` are then its items.
        recorded_events: the recorded stream of that response; None if only its body was recorded.
    """

    items: list[Json] = field(default_factory=list[Json])
    delivery: Delivery = field(default_factory=Delivery)
    failure: Mapping[str, Any] | None = None
    incomplete: str | None = None
    usage: Mapping[str, Any] | None = None
    recorded_response: Json | None = None
    recorded_events: list[Json] | None = None
