"""Agents of other providers over HTTP: approvals, crashes and later turns are what one live run would have been."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_framework import Agent, AgentSession, FunctionTool

from tests.durable_agent_host.scripted_service import (
    ScriptedService,
    anthropic_call,
    anthropic_response,
    anthropic_text,
    chat_response,
    gemini_response,
    scripted_service,
)
from tests.durable_agent_host.test_scenarios_approvals import allow, approve, read_ended_turn
from tests.kit import Lives
from tests.processes import wait_until

OTHERS_APP = Path(__file__).parent / "apps" / "others"


class Site(Lives):
    """A host with the app, a service for its agents, and what the tools wrote down."""

    def __init__(self, folder: Path, service: ScriptedService) -> None:
        self.service = service
        self._ledger = folder / "ledger.txt"
        super().__init__(folder / "data", None, app=OTHERS_APP, SERVICE_URL=service.url, LEDGER=str(self._ledger))

    @property
    def tool_calls(self) -> list[list]:
        """The calls of tools, each with its name and arguments."""
        return [json.loads(line) for line in self._ledger.read_text().splitlines()]

    def reset(self) -> None:
        """Wipe out what was written down and what was asked."""
        self._ledger.write_text("")
        self.service.reset()


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scripted_service() as service:
        site = Site(tmp_path_factory.mktemp("others"), service)
        yield site
        site.host.kill()


@pytest.fixture
def site(_site: Site) -> Site:
    """The site, with nothing written down and nothing asked."""
    _site.reset()
    return _site


def chat_call(call_id, name, *fragments):
    """Deltas of a tool call of Chat Completions, the arguments in fragments."""
    first = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    return [
        {"tool_calls": [call]}
        for call in (first, *({"index": 0, "function": {"arguments": fragment}} for fragment in fragments))
    ]


def calling(agent, name, arguments):
    """The answer of an agent's service that calls a tool."""
    text = json.dumps(arguments)
    fragments = text[:4], text[4:9], text[9:]
    if agent == "Claude":
        return anthropic_response(
            anthropic_text("I call."), anthropic_call("toolu_01", name, *fragments), stop="tool_use"
        )
    if agent == "Chatter":
        return chat_response(*chat_call("call_1", name, *fragments), finish="tool_calls")
    call = {"functionCall": {"id": "g1", "name": name, "args": arguments}, "thoughtSignature": "c2lnbmVk"}
    return gemini_response(call)


def saying(agent, text):
    """The answer of an agent's service that is a text."""
    if agent == "Claude":
        return anthropic_response(anthropic_text(text))
    return chat_response({"content": text}) if agent == "Chatter" else gemini_response({"text": text})


MODEL_PREFIXES = {"Claude": "claude", "Chatter": "chat", "Gemini": "gemini"}
AGENTS = tuple(MODEL_PREFIXES)


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_approved_tool_runs_with_the_displayed_arguments(site: Site, agent):
    """The call that waits, the call that runs and the call that the model sees again have the same arguments."""
    pair = {"source": "USD", "target": "EUR"}
    site.service.play(calling(agent, "convert", pair), saying(agent, "Done."))
    response = site.host.run(agent, {"message": "convert"})
    assert response.status_code == 202, response.text
    (call,) = response.json()["pending_calls"]
    assert (call["name"], call["arguments"]) == ("convert", pair)
    assert approve(response.json(), allow(call)).status_code == 200
    final_turn = wait_until(lambda: read_ended_turn(response.json()))
    assert (final_turn["status"], final_turn["response"].endswith("Done.")) == ("completed", True), final_turn
    assert final_turn["model"] == f"{MODEL_PREFIXES[agent]}-served-1"
    assert site.tool_calls == [["convert", pair]]
    assert len(site.service.bodies) == 2
    sent = json.dumps(site.service.bodies[-1]).replace("\\", "")
    assert json.dumps(pair) in sent, sent


@pytest.mark.drawn(2)
@pytest.mark.parametrize("agent", AGENTS)
def test_a_message_to_a_running_turn_follows_the_tools_result(site: Site, agent):
    """In the next request, and in those of later turns, which the service accepts."""
    site.service.play(calling(agent, "convert", {"source": "USD"}), saying(agent, "Done."), saying(agent, "Yes."))
    turn = site.host.run(agent, {"message": "convert"}).json()
    body = {"message": "Hurry up.", "session_id": turn["session_id"], "policy": "steer"}
    assert site.host.run(agent, body).json()["turn_id"] == turn["turn_id"]
    approve(turn, allow(turn["pending_calls"][0]))
    assert wait_until(lambda: read_ended_turn(turn))["status"] == "completed"
    assert site.host.run(agent, {"message": "And?", "session_id": turn["session_id"]}).ok
    for sent in map(json.dumps, site.service.bodies[1:]):
        assert sent.count("Hurry up.") == 1
        assert sent.index("USD is") < sent.index("Hurry up.")
    assert problems(site, agent, turn["session_id"]) == []


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", AGENTS)
def test_an_idempotent_tool_has_its_arguments_after_a_crash(site: Site, agent):
    """The host is killed while the tool runs: it runs again with what the model had asked for."""
    site.service.play(calling(agent, "linger", {"text": "größer"}), saying(agent, "Done."))
    body = {"message": "linger", "session_id": f"crash-{agent}"}
    turn = site.host.run(agent, body, headers={"x-ms-wait-for-response": "false"}).json()
    wait_until(lambda: site.tool_calls)
    host = site.crash()
    url = f"{host.url}/api/agents/{agent}/sessions/crash-{agent}/turns/{turn['turn_id']}"
    final_turn = host.end_of_turn(url)
    assert final_turn["status"] == "completed", final_turn
    assert site.tool_calls == [["linger", {"text": "größer"}]] * 2
    assert len(site.service.bodies) == 2


def problems(site: Site, agent, session):
    """What ``verify`` says of a session."""
    response = site.host.get(f"/agents/{agent}/sessions/{session}/verify")
    assert response.ok, response.text
    return [problem["problem"] for problem in response.json()["problems"]]


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_provider_tool_call_without_its_result_is_not_sent(site: Site, kind):
    """Anthropic refuses such a conversation for ever, so the call is not sent; the record keeps it."""
    call_start, deltas = anthropic_call("srvtoolu_01", "web_search", '{"query":', '"x"}', kind=kind)
    call_start |= {"server_name": "wiki"} if kind == "mcp_tool_use" else {}
    site.service.play(anthropic_response(anthropic_text("I search."), (call_start, deltas)))
    site.service.play(saying("Claude", "And on."))
    session = f"open-{kind}"
    assert site.host.run("Claude", {"message": "search", "session_id": session}).ok
    assert "srvtoolu_01" in site.host.get(f"/agents/Claude/sessions/{session}").text
    site.service.play(saying("Claude", "And on."))
    assert site.host.run("Claude", {"message": "and on", "session_id": session}).ok
    messages = [
        (message["role"], [part.get("text") for part in message["content"]])
        for message in site.service.bodies[-1]["messages"]
    ]
    assert messages == [("user", ["search"]), ("assistant", ["I search."]), ("user", ["and on"])]


def signed_part(kind, index, **fields):
    """A part of Gemini with a signature that only it has."""
    return {kind: {"id": f"hosted-{index}"} | fields, "thoughtSignature": base64.b64encode(b"s" * index).decode()}


def search(index):
    """A call of Google's own search and its answer, each signed."""
    result = {"search_suggestions": "<b>größer</b>", "results": [{"n": 1.5}]}
    return (
        signed_part("toolCall", index, toolType="GOOGLE_SEARCH_WEB", args={"queries": ["größer 😀"]}),
        signed_part("toolResponse", index, toolType="GOOGLE_SEARCH_WEB", response=result),
    )


SUMMARY = {"text": "I think.", "thought": True}


def searched_conversation(service: ScriptedService):
    """Script three turns with hosted searches and a function's call, of five requests."""
    lookup = {"functionCall": {"id": "f1", "name": "look_up", "args": {"word": "a"}}, "thoughtSignature": "c2lnbmVk"}
    metadata = {"functionCall": {"id": "f2", "name": "look_up", "args": {}}, "partMetadata": {"a": [1]}}
    service.play(
        gemini_response(SUMMARY, *search(1), {"text": "Let me see."}, lookup, metadata),
        gemini_response(*search(2), {"text": "Here."}),
        gemini_response({"text": "Twice:"}, *search(3), *search(4)),
        gemini_response({"text": "Bye."}),
    )


TEXTS = ("first", "second", "third")


async def live_bodies(service: ScriptedService):
    """The requests of one process that has the framework alone, and the messages in its memory."""

    def find_word(word: str = "") -> str:
        """Look a word up."""
        return f"found {word}"

    from agent_framework_gemini import GeminiChatClient
    from google.genai import Client

    searched_conversation(service)
    client = GeminiChatClient(model="m", client=Client(api_key="practice", http_options={"base_url": service.url}))
    lookup_tool = FunctionTool(name="look_up", description="Look a word up.", func=find_word)
    agent, session = Agent(client, "Help.", name="Asker", tools=[lookup_tool]), AgentSession()
    for text in TEXTS:
        await agent.run(text, stream=True, session=session).get_final_response()
    bodies = list(service.bodies)
    service.reset()
    return bodies


def as_accepted(bodies):
    """Give requests of the framework's client as the recorded requests are that the service has accepted.

    The client sends the answers of hosted tools as JSON text, where those have objects, and the empty text that ends a
    stream, which those leave out. It leaves thoughts out, which the service has given and takes back.
    """
    for content in (content for body in bodies for content in body["contents"]):
        content["parts"] = [part for part in content["parts"] if part != {"text": ""}]
        if content["parts"][0].get("toolCall", {}).get("id") == "hosted-1":
            content["parts"].insert(0, SUMMARY)
        for part in content["parts"]:
            if "toolResponse" in part:
                part["toolResponse"]["response"] = json.loads(part["toolResponse"]["response"])
    return bodies


@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # within Google's SDK
@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings:UserWarning")  # of what the framework's client sends
async def test_the_hosted_tools_of_gemini_are_sent_back_by_a_new_process(site: Site):
    """Every request of a host that is killed between the turns is the request of a process that never stopped.

    Within a turn, too, when it waits for a person and goes on from its journal.
    """
    live = as_accepted(await live_bodies(site.service))
    assert "toolResponse" in json.dumps(live[-1])
    searched_conversation(site.service)
    for text in TEXTS:
        response = site.host.run("Asker", {"message": text, "session_id": "searches"})
        if response.status_code == 202:
            turn = response.json()
            site.crash()
            turn["turn_url"] = turn["turn_url"].replace(turn["turn_url"].split("/api/")[0], site.host.url)
            assert approve(turn, *map(allow, turn["pending_calls"])).status_code == 200
            assert wait_until(lambda turn=turn: read_ended_turn(turn))["status"] == "completed"
        else:
            assert response.ok, response.text
        if text != TEXTS[-1]:
            site.crash()
    assert site.service.bodies == live
    assert problems(site, "Asker", "searches") == []


def test_hosted_tool_results_are_stored_once(site: Site):
    """Results of hosted tools are stored once, regardless of their size."""
    response = {"results": ["x" * 5000]}
    part = signed_part("toolResponse", 1, toolType="GOOGLE_SEARCH_WEB", response=response)
    site.service.play(gemini_response(search(1)[0], part, {"text": "Here."}))
    assert site.host.run("Asker", {"message": "search", "session_id": "large"}).ok
    assert json.dumps(site.host.state("Asker", "large")).count("xxxxx") == 1000
