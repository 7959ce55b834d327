"""Calls and their answers in a transcript that is sent whole."""

import pytest
from agent_framework import Content, Message
from agent_framework_openai import OpenAIChatClient

from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.providers.openai.client import adapt_client
from durable_agent_host.providers.openai.item_mapping import attach_items

REQUEST = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "ask", "server_label": "wiki", "arguments": "{}"}
RESPONSE = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


def call(call_id):
    return Content("function_call", call_id=call_id, name="f", arguments="{}")


def result(call_id):
    return Content("function_result", call_id=call_id, result="done")


async def sent(*messages, **options):
    client = adapt_client(OpenAIChatClient(model="m", api_key="k"))
    prepared = await client._prepare_options([*messages, Message("user", ["go on"])], options)
    return prepared["input"][:-1]


def approval(*, stamped):
    asked = Content.from_function_call(call_id="mcpr_1", name="ask", arguments="{}", hosted=True, server_name="wiki")
    request = Content.from_function_approval_request(id="mcpr_1", function_call=asked)
    contents = attach_items([request], [REQUEST]) if stamped else [request]
    return Message("assistant", contents), Content.from_function_approval_response(
        approved=True, id="mcpr_1", function_call=asked
    )


@pytest.mark.parametrize("stamped", [True, False])
async def test_a_hosted_approval_is_sent_with_its_answer(stamped):
    """Request and response in their order; a request without its response, or the reverse, stays out."""
    request, response = approval(stamped=stamped)
    assert await sent(request, Message("user", [response])) == [REQUEST, RESPONSE]
    assert await sent(request) == []
    assert await sent(Message("user", [response])) == []


async def test_the_answer_alone_is_sent_where_the_service_keeps_the_request():
    """A continuation has the request."""
    _, response = approval(stamped=True)
    assert await sent(Message("user", [response]), conversation_id="resp_1") == [RESPONSE]


async def test_a_call_id_that_comes_again_is_closed_where_it_is_open():
    """Each call has its own result: an answered one of an earlier turn does not close a later one."""
    messages = [
        Message("assistant", [call("call_1")]),
        Message("tool", [result("call_1")]),
        Message("assistant", [call("call_1")]),
    ]
    items = await sent(*messages)
    assert [item["type"] for item in items] == ["function_call", "function_call_output"] * 2
    assert [item["output"] for item in items if "output" in item] == ["done", LOST_RESULT]


async def test_a_result_without_its_call_stays_out():
    """Also one that stands before its call."""
    assert await sent(Message("tool", [result("call_1")])) == []
    items = await sent(Message("tool", [result("call_1")]), Message("assistant", [call("call_1")]))
    assert [item.get("output") for item in items] == [None, LOST_RESULT]


async def test_results_alone_are_sent_where_the_service_keeps_the_calls():
    """A continuation has the call."""
    items = await sent(Message("tool", [result("call_1")]), conversation_id="resp_1")
    assert [item["output"] for item in items] == ["done"]
