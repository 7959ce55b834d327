"""To whom a session belongs."""

import pytest

from durable_agent_host.codec.entity_state import (
    UNREADABLE,
    decode_owner,
    decode_session,
    encode_owner,
    encode_session,
    owner_of_document,
)
from durable_agent_host.model.principal import THE_APP, Owner
from durable_agent_host.model.session import Session
from durable_agent_host.session.ownership import bind_session
from durable_agent_host.session.session_import import session_to_import
from tests.durable_agent_host.golden import golden

ADA, BOB = Owner("ada", "contoso"), Owner("bob", "contoso")


def test_the_first_one_who_acts_has_the_session():
    """It stays his; the app itself may act in it, and nobody else."""
    begun = bind_session(Session(), ADA)
    assert begun is not None
    assert begun.owner == ADA
    assert bind_session(begun, ADA) == begun
    assert bind_session(begun, None) == begun
    for other in (BOB, Owner("ada", "fabrikam"), Owner("ada"), THE_APP):
        assert bind_session(begun, other) is None


def test_what_the_app_begins_for_nobody_is_its_own():
    """No caller has it; a session of before that has no owner gets one by the first caller, and not by the app."""
    begun = bind_session(Session(), None)
    assert begun is not None
    assert begun.owner == THE_APP
    assert bind_session(begun, ADA) is None
    before = decode_session(golden("session-v1"))
    assert bind_session(before, None) == before
    adopted = bind_session(before, ADA)
    assert adopted is not None
    assert adopted.owner == ADA


@pytest.mark.parametrize("owner", [ADA, Owner("ada"), THE_APP])
def test_an_owner_is_stored_and_found(owner):
    """In the head, beside what upstream reads; also when the rest cannot be read."""
    document = encode_session(Session(owner=owner))
    assert decode_session(document).owner == owner == owner_of_document(document)
    assert owner_of_document(document | {"schemaVersion": "9.0"}) == owner
    assert decode_owner(encode_owner(owner)) == owner
    assert owner_of_document(golden("session-v1")) is None


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


def test_an_import_believes_no_owner():
    """Whatever the document says, the session is the importer's, or nobody's where nobody is known."""
    document = golden("session-v1-owner")
    rest = document | {"data": document["data"] | {"conversationHistory": []}}
    assert session_to_import(rest, BOB).owner == BOB
    assert session_to_import(rest).owner is None
