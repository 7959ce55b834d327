"""What an app asks of a run of Azure AI Agents, as the service gets it; and steps of unknown kinds."""

import json

import pytest
from agent_framework import Content, Message, tool
from pydantic import BaseModel

from durable_agent_host.codec.message import encode_message
from durable_agent_host.errors import ProviderError
from durable_agent_host.stream.fold import fold_updates
from durable_agent_host_azure_ai_agents.provider import AZURE_AI_AGENTS
from durable_agent_host_azure_ai_agents.run_events import RunReader
from durable_agent_host_azure_ai_agents.thread_contents import call_contents, with_call
from tests.durable_agent_host.provider_lab import ProviderLab, restore_block


class Page(BaseModel):
    """A place in a book."""

    page: int


@tool(name="look_up")
def find_word(word: str) -> str:
    """Look a word up."""
    return f"{word}: found on page 7"


async def run(lab, *contents, **options):
    """Ask an agent by the client alone."""
    async with lab.agent("azure-ai-agents") as agent:
        return await agent.run(Message("user", list(contents)), options=options)


async def test_a_response_has_the_requested_format():
    """The schema goes with the run, and the answer is read by it."""
    lab = ProviderLab()
    lab.plan({"text": '{"page": 7}'})
    assert (await run(lab, "Where is it?", response_format=Page)).value == Page(page=7)
    expected_format = {"type": "json_schema", "json_schema": {"name": "Page", "schema": Page.model_json_schema()}}
    assert lab.bodies[-1]["response_format"] == expected_format


async def test_a_run_uses_the_tools_that_the_app_chooses():
    """One by its name, some, or none."""
    chosen = {"mode": "required", "required_function_name": "look_up"}
    function_choice = {"type": "function", "function": {"name": "look_up"}}
    for choice, sent in ((chosen, function_choice), ("none", "none"), ("auto", "auto")):
        lab = ProviderLab(tools=[find_word])
        lab.plan({"text": "Done."})
        await run(lab, "Look it up.", tool_choice=choice)
        assert lab.bodies[-1]["tool_choice"] == sent


async def test_files_of_a_message_are_attached():
    """A file of the service by its id, bytes after their upload; an image is a part of the message."""
    lab = ProviderLab()
    lab.plan({"text": "Read."})
    await run(
        lab,
        "Read these.",
        Content.from_hosted_file("assistant-1"),
        Content.from_data(b"a,b\n1,2\n", "text/csv"),
        Content.from_uri("https://pictures.example/a.png", media_type="image/png"),
    )
    [message] = [body for body in lab.bodies if body.get("role") == "user"]
    tools = [{"type": "file_search"}, {"type": "code_interpreter"}]
    existing_file, new_file = message["attachments"]
    assert existing_file == {"file_id": "assistant-1", "tools": tools}
    assert new_file["tools"] == tools
    assert new_file["file_id"] != existing_file["file_id"]
    assert message["content"] == [
        {"type": "text", "text": "Read these."},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/a.png"}},
    ]


@pytest.mark.parametrize("calls", [None, "odd", ["odd", 7, None], [{"id": "c"}, None], {"a": 1}])
def test_an_unknown_step_is_stored_verbatim(calls):
    """It has no events, and nothing of it is lost."""
    step = {"id": "step_1", "status": "completed", "step_details": {"type": "tool_calls", "tool_calls": calls}}
    reader = RunReader("thread_1", "run_1")
    response = fold_updates(reader.read("thread.run.step.completed", step), AZURE_AI_AGENTS)
    stored_json = json.dumps([encode_message(message) for message in response.messages])
    assert json.dumps(step["step_details"]) in stored_json


@pytest.mark.parametrize(
    "payload", [{"mood": "sunny"}, {"arguments": {"a": 1}}, {"arguments": "a", "output": "b"}, {}, {"name": "x"}]
)
def test_a_call_of_an_unknown_kind_is_sent_back(payload):
    """What it says is in the call's arguments, and the call is written as it came."""
    call = {"id": "call_1", "type": "brooding", "brooding": payload}
    assert restore_block(with_call(call_contents(call), call, {})) == (call, {})


def test_an_unknown_required_action_fails_the_run():
    """The turn fails with a sentence; it does not end without an answer."""
    run = {"id": "run_1", "status": "requires_action", "required_action": {"type": "dance", "dance": {"steps": 3}}}
    with pytest.raises(ProviderError, match="waits for 'dance'"):
        list(RunReader("thread_1").read("thread.run.requires_action", run))
