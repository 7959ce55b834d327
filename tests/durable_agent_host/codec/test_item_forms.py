"""What a provider says of its items reaches the codec as data, in one explicit place."""

import pytest
from agent_framework import AgentResponse, Message

from durable_agent_host.codec import item_forms
from durable_agent_host.codec.compact_entry import unpack_entry
from durable_agent_host.codec.message import decode_messages, encode_response_entry
from durable_agent_host.errors import RegistrationError
from durable_agent_host.providers.openai.stored_items import ITEM_FORMS
from tests.durable_agent_host.golden import golden


@pytest.fixture
def nothing_registered():
    """A process whose composition root registered no forms."""
    registered = list(item_forms._registered)
    item_forms._registered.clear()
    item_forms._loaded.clear()
    yield
    item_forms.register_item_forms(registered[0])


def test_importing_the_package_registers_the_forms_of_stored_conversations():
    """Whoever imports any part of the package reads what released versions wrote."""
    assert item_forms.item_forms() is ITEM_FORMS


@pytest.mark.usefixtures("nothing_registered")
def test_without_forms_nothing_is_read_or_written():
    """A packed entry without registered forms is refused with the reason, not read as something else."""
    packed = [entry for entry in golden("session-v1-packed")["data"]["conversationHistory"] if "extensionData" in entry]
    assert packed
    for entry in packed:
        with pytest.raises(RegistrationError, match="no provider's item forms are registered"):
            decode_messages([entry])
        with pytest.raises(RegistrationError, match="register_item_forms"):
            unpack_entry(entry)
    with pytest.raises(RegistrationError, match="nothing was changed"):
        encode_response_entry("t", AgentResponse(messages=[Message("assistant", ["hi"])]), created_at="now")
