"""The adapted client: a copy, for clients of the Responses API alone; and what counts as forgotten."""

import httpx2
import openai
import pytest
from agent_framework import Content, Message
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.model.provider_item import STAMP, LostState
from durable_agent_host.providers.generic_provider import remove_carriers
from durable_agent_host.providers.openai.client import adapt_client
from durable_agent_host.providers.openai.errors import find_lost_state
from durable_agent_host.providers.openai.item_mapping import attach_items, group_by_item, rebuild_item
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.providers.openai.request_items import replayable_messages, with_valid_ids
from durable_agent_host.providers.registry import provider_for
from durable_agent_host.session.transcript import replay_messages
from tests.durable_agent_host.golden import golden

MCP_LIST = {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "wiki", "tools": [{"name": "ask"}]}


def test_the_users_client_is_not_changed():
    """The copy has the overrides and shares the connection; the client and its class stay."""
    client = OpenAIChatClient(model="m", api_key="k")
    before = dict(vars(client))
    hosted = adapt_client(client)
    assert isinstance(hosted, OpenAIChatClient)
    assert type(client) is OpenAIChatClient
    assert vars(client) == before
    assert hosted.client._client is client.client._client
    assert adapt_client(hosted) is hosted


def test_a_subclass_of_the_users_keeps_its_ways():
    """What a user's own client class overrides still holds."""

    class Mine(OpenAIChatClient):
        def service_url(self):
            return "mine"

    hosted = adapt_client(Mine(model="m", api_key="k"))
    assert isinstance(hosted, Mine)
    assert hosted.service_url() == "mine"


def test_azure_is_adapted_too():
    """Azure OpenAI is the same client with another endpoint."""
    client = OpenAIChatClient(model="m", azure_endpoint="https://x.openai.azure.com", api_key="k")
    assert provider_for(client) is RESPONSES


def test_other_clients_are_left_alone():
    """A client that nobody knows is the same object."""
    client = object()
    assert provider_for(client).adapt(client) is client


def test_carriers_are_for_their_provider_alone():
    """An item that no content stands for rides on an empty text, which other clients do not get."""
    contents = attach_items([Content("text", text="hi")], [MCP_LIST])
    messages = [Message("assistant", contents), Message("assistant", contents[:1])]
    assert [[item.text for item in message.contents] for message in remove_carriers(messages)] == [["hi"]]
    assert rebuild_item(next(group_by_item(contents))) == MCP_LIST


def refused(status, message, code=None):
    response = httpx2.Response(status, request=httpx2.Request("POST", "http://127.0.0.1:9/v1/responses"))
    body = {"message": message, "code": code}
    return openai.APIStatusError(message, response=response, body=body)


@pytest.mark.parametrize(
    ("error", "forgotten"),
    [
        (
            refused(400, "Previous response with id 'resp_1' not found.", "previous_response_not_found"),
            LostState("continuation"),
        ),
        (refused(404, "Response with id 'resp_1' not found."), LostState("continuation")),
        (refused(404, "Conversation with id 'conv_1' not found."), LostState("continuation")),
        (refused(400, "Expected container_id: cntr_1a"), LostState("container", "cntr_1a")),
        (refused(400, "Container is expired."), LostState("container")),
        (refused(404, "The model 'x' does not exist.", "model_not_found"), None),
        (refused(500, "Container is expired."), None),
        (refused(400, "No tool output found for function call call_1."), LostState("continuation")),
        (refused(400, "No tool output found for custom tool call call_1."), LostState("continuation")),
        (
            refused(400, "The following MCP approval requests do not have an approval: mcpr_1"),
            LostState("continuation"),
        ),
        (refused(400, "No.", "invalid_encrypted_content"), LostState("reasoning")),
        (refused(400, "The encrypted content gAAA...DQ== could not be verified."), LostState("reasoning")),
        (
            refused(400, "The encrypted content for item rs_1 could not be verified. Reason: Encrypted content could"),
            LostState("reasoning"),
        ),
        (refused(400, "No tool call found for function call output with call_id call_1."), None),
        (ValueError("Response with id 'resp_1' not found."), None),
    ],
)
def test_what_the_service_has_forgotten(error, forgotten):
    """Its own words for a response or a container that is gone, and nothing else."""
    assert find_lost_state(error) == forgotten


def reasoning(**fields):
    return Content("text_reasoning", **{"id": "rs_1", "text": "hm", "protected_data": "sealed"} | fields)


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize(
    "contents",
    [
        [reasoning()],
        [reasoning(protected_data=None), Content("text", text="hi")],
        [reasoning(id=None), Content("text", text="hi")],
        [Content("text", text="hi"), reasoning()],
    ],
)
def test_reasoning_without_payload_or_follower_stays_out(contents, stored):
    """It is not replayed at all, and the message given stays as it was."""
    message = Message("assistant", list(contents))
    (sent,) = replayable_messages([message], uses_service_storage=stored, can_send_reasoning=lambda _: False)
    assert [content.type for content in sent.contents] == ["text"] * (len(contents) - 1)
    assert message.contents == contents


def test_reasoning_with_both_is_sent():
    """A call is a follower with an id of its own; a text without one only where nothing is stored."""
    call = Content("function_call", call_id="call_1", name="f", arguments="{}")
    for follower, stored in [(call, True), (call, False), (Content("text", text="hi"), False)]:
        message = Message("assistant", [reasoning(), follower])
        assert replayable_messages([message], uses_service_storage=stored, can_send_reasoning=lambda _: False) == [
            message
        ]
    answer = Message("assistant", [reasoning(), Content("text", text="hi")])
    (sent,) = replayable_messages([answer], uses_service_storage=True, can_send_reasoning=lambda _: False)
    assert [content.type for content in sent.contents] == ["text"]


def test_long_call_ids_still_pair():
    """A call and its output get the same short id, and an id that comes twice is made another."""
    long = "x" * 90
    call = {"type": "function_call", "call_id": long, "id": "fc_" + long, "name": "f", "arguments": "{}"}
    sent = with_valid_ids([call, {"type": "function_call_output", "call_id": long, "output": ""}, call])
    assert len({item["call_id"] for item in sent}) == 1
    assert all(len(item["call_id"]) <= 64 for item in sent)
    assert len({item["id"] for item in sent if "id" in item}) == 2
    assert sent == with_valid_ids([call, {"type": "function_call_output", "call_id": long, "output": ""}, call])


def test_items_as_they_were_stored_first_are_still_sent():
    """The golden file: an entry of the first version, and the input items that stand for it."""
    stored = golden("openai-items-v1")
    messages = replay_messages(stored["entries"])[1:]
    sent = [
        rebuild_item(group) if STAMP in group[0].additional_properties else group[0].call_id
        for message in messages
        for group in group_by_item([content for content in message.contents if content.type != "function_result"])
    ]
    assert sent == [item for item in stored["input"] if item["type"] != "function_call_output"]
