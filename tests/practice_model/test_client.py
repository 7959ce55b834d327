"""The framework's own OpenAI client, over real HTTP."""

import pytest
from agent_framework import Agent, Message, tool
from agent_framework.exceptions import ChatClientException
from agent_framework_openai import OpenAIChatClient


@tool
def echo(message: str) -> str:
    """Return the message."""
    return message


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@pytest.fixture
async def agent(model):
    """Return a factory of agents that use the practice model; close their connections at the end."""
    clients = []

    def make(name="practice", tools=(echo, add), **options):
        clients.append(OpenAIChatClient(model=name, api_key="practice", base_url=f"{model.url}/v1"))
        return Agent(clients[-1], "Be brief.", name="BugRepro", tools=list(tools), default_options=options)

    yield make
    for client in clients:
        await client.client.close()


async def send(agent, text, session, *, stream):
    run = agent.run(text, session=session, stream=True) if stream else agent.run(text, session=session)
    return (await (run.get_final_response() if stream else run)).text


@pytest.mark.parametrize("stream", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("options", [{}, {"store": False}], ids=["service keeps", "client replays"])
@pytest.mark.parametrize("name", ["practice", "practice-reasoning"])
async def test_a_conversation_with_tools_over_several_turns(agent, model, name, options, stream):
    """Two echoes, a parallel turn and a question: the responses show that the full history arrived."""
    bug_repro = agent(name, **options)
    session = bug_repro.create_session()
    assert "echo returned 'hello world'" in await send(bug_repro, "Please echo 'hello world'", session, stream=stream)
    assert "echo returned 'goodbye'" in await send(bug_repro, "Now echo 'goodbye'", session, stream=stream)
    both = await send(bug_repro, "echo 'x' and add 2 and 3", session, stream=stream)
    assert "echo returned 'x'; add returned '5'" in both
    last = await send(bug_repro, "What did I ask you so far?", session, stream=stream)
    assert "4 messages from you" in last
    assert "The tools returned: echo 'hello world'; echo 'goodbye'; echo 'x'; add '5'." in last
    bodies = [entry["body"] for entry in model.requests()]
    assert any("previous_response_id" in body for body in bodies) == (not options)
    assert [entry["status"] for entry in model.requests()] == [200] * 7


async def test_the_clients_replay_of_stored_reasoning_is_rejected(agent):
    """With the default store it sends the message without its id after the reasoning: the rejection recorded live."""
    reasoner = agent("practice-reasoning")
    response = await reasoner.run("Hello")
    replay = [Message("user", ["Hello"]), *response.messages, Message("user", ["And then?"])]
    with pytest.raises(ChatClientException, match="was provided without its required following item"):
        await reasoner.run(replay)
