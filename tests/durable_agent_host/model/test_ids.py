"""Names of sessions and turns."""

from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.model.ids import derived_id, entity_name


def test_entities_are_named_as_upstream_names_them():
    """The entity of an agent has upstream's name, so that its sessions are found."""
    from agent_framework_durabletask import AgentSessionId

    assert entity_name("BugRepro") == AgentSessionId(name="BugRepro", key="k").entity_name


@given(st.lists(st.text(max_size=5), max_size=4), st.lists(st.text(max_size=5), max_size=4))
def test_derived_ids_differ_when_their_parts_do(parts, other_parts):
    """The same parts give the same id, other parts or other borders between them another."""
    assert (derived_id(*parts) == derived_id(*other_parts)) is (parts == other_parts)
    assert len(derived_id(*parts)) == 32
