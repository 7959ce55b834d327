"""The JSON of overlays."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.overlay import decode_overlay, encode_overlay
from durable_agent_host.model.overlay import MessagePosition, MessageRange, Overlay, SummaryMessage

PLACES = st.builds(MessagePosition, st.integers(0, 10**6), st.integers(0, 99))
MESSAGES = st.text().map(lambda text: {"role": "assistant", "contents": [{"$type": "text", "text": text}]})
STAND_INS = st.builds(SummaryMessage, st.text(), MESSAGES, PLACES, PLACES, st.integers(0, 999), st.text(), st.text())
OVERLAYS = st.builds(
    Overlay,
    st.lists(st.builds(MessageRange, PLACES, PLACES) | STAND_INS).map(tuple),
    PLACES,
    st.text(),
    st.integers(0, 10**6),
    st.text(),
)


@given(OVERLAYS)
def test_an_overlay_comes_back(overlay):
    """What was written is read, through JSON."""
    assert decode_overlay(json.loads(json.dumps(encode_overlay(overlay)))) == overlay


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


@pytest.mark.parametrize(
    "damage",
    [
        {"tail": [5]},
        {"tail": [-1, 0]},
        {"tail": "50"},
        {"tail": None},
        {"entries": "many"},
        {"pieces": [[0, 0]]},
        {"pieces": [{"name": "n"}]},
        {"pieces": [{**STORED["pieces"][1], "message": {"role": 1}}]},
        {"pieces": 5},
    ],
)
def test_what_is_no_overlay_is_none(damage):
    """It can be made again, so it is no reason to refuse the session."""
    assert decode_overlay(STORED | damage) is None
    assert decode_overlay(None) is None
    assert decode_overlay([]) is None
