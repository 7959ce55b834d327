"""The public `fold`, `encode` and `decode`: what a program of its own needs to store what agents said."""

import asyncio
import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import uuid4

import pytest
from agent_framework import Agent, AgentResponse, AgentSession, Content, Message, tool
from agent_framework_openai import OpenAIChatClient
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI

from durable_agent_host import Conversation, decode, encode, fold
from durable_agent_host.errors import CorruptStateError
from tests.durable_agent_host.samples import CONTENTS, properties
from tests.kit import AgentHost, PracticeModel


@tool
def echo(text: str) -> str:
    """Repeat."""
    return text


@asynccontextmanager
async def bare(model: PracticeModel) -> AsyncIterator[Agent]:
    """The framework's own agent, without a host."""
    async with AsyncOpenAI(api_key="practice", base_url=model.url) as service:
        client = OpenAIChatClient(model="practice", async_client=service)
        yield Agent(client, "Help.", name="Bare", tools=[echo], default_options={"store": False})


def through_json(value):
    """What a store gives back."""
    return decode(json.loads(json.dumps(encode(value))))


def to_dicts(messages):
    """All that messages hold, as plain values."""
    return [message.to_dict() for message in messages]


def test_a_bare_agents_stream_is_folded_and_stored(model: PracticeModel):
    """One content a call, the script whole; the JSON gives an equal response with every id."""
    text = "words of some length, in fragments"
    model.plan(
        {"calls": [{"name": "echo", "arguments": {"text": "one"}}, {"name": "echo", "arguments": {"text": "two"}}]},
        {"items": [{"code": "print(6*7)", "logs": "42"}, {"text": text}], "chunk_characters": 3},
    )

    async def stream():
        async with bare(model) as agent:
            return [update async for update in agent.run("go", stream=True)]

    updates = asyncio.run(stream())
    assert len(updates) > 10
    response = fold(updates)
    kinds = [content.type for message in response.messages for content in message.contents]
    assert kinds == [
        *("function_call", "function_call", "function_result", "function_result"),
        *("code_interpreter_tool_call", "code_interpreter_tool_result", "text"),
    ]
    assert response.text == text
    back = through_json(response)
    assert isinstance(back, AgentResponse)
    assert to_dicts(back.messages) == to_dicts(response.messages)
    assert (back.response_id, back.usage_details) == (response.response_id, response.usage_details)
    stored_text = json.dumps(encode(response))
    assert stored_text.count('"item": {') == 4
    assert len(stored_text) < 5000


def test_a_conversation_of_the_programs_own_is_sent_again_unchanged(model: PracticeModel):
    """A new process that decodes the conversation sends the model the call ids and argument strings of the first."""
    model.plan({"calls": [{"name": "echo", "arguments": '{"text":  "ä"}'}]}, {"text": "ä"}, {"text": "again"})

    async def two_turns():
        question = Message("user", ["go"])
        async with bare(model) as agent:
            first = await agent.run([question])
        document = encode(Conversation([question, *first.messages]))
        read = decode(json.loads(json.dumps(document)))
        assert isinstance(read, Conversation)
        async with bare(model) as agent:
            await agent.run([*read.messages, Message("user", ["more"])])

    asyncio.run(two_turns())
    _, second, third = (request["body"]["input"] for request in model.requests())
    call_items = [item for item in second if item["type"] in {"function_call", "function_call_output"}]
    assert [item for item in third if item["type"] in {"function_call", "function_call_output"}] == call_items
    assert call_items[0]["arguments"] == '{"text":  "ä"}'


contents = st.sampled_from([content for samples in CONTENTS.values() for content in samples]).map(copy.deepcopy)
messages = st.builds(
    lambda role, items, name, message_id, more: Message(
        role, items, author_name=name, message_id=message_id, additional_properties=more
    ),
    st.sampled_from(["user", "assistant", "tool", "system"]),
    st.lists(contents, max_size=3),
    st.sampled_from([None, "a"]),
    st.sampled_from([None, "m"]),
    st.just({}) | properties,
)


@given(st.lists(messages, max_size=6), st.booleans())
def test_any_conversation_comes_back_equal(message_list, has_session):
    """Roles in any order, contents of every type, properties, and the framework's session."""
    session = AgentSession(session_id="s", service_session_id="conv_1") if has_session else None
    back = through_json(Conversation(message_list, session))
    assert isinstance(back, Conversation)
    assert to_dicts(back.messages) == to_dicts(message_list)
    assert (back.agent_session and back.agent_session.to_dict()) == (session and session.to_dict())


def test_an_encoded_conversation_is_imported_as_a_session(lab: AgentHost, model: PracticeModel):
    """The document is a session's: the host imports it, finds nothing to repair, and continues the conversation."""
    message_list = [
        Message("user", ["What did I say?"]),
        Message("assistant", [Content.from_function_call("call_1", "echo", arguments='{"text":"hi"}')]),
        Message("tool", [Content.from_function_result("call_1", result="hi")]),
        Message("assistant", ["hi"]),
    ]
    path = f"/agents/Ledger/sessions/moved-{uuid4().hex}"
    assert lab.post(f"{path}/import", json.dumps(encode(Conversation(message_list))).encode()).status_code == 201
    assert lab.get(f"{path}/verify").json()["problems"] == []
    model.plan({"text": "You said hi."})
    assert lab.run("Ledger", {"message": "And now?", "session_id": path.rpartition("/")[2]}).ok
    sent = model.requests()[-1]["body"]["input"]
    kinds = [item.get("type", item.get("role")) for item in sent]
    assert kinds[-5:] == ["message", "function_call", "function_call_output", "message", "message"], sent
    assert sent[-4]["call_id"] == sent[-3]["call_id"] == "call_1"


@pytest.mark.parametrize("wire", [{}, {"$type": "request"}, {"role": "user"}, {"schemaVersion": "1.1.0"}])
def test_unknown_documents_are_rejected(wire):
    """With what it would have to be."""
    with pytest.raises(CorruptStateError):
        decode(wire)


def test_other_values_are_rejected():
    """A list of messages is none of these: put it into a `Conversation`."""
    with pytest.raises(TypeError, match="Conversation"):
        encode([Message("user", ["hi"])])  # type: ignore[call-overload]
