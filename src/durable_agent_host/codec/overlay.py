"""The overlay of a conversation to JSON and back."""

from collections.abc import Mapping
from typing import Any, cast

from durable_agent_host.codec.message import decode_message
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import MessagePosition, MessageRange, Overlay, SummaryMessage


def encode_overlay(overlay: Overlay) -> dict[str, Any]:
    """Encode an overlay for storage with the session."""
    wire: dict[str, Any] = {
        "madeBy": overlay.compaction_id,
        "entries": overlay.entries,
        "turnId": overlay.turn_id,
        "tail": list(overlay.tail),
    }
    if overlay.pieces:
        wire["pieces"] = [_encode_piece(piece) for piece in overlay.pieces]
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
            pieces=tuple(_decode_piece(piece) for piece in overlay_json.get("pieces") or ()),
            tail=_decode_position(overlay_json["tail"]),
            compaction_id=str(overlay_json["madeBy"]),
            entries=int(overlay_json["entries"]),
            turn_id=str(overlay_json.get("turnId") or ""),
        )
    except (AttributeError, CorruptStateError, IndexError, KeyError, TypeError, ValueError):
        return None


def _encode_piece(piece: MessageRange | SummaryMessage) -> Any:
    if isinstance(piece, MessageRange):
        return [*piece.first, *piece.last]
    return {
        "name": piece.name,
        "message": dict(piece.message),
        "standsFor": [*piece.first, *piece.last],
        "count": piece.count,
        "turns": [piece.first_turn_id, piece.last_turn_id],
    }


def _decode_piece(wire: Any) -> MessageRange | SummaryMessage:
    if isinstance(wire, list):
        numbers = cast("list[Any]", wire)
        return MessageRange(_decode_position(numbers[:2]), _decode_position(numbers[2:]))
    decode_message(wire["message"])
    positions = wire["standsFor"]
    turns = wire["turns"]
    first = _decode_position(positions[:2])
    last = _decode_position(positions[2:])
    return SummaryMessage(
        str(wire["name"]), wire["message"], first, last, int(wire["count"]), str(turns[0]), str(turns[1])
    )


def _decode_position(numbers: Any) -> MessagePosition:
    entry, message = numbers
    if not (isinstance(entry, int) and isinstance(message, int)) or entry < 0 or message < 0:
        raise ValueError(f"{numbers!r} is no place in a conversation")
    return MessagePosition(entry, message)
