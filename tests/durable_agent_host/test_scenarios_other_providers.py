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
from tests.kit import RECORDINGS, AgentHost, start_host
from tests.processes import wait_until

OTHERS = Path(__file__).parent / "apps" / "others"


class Site:
    """A host with the app, a service for its agents, and what the tools wrote down."""

    def __init__(self, folder: Path, service: ScriptedService) -> None:
        self.service = service
        self._folder = folder
        self.host = self.start()

    def start(self) -> AgentHost:
        """Start a host on the same data as before."""
        env = {"SERVICE_URL": self.service.url, "LEDGER": str(self._folder / "ledger.txt")}
        self.host = start_host(self._folder / "data", None, app=OTHERS, **env)
        return self.host

    @property
    def called(self) -> list[list]:
        """The calls of tools, each with its name and arguments."""
        ledger = self._folder / "ledger.txt"
        return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []

    def forget(self) -> None:
        """Wipe out what was written down and what was asked."""
        (self._folder / "ledger.txt").write_text("")
        self.service.reset()


@pytest.fixture(scope="module")
def _site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with scripted_service() as service:
        one = Site(tmp_path_factory.mktemp("others"), service)
        yield one
        one.host.kill()


@pytest.fixture
def site(_site: Site) -> Site:
    """The site, with nothing written down and nothing asked."""
    _site.reset()
    return _site


def chat_call(call_id, name, *pieces):
    """Deltas of a tool call of Chat Completions, the arguments in pieces."""
    opened = {"index": 0, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
    return [{"tool_calls": [one]} for one in (opened, *({"index": 0, "function": {"arguments": p}} for p in pieces))]


def calling(agent, name, arguments):
    """The answer of an agent's service that calls a tool."""
    text = json.dumps(arguments)
    pieces = text[:4], text[4:9], text[9:]
    if agent == "Claude":
        return anthropic_response(anthropic_text("I call."), anthropic_call("toolu_01", name, *pieces), stop="tool_use")
    if agent == "Chatter":
        return chat_response(*chat_call("call_1", name, *pieces), finish="tool_calls")
    call = {"functionCall": {"id": "g1", "name": name, "args": arguments}, "thoughtSignature": "c2lnbmVk"}
    return gemini_response(call)


def saying(agent, text):
    """The answer of an agent's service that is a text."""
    if agent == "Claude":
        return anthropic_response(anthropic_text(text))
    return chat_response({"content": text}) if agent == "Chatter" else gemini_response({"text": text})


SERVED = {"Claude": "claude", "Chatter": "chat", "Gemini": "gemini"}
AGENTS = tuple(SERVED)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_tool_that_a_person_approved_runs_with_the_arguments_that_were_shown(site: Site, agent):
    """The call that waits, the call that runs and the call that the model sees again have the same arguments."""
    pair = {"source": "USD", "target": "EUR"}
    site.service.play(calling(agent, "convert", pair), saying(agent, "Done."))
    waits = site.host.run(agent, {"message": "convert"})
    assert waits.status_code == 202, waits.text
    (call,) = waits.json()["pending_approvals"]
    assert (call["name"], call["arguments"]) == ("convert", pair)
    assert approve(waits.json(), allow(call)).status_code == 200
    ended = wait_until(lambda: read_ended_turn(waits.json()))
    assert (ended["status"], ended["response"].endswith("Done.")) == ("completed", True), ended
    assert ended["model"] == f"{SERVED[agent]}-served-1"
    assert site.called == [["convert", pair]]
    assert len(site.service.bodies) == 2
    sent = json.dumps(site.service.bodies[-1]).replace("\\", "")
    assert json.dumps(pair) in sent, sent


@pytest.mark.parametrize("agent", AGENTS)
def test_an_idempotent_tool_has_its_arguments_after_a_crash(site: Site, agent):
    """The host is killed while the tool runs: it runs again with what the model had asked for."""
    site.service.play(calling(agent, "linger", {"text": "größer"}), saying(agent, "Done."))
    body = {"message": "linger", "session_id": f"crash-{agent}"}
    turn = site.host.run(agent, body, headers={"x-ms-wait-for-response": "false"}).json()
    wait_until(lambda: site.called)
    site.host.kill()
    host = site.start()
    url = f"{host.url}/api/agents/{agent}/sessions/crash-{agent}/turns/{turn['turn_id']}"
    ended = host.end_of_turn(url)
    assert ended["status"] == "completed", ended
    assert site.called == [["linger", {"text": "größer"}]] * 2
    assert len(site.service.bodies) == 2


def problems(site: Site, agent, session):
    """What ``verify`` says of a session."""
    answer = site.host.get(f"/agents/{agent}/sessions/{session}/verify")
    assert answer.ok, answer.text
    return [problem["problem"] for problem in answer.json()["problems"]]


def test_reasoning_that_a_chat_service_wants_back_is_no_problem(site: Site):
    """Details of reasoning that come behind the text are sent with every request, and no repair takes them away."""
    details = [{"type": "reasoning.encrypted", "data": "sealed", "index": 0}]
    site.service.play(chat_response({"content": "Hi."}, {"reasoning_details": details}))
    site.service.play(*[saying("Chatter", "And on.")] * 2)
    session = "reasoned"
    assert site.host.run("Chatter", {"message": "hi", "session_id": session}).ok
    assert problems(site, "Chatter", session) == []
    assert site.host.post(f"/agents/Chatter/sessions/{session}/repair", b"").json()["changes"] == []
    for _ in range(2):
        assert site.host.run("Chatter", {"message": "and on", "session_id": session}).ok
        sent = [one.get("reasoning_details") for one in site.service.bodies[-1]["messages"]]
        assert details in sent


@pytest.mark.parametrize("kind", ["server_tool_use", "mcp_tool_use"])
def test_a_call_of_the_providers_own_tool_without_its_result_is_left_out(site: Site, kind):
    """Anthropic refuses such a conversation for ever, so the call is not sent; the record keeps it until a repair."""
    opened, deltas = anthropic_call("srvtoolu_01", "web_search", '{"query":', '"x"}', kind=kind)
    opened |= {"server_name": "wiki"} if kind == "mcp_tool_use" else {}
    site.service.play(anthropic_response(anthropic_text("I search."), (opened, deltas)))
    site.service.play(saying("Claude", "And on."))
    session = f"open-{kind}"
    assert site.host.run("Claude", {"message": "search", "session_id": session}).ok
    assert "srvtoolu_01" in site.host.get(f"/agents/Claude/sessions/{session}").text
    site.service.play(saying("Claude", "And on."))
    assert site.host.run("Claude", {"message": "and on", "session_id": session}).ok
    repaired = site.host.post(f"/agents/Claude/sessions/{session}/repair", b"")
    assert repaired.ok, repaired.text
    assert problems(site, "Claude", session) == []
    said = [(one["role"], [part.get("text") for part in one["content"]]) for one in site.service.bodies[-1]["messages"]]
    assert said == [("user", ["search"]), ("assistant", ["I search."]), ("user", ["and on"])]


def signed(kind, number, **fields):
    """A part of Gemini with a signature that only it has."""
    return {kind: {"id": f"hosted-{number}"} | fields, "thoughtSignature": base64.b64encode(b"s" * number).decode()}


def search(number):
    """A call of Google's own search and its answer, each signed."""
    answer = {"search_suggestions": "<b>größer</b>", "results": [{"n": 1.5}]}
    return (
        signed("toolCall", number, toolType="GOOGLE_SEARCH_WEB", args={"queries": ["größer 😀"]}),
        signed("toolResponse", number, toolType="GOOGLE_SEARCH_WEB", response=answer),
    )


SUMMARY = {"text": "I think.", "thought": True}


def searched_conversation(service: ScriptedService):
    """Script three turns with hosted searches and a function's call, of five requests."""
    look = {"functionCall": {"id": "f1", "name": "look_up", "args": {"word": "a"}}, "thoughtSignature": "c2lnbmVk"}
    metadata = {"functionCall": {"id": "f2", "name": "look_up", "args": {}}, "partMetadata": {"a": [1]}}
    service.play(
        gemini_response(SUMMARY, *search(1), {"text": "Let me see."}, look, metadata),
        gemini_response(*search(2), {"text": "Here."}),
        gemini_response({"text": "Twice:"}, *search(3), *search(4)),
        gemini_response({"text": "Bye."}),
    )


TEXTS = ("first", "second", "third")


async def live_bodies(service: ScriptedService):
    """The requests of one process that has the framework alone, and the messages in its memory."""

    def look_up(word: str = "") -> str:
        """Look a word up."""
        return f"found {word}"

    from agent_framework_gemini import GeminiChatClient
    from google.genai import Client

    searched_conversation(service)
    client = GeminiChatClient(model="m", client=Client(api_key="practice", http_options={"base_url": service.url}))
    look = FunctionTool(name="look_up", description="Look a word up.", func=look_up)
    agent, session = Agent(client, "Help.", name="Searcher", tools=[look]), AgentSession()
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
@pytest.mark.parametrize("agent", ["Searcher", "Asker"])
async def test_the_hosted_tools_of_gemini_are_sent_back_by_a_new_process(site: Site, agent):
    """Every request of a host that is killed between the turns is the request of a process that never stopped.

    Within a turn, too, when it waits for a person and goes on from its journal.
    """
    live = as_accepted(await live_bodies(site.service))
    assert "toolResponse" in json.dumps(live[-1])
    searched_conversation(site.service)
    for text in TEXTS:
        answer = site.host.run(agent, {"message": text, "session_id": agent})
        if answer.status_code == 202:
            turn = answer.json()
            site.host.kill()
            site.start()
            turn["turn_url"] = turn["turn_url"].replace(turn["turn_url"].split("/api/")[0], site.host.url)
            assert approve(turn, *map(allow, turn["pending_approvals"])).status_code == 200
            assert wait_until(lambda turn=turn: read_ended_turn(turn))["status"] == "completed"
        else:
            assert answer.ok, answer.text
        if text != TEXTS[-1]:
            site.host.kill()
            site.start()
    assert site.service.bodies == live
    assert problems(site, agent, agent) == []


def test_what_a_stored_part_repeats_of_its_content_is_not_stored(site: Site):
    """Answers of hosted tools are stored once, whatever their size."""
    answer = {"results": ["x" * 5000]}
    part = signed("toolResponse", 1, toolType="GOOGLE_SEARCH_WEB", response=answer)
    site.service.play(gemini_response(search(1)[0], part, {"text": "Here."}))
    assert site.host.run("Searcher", {"message": "search", "session_id": "large"}).ok
    assert json.dumps(site.host.state("Searcher", "large")).count("xxxxx") == 1000


def comparable(parts):
    """Give parts with their signatures as bytes: there are two alphabets for them."""
    decoded = []
    for part in parts:
        signature = part.get("thoughtSignature", "").replace("-", "+").replace("_", "/")
        decoded.append(part | {"thoughtSignature": base64.b64decode(signature + "==")})
    return decoded


@pytest.mark.recordings
def test_recorded_hosted_tools_go_back_as_the_service_accepted_them(site: Site):
    """At once and from the store, part by part, signatures of many kilobytes included."""
    folder = RECORDINGS / "gemini" / "multiturn" / "fn-with-builtin-tools"
    if not folder.is_dir():
        pytest.skip("no recordings")
    given = json.loads((folder / "01.response.json").read_text())["candidates"][0]["content"]["parts"]
    accepted = json.loads((folder / "02.request.json").read_text())["contents"][1]["parts"]
    site.service.play(gemini_response(*given), gemini_response({"text": "4."}), gemini_response({"text": "Bye."}))
    for text in ("first", "second"):
        assert site.host.run("Searcher", {"message": text, "session_id": "recorded"}).ok
    for body in site.service.bodies[1:]:
        assert comparable(body["contents"][1]["parts"]) == comparable(accepted)
