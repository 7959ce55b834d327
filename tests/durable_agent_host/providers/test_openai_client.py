"""The adapted client: a copy, for clients of the Responses API alone; and what counts as forgotten."""

from agent_framework_openai import OpenAIChatClient

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.openai.item_mapping import group_by_item, input_item
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.session.transcript import replay_messages
from tests.durable_agent_host.golden import golden


def test_the_users_client_is_not_changed():
    """The copy has the overrides and shares the connection; the client and its class stay."""
    client = OpenAIChatClient(model="m", api_key="k")
    before = dict(vars(client))
    adapted_client = RESPONSES.adapt(client)
    assert isinstance(adapted_client, OpenAIChatClient)
    assert type(client) is OpenAIChatClient
    assert vars(client) == before
    assert adapted_client.client._client is client.client._client
    assert RESPONSES.adapt(adapted_client) is adapted_client


def test_a_subclass_of_the_users_keeps_its_ways():
    """What a user's own client class overrides still holds."""

    class Subclass(OpenAIChatClient):
        def service_url(self):
            return "mine"

    adapted_client = RESPONSES.adapt(Subclass(model="m", api_key="k"))
    assert isinstance(adapted_client, Subclass)
    assert adapted_client.service_url() == "mine"


def test_stored_items_are_sent():
    """The golden file: stored entries, and the input items that they are sent as."""
    items = golden("openai-items-v1")
    messages = replay_messages(items["entries"])[1:]
    sent = [
        input_item(group) if STAMP in group[0].additional_properties else group[0].call_id
        for message in messages
        for group in group_by_item([content for content in message.contents if content.type != "function_result"])
    ]
    assert sent == [item for item in items["input"] if item["type"] != "function_call_output"]
