"""The request of a hosted client: the SDK does not read the input, and sends the body that it would have sent."""

import json

import httpx2
import openai
import openai.resources.responses.responses as sdk_responses
import pytest
from agent_framework import Message
from agent_framework_openai import OpenAIChatClient
from pydantic import BaseModel

from durable_agent_host.providers.openai.client import adapt_client

MESSAGES = [Message("user", ["größer 😀"]), Message("assistant", ["It is so."]), Message("user", ["go on"])]


class Verdict(BaseModel):
    """What the model is to answer."""

    is_so: bool


OPTIONS = {
    "plain": {"store": False},
    "structured by a class": {"store": False, "response_format": Verdict},
    "structured by a schema": {"response_format": {"type": "json_object"}},
    "continued": {"conversation_id": "resp_1"},
    "in the background": {"background": True},
    "with a body of the app's own": {"extra_body": {"seed": 7}},
    "with an input of the app's own": {"extra_body": {"input": "mine"}},
}


class Refusing:
    """A model server that notes the bodies and refuses them."""

    def __init__(self):
        self.bodies: list[bytes] = []

    async def __call__(self, scope, receive, send):
        """Note a body."""
        body, more = b"", True
        while more:
            event = await receive()
            body, more = body + event["body"], event.get("more_body", False)
        self.bodies.append(body)
        await send({"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": b"{}"})


async def sent(adapt, options, *, stream, azure):
    """Give the body that a client sends."""
    server = Refusing()
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=server)) as http:
        if azure:
            sdk = openai.AsyncAzureOpenAI(
                api_key="k", azure_endpoint="http://model", api_version="v1", http_client=http, max_retries=0
            )
        else:
            sdk = openai.AsyncOpenAI(api_key="k", base_url="http://model/v1", http_client=http, max_retries=0)
        client = adapt(OpenAIChatClient(model="m", async_client=sdk))
        answer = client.get_response(list(MESSAGES), options=dict(options), stream=stream)
        with pytest.raises(Exception, match="failed to complete the prompt"):
            await (answer.get_final_response() if stream else answer)
    (body,) = server.bodies
    return body


@pytest.mark.parametrize("azure", [False, True])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
async def test_the_body_is_that_of_the_apps_client(options, stream, azure):
    """Every kind of request has the same fields with the same values."""
    plain = await sent(lambda client: client, options, stream=stream, azure=azure)
    hosted = await sent(adapt_client, options, stream=stream, azure=azure)
    assert always_asking(json.loads(hosted)) == always_asking(json.loads(plain))


def always_asking(body):
    """Leave out the one difference that is meant: encrypted reasoning is asked for on every turn."""
    return {name: value for name, value in body.items() if name != "include"}


@pytest.mark.parametrize(
    ("options", "stream"),
    [("plain", False), ("plain", True), ("structured by a class", True), ("in the background", True)],
)
async def test_the_sdk_does_not_read_the_items(options, stream, monkeypatch):
    """However long the conversation is, the SDK's request transformer sees no item of it."""
    seen = []

    async def transform(body, kind):
        seen.append(body["input"])
        return await given(body, kind)

    given = sdk_responses.async_maybe_transform
    monkeypatch.setattr(sdk_responses, "async_maybe_transform", transform)
    body = await sent(adapt_client, OPTIONS[options], stream=stream, azure=False)
    assert seen == [[]]
    assert len(json.loads(body)["input"]) >= 1
