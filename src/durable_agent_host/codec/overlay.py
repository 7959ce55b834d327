"""The overlay of a conversation to JSON and back. Pure."""

from collections.abc import Mapping
from typing import Any, cast

from durable_agent_host.codec.message import decode_message
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.overlay import Overlay, Place, Span, StandIn


def encode_overlay(overlay: Overlay) -> dict[str, Any]:
    """Encode an overlay for storage with the session. Guarantee: pure.

    Args:
        overlay: of the conversation.

    Returns:
        A JSON object.
    """
    wire: dict[str, Any] = {
        "madeBy": overlay.made_by,
        "entries": overlay.entries,
        "turnId": overlay.turn_id,
        "tail": list(overlay.tail),
    }
    if overlay.pieces:
        wire["pieces"] = [_encode_piece(piece) for piece in overlay.pieces]
    return wire


def decode_overlay(wire: Any) -> Overlay | None:
    """Decode an overlay.

    Guarantee: pure.

    Args:
        wire: from `encode_overlay`, or anything else.

    Returns:
        The overlay; None if it is invalid, because an overlay can be made again.
    """
    if not isinstance(wire, Mapping):
        return None
    stored = cast("Mapping[str, Any]", wire)
    try:
        return Overlay(
            pieces=tuple(_decode_piece(piece) for piece in stored.get("pieces") or ()),
            tail=_place(stored["tail"]),
            made_by=str(stored["madeBy"]),
            entries=int(stored["entries"]),
            turn_id=str(stored.get("turnId") or ""),
        )
    except (AttributeError, CorruptStateError, IndexError, KeyError, TypeError, ValueError):
        return None


def _encode_piece(piece: Span | StandIn) -> Any:
    if isinstance(piece, Span):
        return [*piece.first, *piece.last]
    return {
        "name": piece.name,
        "message": dict(piece.message),
        "standsFor": [*piece.first, *piece.last],
        "count": piece.count,
        "turns": [piece.first_turn_id, piece.last_turn_id],
    }


def _decode_piece(wire: Any) -> Span | StandIn:
    if isinstance(wire, list):
        numbers = cast("list[Any]", wire)
        return Span(_place(numbers[:2]), _place(numbers[2:]))
    decode_message(wire["message"])
    stands_for = wire["standsFor"]
    turns = wire["turns"]
    first = _place(stands_for[:2])
    last = _place(stands_for[2:])
    return StandIn(str(wire["name"]), wire["message"], first, last, int(wire["count"]), str(turns[0]), str(turns[1]))


def _place(numbers: Any) -> Place:
    entry, message = numbers
    if not (isinstance(entry, int) and isinstance(message, int)) or entry < 0 or message < 0:
        raise ValueError(f"{numbers!r} is no place in a conversation")
    return Place(entry, message)
