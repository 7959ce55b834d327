"""Events of the Messages API as compatible services send them, in the form of the API. Does not use the SDK."""

from collections.abc import Iterator
from typing import Any, Final

from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.providers.event_normalization import Json, joined_text, to_object_list

_CALL: Final = "tool_use"
"""The type of a block that calls a tool of the app, and the stop reason of a message with such blocks."""

_NORMAL_REASONS: Final = frozenset({None, "end_turn", "stop", "tool_calls"})
"""Stop reasons that compatible services send after complete calls as well."""


class MessageEventNormalizer:
    """Normalizes the events of one stream.

    The SDK drops events without a name. The framework needs ``message_stop``, and before it the stop reason
    ``tool_use`` to run the calls. A service that has sent the last ``message_delta``, and closes the connection in good
    order, has finished as well; without another stop reason, it has called the tools whose blocks are finished.
    """

    def __init__(self) -> None:
        self._open_indexes = set[Any]()
        self._has_blocks = self._has_call = self._is_ended = self._is_stopped = False

    def read(self, name: str | None, data: Any, /) -> Iterator[Json]:
        """Return an event."""
        event = object_at(data)
        event_type = event.get("type") or name
        match event_type:
            case "message_start":
                message = object_at(event.get("message"))
                content = to_object_list(message.get("content"))
                reason = joined_text(message.get("stop_reason")) or None
                message |= {"content": content, "usage": _usage(message), "stop_reason": reason}
                event = {**event, "message": message}
                self._has_call = any(block.get("type") == _CALL for block in content)
                self._is_ended = reason is not None
            case "content_block_start":
                if not (block := object_at(event.get("content_block"))):
                    return
                self._has_blocks = True
                self._open_indexes.add(event.get("index"))
                self._has_call = self._has_call or block.get("type") == _CALL
            case "content_block_stop":
                self._open_indexes.discard(event.get("index"))
            case "message_delta":
                self._is_ended = True
                event = self._with_stop_reason(event)
            case "message_stop":
                yield from self._stop(event)
                return
            case "message":  # not streamed
                yield from self.read("message_start", {"message": event})
                yield self._with_stop_reason(
                    {"type": "message_delta", "delta": {"stop_reason": event.get("stop_reason")}}
                )
                return
            case _:
                pass
        yield event if event.get("type") else {**event, "type": event_type}

    def end(self, *, is_done: bool) -> Iterator[Json]:
        """Return ``message_stop`` if it is missing after the last ``message_delta``, or before ``[DONE]``."""
        if not self._is_stopped and (self._is_ended or (is_done and self._has_blocks)):
            yield from self._stop({})

    def _stop(self, event: Json) -> Iterator[Json]:
        self._is_stopped = True
        if not self._is_ended:
            yield self._with_stop_reason({"type": "message_delta"})
        yield {**event, "type": "message_stop"}

    def _with_stop_reason(self, event: Json) -> Json:
        delta = object_at(event.get("delta"))
        reason = joined_text(delta.get("stop_reason")) or None
        is_call = reason in _NORMAL_REASONS and self._has_call and not self._open_indexes
        delta = {**delta, "stop_reason": _CALL if is_call else reason}
        return {**event, "delta": delta, "usage": _usage(event)}


def _usage(holder: Json) -> Json | None:
    return object_at(holder.get("usage")) or None
