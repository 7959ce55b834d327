"""Ids and signed values."""

from hypothesis import given
from hypothesis import strategies as st

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.ids import BODY_LENGTHS, IdGenerator


def test_ids_have_the_prefixes_and_lengths_of_the_live_api():
    """A response id has 55 characters, a call id 29, a container file 38."""
    id_generator = IdGenerator("seed")
    assert {prefix: len(id_generator.new(prefix)) for prefix in ("resp_", "call_", "cfile_", "cntr_")} == {
        "resp_": 55,
        "call_": 29,
        "cfile_": 38,
        "cntr_": 53,
    }
    assert all(id_generator.new(prefix).startswith(prefix) for prefix in BODY_LENGTHS)


def test_ids_follow_from_the_seed_and_never_come_twice():
    """The same seed gives the same ids, another seed others."""
    first, again, other = IdGenerator("one"), IdGenerator("one"), IdGenerator("two")
    ids = [first.new("msg_") for _ in range(500)]
    assert ids == [again.new("msg_") for _ in range(500)]
    assert not set(ids) & {other.new("msg_") for _ in range(500)}
    assert len(set(ids)) == 500
    assert len(first.new_like("call_abcdef")) == len("call_abcdef")


@given(st.text(), st.text())
def test_signed_values_are_recognised_without_state(item_id, text):
    """A signed value is genuine without any stored state."""
    assert sealed.is_genuine(sealed.sign_reasoning(item_id, text))


@given(st.integers(min_value=0), st.sampled_from("ABCabc019-_"))
def test_a_modified_character_invalidates_the_signature(index, letter):
    """A modified value is not genuine."""
    genuine_value = sealed.sign_reasoning("rs_1", "a thought of thirty characters")
    index %= len(genuine_value)
    modified_value = genuine_value[:index] + letter + genuine_value[index + 1 :]
    assert sealed.is_genuine(modified_value) == (modified_value == genuine_value)


@given(st.text())
def test_foreign_values_are_not_genuine(value):
    """Checking never raises, regardless of the text."""
    assert not sealed.is_genuine(value)
