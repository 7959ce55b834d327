"""Answers that the Responses API gives up in their middle."""

from types import SimpleNamespace

import httpx2
import pytest
from agent_framework import Message
from agent_framework.exceptions import ChatClientException
from agent_framework_openai import OpenAIChatClient
from openai import AsyncOpenAI

from durable_agent_host.errors import ProviderError
from durable_agent_host.providers.openai.client import adapt_client
from durable_agent_host.providers.openai.errors import explain_error, parse_failure

CREATED = (
    '{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","object":"response","created_at":1,'
    '"status":"in_progress","model":"m","output":[],"parallel_tool_calls":true,"tool_choice":"auto","tools":[]}}'
)
DELTA = (
    '{"type":"response.output_text.delta","sequence_number":1,"item_id":"msg_1","output_index":0,"content_index":0,'
    '"delta":"Half an","logprobs":[]}'
)
ERROR = '{"type":"error","code":"server_error","message":"It broke.","param":null,"sequence_number":2}'
FAILED = CREATED.replace("response.created", "response.failed").replace(
    '"status":"in_progress"', '"status":"failed","error":{"code":"server_error","message":"It broke."}'
)


def failed_response(code: str | None) -> SimpleNamespace:
    """What `response.failed` carries."""
    return SimpleNamespace(status="failed", error=SimpleNamespace(code=code, message="so it is") if code else None)


@pytest.mark.parametrize("last", [ERROR, FAILED])
async def test_a_failed_stream_is_no_answer(last):
    """Whether the service says it by `error` or by `response.failed` alone, the call fails with its reason."""
    body = "".join(f"data: {event}\n\n" for event in (CREATED, DELTA, last))
    answer = httpx2.Response(200, text=body, headers={"content-type": "text/event-stream"})
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: answer)) as http:
        sdk = AsyncOpenAI(api_key="none", base_url="http://model", http_client=http, max_retries=0)
        client = adapt_client(OpenAIChatClient(model="m", async_client=sdk))
        with pytest.raises(ChatClientException) as caught:
            await client.get_response([Message("user", ["Hi"])], stream=True).get_final_response()
    reason = explain_error(caught.value)
    assert reason is not None
    assert reason.retryable
    assert "server_error: It broke" in str(reason)


@pytest.mark.parametrize(
    ("code", "retryable"),
    [("server_error", True), ("rate_limit_exceeded", True), (None, True), ("invalid_prompt", False)],
)
def test_failures_that_pass_are_told_from_those_of_the_request(code, retryable):
    """What the service says of the request would be said again; the rest may pass."""
    error = parse_failure(failed_response(code))
    assert isinstance(error, ProviderError)
    assert error.retryable == retryable
    assert parse_failure(SimpleNamespace(type="response.failed", response=failed_response(code))) is not None
    assert parse_failure(SimpleNamespace(type="response.completed", response=None)) is None
