"""The overlay of a conversation to JSON and back."""

from collections.abc import Mapping
from typing import Any, cast

from durable_agent_host.codec.message import decode_message
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import MessagePosition, Overlay


def encode_overlay(overlay: Overlay) -> dict[str, Any]:
    """Encode an overlay for storage with the session."""
    wire: dict[str, Any] = {
        "madeBy": overlay.compaction_id,
        "entries": overlay.entries,
        "tail": list(overlay.tail),
    }
    if overlay.parts:
        wire["parts"] = [list(part) if isinstance(part, MessagePosition) else dict(part) for part in overlay.parts]
    return wire


def decode_overlay(wire: Any) -> Overlay | None:
    """Decode an overlay.

    Returns:
        The overlay; None if it is invalid, because an overlay can be made again.
    """
    if not isinstance(wire, Mapping):
        return None
    overlay_json = cast("Mapping[str, Any]", wire)
    try:
        return Overlay(
            parts=tuple(_decode_part(part) for part in overlay_json.get("parts") or ()),
            tail=_decode_position(overlay_json["tail"]),
            compaction_id=str(overlay_json["madeBy"]),
            entries=int(overlay_json["entries"]),
        )
    except (AttributeError, CorruptStateError, KeyError, TypeError, ValueError):
        return None


def _decode_part(wire: Any) -> MessagePosition | Mapping[str, Any]:
    if isinstance(wire, list):
        return _decode_position(cast("list[Any]", wire))
    decode_message(wire)
    return wire


def _decode_position(numbers: Any) -> MessagePosition:
    entry, message = numbers
    if not (isinstance(entry, int) and isinstance(message, int)) or entry < 0 or message < 0:
        raise ValueError(f"{numbers!r} is no place in a conversation")
    return MessagePosition(entry, message)
