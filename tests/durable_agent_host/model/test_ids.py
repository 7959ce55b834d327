"""Names of sessions and turns."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.errors import RequestError
from durable_agent_host.model.ids import check_session_id, derived_id, entity_name


@pytest.mark.parametrize(
    "session_id",
    ["a", "3fad5badcd864f138b0af63abc95cc03", "user:42", "größe 😀", "x" * 128, "a.b_c-d", "@dafx".strip("@")],
)
def test_usable_ids_are_taken_as_they_are(session_id):
    """A session id is the client's own text."""
    assert check_session_id(session_id) == session_id


@pytest.mark.parametrize("character", [*list("/\\#?@%"), "\x00", "\n", "\t", "\x1f", "\x7f", "\x85", chr(0xD800)])
def test_characters_that_no_store_carries_are_refused_by_name(character):
    """A forbidden character is named in the error."""
    with pytest.raises(RequestError) as refused:
        check_session_id(f"a{character}b")
    assert repr(character) in str(refused.value)


@pytest.mark.parametrize("session_id", ["", " ", ".", "..", " . "])
def test_ids_without_a_letter_are_refused(session_id):
    """Blanks and dots alone are no id: stores and URLs drop them."""
    with pytest.raises(RequestError, match="no letter or digit"):
        check_session_id(session_id)


def test_long_ids_are_refused_with_both_lengths():
    """The error says how long the id is and how long it may be."""
    with pytest.raises(RequestError, match=r"5000 characters, and 128"):
        check_session_id("x" * 5000)


def test_entities_are_named_as_upstream_names_them():
    """The entity of an agent has upstream's name, so that its sessions are found."""
    from agent_framework_durabletask import AgentSessionId

    assert entity_name("BugRepro") == AgentSessionId(name="BugRepro", key="k").entity_name


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_derived_ids_differ_when_their_parts_do(parts, others):
    """The same parts give the same id, other parts or other borders between them another."""
    assert (derived_id(*parts) == derived_id(*others)) is (parts == others)
    assert len(derived_id(*parts)) == 32
