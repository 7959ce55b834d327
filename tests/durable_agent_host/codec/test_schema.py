"""The schema of a session: what is read has no fault, and what has none is read."""

import json

import pytest

from durable_agent_host.codec.content_fields import FIELDS
from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.session_schema import find_schema_violations
from durable_agent_host.codec.wire_types import ContentFieldsWire
from durable_agent_host.errors import StateError
from durable_agent_host.session.repair import make_readable
from durable_agent_host.session.transcript import replay_messages
from tests.durable_agent_host.golden import WIRE, golden
from tests.durable_agent_host.mutations import mutations
from tests.sweeps import SEED, count

EACH = count("EXAMPLES", short=30, long=1000)
SESSIONS = sorted(path.stem for path in WIRE.glob("session-*.json"))


def test_every_field_of_the_frameworks_contents_has_a_shape():
    """A field that a new framework brings fails here, instead of being let through unseen."""
    assert set(ContentFieldsWire.__annotations__) == FIELDS


@pytest.mark.parametrize("name", SESSIONS)
def test_documents_of_released_versions_are_valid(name):
    """Nothing is found in a golden document, with its unknown parts, and mending leaves it as it is."""
    assert find_schema_violations(golden(name)) == []
    assert make_readable(golden(name)) == (golden(name), [])


@pytest.mark.sweep
@pytest.mark.parametrize("name", SESSIONS)
def test_valid_documents_are_read_and_others_are_repaired(name):
    """Of a changed document either nothing is said, and it is read, or it is mended, and then it is read."""
    for change, mutated in mutations(golden(name), EACH, seed=f"{SEED} codec {name}"):
        before = json.dumps(mutated)
        try:
            repaired, changes = make_readable(mutated)
        except StateError:
            continue
        assert json.dumps(mutated) == before
        assert find_schema_violations(repaired) == [], change
        assert changes or repaired == mutated, change
        session = decode_session(repaired)
        entries = [entry for entry in session.entries if entry["$type"] in ("request", "response")]
        replay_messages(entries)
        list(session.receipts)
        assert decode_session(encode_session(session)).entries == session.entries, change
