"""To whom a session belongs."""

import pytest

from durable_agent_host.codec.entity_state import (
    UNREADABLE,
    decode_owner,
    decode_session,
    encode_session,
)
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.session.ownership import bind_session
from tests.durable_agent_host.golden import golden

ADA, BOB = Owner("ada", "contoso"), Owner("bob", "contoso")


def test_a_stored_session_with_an_owner_is_read():
    """The document of a session that belongs to somebody stays as it is."""
    document = golden("session-v1-owner")
    session = decode_session(document)
    assert session.owner == Owner("ada", "contoso")
    assert encode_session(session) == document


@pytest.mark.parametrize("wire", [5, "ada", [], {}, {"principal": None}, {"principal": "ada", "tenant": 5}])
def test_an_owner_that_cannot_be_read_is_nobody(wire):
    """A damaged name opens a session to nobody."""
    assert decode_owner(wire) == UNREADABLE
    assert bind_session(Session(owner=decode_owner(wire)), ADA) is None
