"""The JSON of overlays."""

from durable_agent_host.codec.overlay import decode_overlay, encode_overlay

STORED = {
    "madeBy": "SlidingWindowStrategy(keep_last_groups=2); ResponsesProvider",
    "entries": 6,
    "turnId": "turn-2",
    "tail": [5, 1],
    "pieces": [
        [0, 0, 0, 0],
        {
            "name": "turn-2/1",
            "message": {"role": "assistant", "contents": [{"$type": "text", "text": "A summary."}]},
            "standsFor": [1, 0, 5, 0],
            "count": 7,
            "turns": ["turn-0", "turn-2"],
        },
    ],
}
"""As this version stores it."""


def test_a_stored_overlay_is_read():
    """The form of stored overlays does not change."""
    overlay = decode_overlay(STORED)
    assert overlay is not None
    assert overlay.tail == (5, 1)
    assert encode_overlay(overlay) == STORED
