"""Bodies are written as what differs from an earlier one, and read back."""

import json

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.turn.body_delta import (
    bounded,
    decode_parts,
    delta_of,
    encode_parts,
    rebuilt,
    whole_text,
    written_characters,
)

TEXTS = st.text(st.sampled_from('{},"ab😀'), max_size=300)


@given(base=TEXTS, more=TEXTS, cut=st.integers(0, 300))
def test_a_body_is_read_back(base: str, more: str, cut: int):
    """Whatever two bodies have in common."""
    for body in (more, base + more, base[:cut] + more + base[cut:], more + base[cut:] * 2):
        parts = decode_parts(json.loads(json.dumps(encode_parts(delta_of(base, body)))))
        assert whole_text(rebuilt(parts, [base])) == body


@given(base=TEXTS, body=TEXTS, most=st.integers(0, 80))
def test_what_is_left_out_keeps_its_length(base: str, body: str, most: int):
    """Of the body, and of the base that it refers to."""
    parts = bounded(delta_of(base, body), most)
    assert written_characters(parts) <= most
    for pieces in (rebuilt(parts, [base]), rebuilt(parts, []), rebuilt(parts, [3, base[3:]])):
        assert sum(one if isinstance(one, int) else len(one) for one in pieces) == len(body)


def test_a_conversation_costs_what_it_adds():
    """What is at the end is new; of what a window has moved, the item where it begins is written, too."""
    items = [{"role": "user", "content": f"{number} " * 60, "id": f"item_{number}"} for number in range(100)]

    def body(first: int, last: int) -> str:
        return json.dumps({"model": "m", "input": items[first:last], "tools": [{"name": "t" * 500}]})

    one = len(json.dumps(items[99]))
    assert written_characters(delta_of(body(0, 99), body(0, 100))) < one + 10
    assert written_characters(delta_of(body(0, 99), body(1, 100))) < 3 * one
