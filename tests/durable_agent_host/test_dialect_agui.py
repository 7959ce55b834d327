"""AG-UI: its own client runs turns, tools and approvals, comes back, and finds each event where the protocol has it."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests
from ag_ui_validate.pytest_plugin import assert_valid_agui

from tests.kit import AgentHost, PracticeModel, running_host
from tests.kit_services import SERVICES, unavailable

APP = Path(__file__).parent / "apps" / "nested"
Cases = Mapping[str, Sequence[Mapping[str, Any]]]
Events = list[dict[str, Any]]

PAY = {"calls": [{"name": "pay", "arguments": {"amount": 3}}]}
SLOW = {"text": "One word after the other. " * 4, "chunk_characters": 4, "delay_milliseconds": 10}
PLANS: dict[str, list[dict[str, Any]]] = {
    "agui plain": [{"reasoning": "Let me think.", "text": "Hello there."}],
    "agui again": [{"text": "I note it.", "calls": [{"name": "note", "arguments": {"text": "x"}}]}, {"text": "Noted."}],
    "agui approval": [PAY, {"text": "Paid."}],
    "agui denial": [PAY, {"text": "Not paid."}],
    "agui tool": [{"text": "Where?", "calls": [{"name": "locate", "arguments": {}}]}, {"text": "In Bonn."}],
    "agui thanks": [{"text": "Welcome."}],
    "agui third": [{"text": "Yes."}],
    "agui broken": [
        {"text": "This breaks off.", "chunk_characters": 3, "break_after_events": 8},
        {"text": "This is all."},
    ],
    "agui failing": [{"error": {"status": 400, "code": "invalid", "message": "no"}}],
    "agui better": [{"text": "Better."}],
    "agui inner": [{"calls": [{"name": "clerk", "arguments": {"task": "agui clerk"}}]}, {"text": "The clerk did it."}],
    "agui clerk": [{"calls": [{"name": "note", "arguments": {"text": "y"}}]}, {"text": "I have noted it."}],
    "agui dropped": [SLOW],
}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
NO_REPLY = {"interruptId": "none", "status": "resolved"}
ODD_IMAGE = {"type": "image", "source": {"type": "odd", "value": "x"}}
MESSAGE = ["TEXT_MESSAGE_START", "TEXT_MESSAGE_CONTENT", "TEXT_MESSAGE_END"]
CALL = ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END"]
BEGIN = ["RUN_STARTED", "MESSAGES_SNAPSHOT"]
END = ["MESSAGES_SNAPSHOT", "RUN_FINISHED"]


@pytest.fixture(scope="module")
def host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with agents within agents; it leaves no stream open."""
    folder = tmp_path_factory.mktemp("agui")
    with running_host(folder / "data", practice_model, app=APP, LEDGER=str(folder / "ledger.txt")) as running:
        yield running
        assert "asynchronous generator" not in running.text


@pytest.fixture(scope="module")
def cases(host: AgentHost, practice_model: PracticeModel) -> Cases:
    """What the client of AG-UI got in each case, run by run."""
    if not shutil.which("node") or not (SERVICES / "node_modules").exists():
        unavailable("@ag-ui/client", "install Node.js 20 or newer, then ./scripts/test installs it")
    practice_model.reset()
    for text, steps in PLANS.items():
        practice_model.plan(*steps, user_text=text)
    command = ["node", str(SERVICES / "agui.mjs"), f"{host.url}/api/agui"]
    output = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not output.returncode, output.stderr
    return json.loads(output.stdout)


def types(run: Mapping[str, Any]) -> list[str]:
    """The types of a run's events, each once in a row."""
    names = [event["type"] for event in run["stream"]]
    return [name for name, before in zip(names, ["", *names], strict=False) if name != before]


def texts(run: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Roles and contents of the messages that the client then has."""
    return [(message["role"], message.get("content")) for message in run["messages"]]


def test_every_stream_is_valid(cases: Cases):
    """The validator finds nothing in any run; one that the client has left has no end."""
    for run in (run for runs in cases.values() for run in runs):
        if run["stream"] and run.get("last"):
            assert_valid_agui(run["stream"])


def test_a_thread_has_text_reasoning_and_tools(cases: Cases):
    """Events come in the protocol's order, the messages that the client sends again are stored once."""
    first, second, third = cases["plain"]
    thinking = ["REASONING_START", *(f"REASONING_MESSAGE_{part}" for part in ("START", "CONTENT", "END"))]
    assert types(first) == [*BEGIN, *thinking, "REASONING_END", *MESSAGE, *END]
    assert types(second) == [*BEGIN, *MESSAGE, *CALL, "TOOL_CALL_RESULT", *MESSAGE, "STATE_SNAPSHOT", *END]
    assert types(third) == [*BEGIN, *MESSAGE, *END]
    assert [run["state"] for run in cases["plain"]] == [{}, {"notes": 1}, {"notes": 1}]
    assert second["last"]["usage"][0]["outputTokens"] > 0
    assert texts(second) == [
        ("user", "agui plain"),
        ("reasoning", "Let me think."),
        ("assistant", "Hello there."),
        ("user", "agui again"),
        ("assistant", "I note it."),
        ("tool", "note 1: x"),
        ("assistant", "Noted."),
    ]


def test_an_approval_is_an_interrupt_and_a_visitor_gets_it(cases: Cases, host: AgentHost):
    """Whoever connects sees what the turn waits for, and resumes it; the same resume again is the same run."""
    waiting, hurry, visit, visitor, owner = cases["approval"]
    (interrupt,) = waiting["interrupts"]
    assert types(waiting) == types(visit) == [*BEGIN, *CALL, *END]
    assert visit["messages"] == waiting["messages"]
    assert visit["interrupts"] == [interrupt]
    assert (interrupt["reason"], interrupt["metadata"]["arguments"]) == ("tool_call", {"amount": 3})
    assert "editedArgs" in interrupt["responseSchema"]["properties"]
    assert hurry["error"]["status"] == 409
    assert "connect and answer its interrupts" in hurry["error"]["message"]
    assert types(visitor) == [*BEGIN, "CUSTOM", "TOOL_CALL_RESULT", *MESSAGE, *END]
    assert visitor["messages"] == owner["messages"]
    assert visitor["messages"][2]["content"].startswith("paid 4.0")
    assert visitor["interrupts"] == []
    assert len(host.session("Helper", "agui-approval")["turns"]) == 1


def test_a_cancelled_interrupt_is_a_denial(cases: Cases):
    """The model is told, and answers."""
    _, denied = cases["denial"]
    assert "rejected by user" in denied["messages"][2]["content"]
    assert denied["messages"][-1]["content"] == "Not paid."


def test_a_tool_of_the_front_end_is_a_pending_call(cases: Cases, host: AgentHost):
    """Its result comes with the next run, which has no event of it; later runs do not take it for a new result."""
    waiting, located, thanked = cases["tool"]
    assert types(waiting) == [*BEGIN, *MESSAGE, *CALL, *END]
    assert waiting["last"]["outcome"]["type"] == "success"
    assert types(located) == [*BEGIN, "CUSTOM", *MESSAGE, *END]
    assert texts(thanked)[1:] == [
        ("assistant", "Where?"),
        ("tool", "Bonn"),
        ("assistant", "In Bonn."),
        ("user", "agui thanks"),
        ("assistant", "Welcome."),
    ]
    assert len(host.session("Helper", "agui-tool")["turns"]) == 2


def test_text_that_is_sent_again_is_taken_back(cases: Cases):
    """A snapshot without it follows the restart, the text comes in a new message; an error is no end of the thread."""
    broken, failing, better = cases["broken"]
    assert types(broken) == [*BEGIN, *MESSAGE, "MESSAGES_SNAPSHOT", *MESSAGE, *END]
    assert texts(broken) == [("user", "agui broken"), ("assistant", "This is all.")]
    assert (failing["last"]["type"], failing["last"]["code"]) == ("RUN_ERROR", "502")
    assert [role for role, _ in texts(better)] == ["user", "assistant", "user", "user", "assistant"]


def test_an_agent_within_the_agent_is_a_step(cases: Cases):
    """Its calls and messages are in events of the host's own."""
    (run,) = cases["inner"]
    step = next(event["stepName"] for event in run["stream"] if event["type"] == "STEP_STARTED")
    inner = [event["value"] for event in run["stream"] if event["type"] == "CUSTOM"]
    assert [item["event"] for item in inner] == ["tool.started", "tool.completed", "message.completed"]
    assert all(item["path"].startswith(step) for item in inner)
    assert types(run).count("STEP_FINISHED") == 1
    assert texts(run)[-1] == ("assistant", "The clerk did it.")


def test_a_history_that_was_cut_is_refused(cases: Cases):
    """What the thread has and the client does not is no part of a new turn without anybody noticing."""
    second, other = cases["edited"]
    assert second["last"]["type"] == "RUN_FINISHED"
    assert other["error"]["status"] == 409
    assert "fork" in other["error"]["message"]


def test_a_run_is_repeated_by_its_id(cases: Cases, host: AgentHost):
    """A client that was cut off sends the same run again, and gets all of it; the turn has run once."""
    first, again = cases["dropped"]
    assert first["stream"] == again["stream"][: len(first["stream"])]
    assert texts(again) == [("user", "agui dropped"), ("assistant", SLOW["text"])]
    assert len(host.session("Helper", "agui-dropped")["turns"]) == 1


def post(host: AgentHost, run: Any, last_id: str = "", path: str = "") -> requests.Response:
    """The answer to a run."""
    headers = {"last-event-id": last_id} if last_id else {}
    return requests.post(f"{host.url}/api/agui/Helper{path}", json=run, headers=headers)


def stream(host: AgentHost, run: Mapping[str, Any], last_id: str = "") -> Sequence[Sequence[str]]:
    """The ids and the data of the events of a run, after one of them; those of the state have no id."""
    answer = post(host, run, last_id)
    assert answer.ok, answer.text
    return re.findall("^id: (.*)\ndata: (.*)", answer.content.decode(), re.MULTILINE)


def events_of(host: AgentHost, run: Mapping[str, Any], path: str = "") -> Events:
    """The events of a run."""
    answer = post(host, run, path=path)
    assert answer.ok, answer.text
    return [json.loads(data) for data in re.findall("^data: (.*)", answer.content.decode(), re.MULTILINE)]


def run_input(text: str, **fields: Any) -> dict[str, Any]:
    """A run in a thread of its own."""
    message = {"id": "u1", "role": "user", "content": text}
    return {"threadId": uuid4().hex, "runId": uuid4().hex, "messages": [message], **fields}


def test_a_stream_is_taken_up_after_any_event(host: AgentHost, model: PracticeModel):
    """Whoever names the last event gets all others, and none twice; whoever connects gets all of them."""
    model.plan(*PLANS["agui again"])
    run = run_input("cut")
    events = stream(host, run)
    for position, (last_id, _) in enumerate(events):
        assert stream(host, run, last_id) == events[position + 1 :]
    model.plan(PAY)
    run = run_input("pay")
    events_of(host, run)
    assert post(host, run, "3", "/connect").text == post(host, run, path="/connect").text


def resume_of(run: Mapping[str, Any], *call_ids: str, **payload: Any) -> dict[str, Any]:
    """The run after another one of its thread, which approves calls."""
    payload = payload or {"approved": True}
    resume = [{"interruptId": call_id, "status": "resolved", "payload": payload} for call_id in call_ids]
    return {"threadId": run["threadId"], "runId": uuid4().hex, "messages": [], "resume": resume}


def test_replies_that_no_call_waits_for_are_refused_at_once(host: AgentHost, model: PracticeModel):
    """Ids of nobody, of another thread, of two rounds; one call twice, but for the result that comes with an entry."""
    model.plan(PAY, PAY, PAY, {"text": "Paid."})
    run, other_run = run_input("pay twice"), run_input("pay")

    def call_of(events: Events) -> str:
        return events[-1]["outcome"]["interrupts"][0]["id"]

    def refuse(answer: requests.Response, status: int = 409) -> None:
        assert (answer.status_code, answer.json()["type"]) == (status, "RUN_ERROR"), answer.text

    other = call_of(events_of(host, other_run))
    first = call_of(events_of(host, run))
    message = {"id": "t", "role": "tool", "toolCallId": "call_nobody", "content": "x"}
    refuse(post(host, resume_of(run, "call_nobody")))
    refuse(post(host, resume_of(run, "call_nobody", first)))
    refuse(post(host, resume_of(run, first, first)), 400)
    refuse(post(host, run | {"messages": [message]}))
    refuse(post(host, resume_of(run, first, approved="perhaps")), 400)
    hurry = [message | {"toolCallId": first}, {"id": "u2", "role": "user", "content": "hurry"}]
    refuse(post(host, run | {"runId": uuid4().hex, "messages": hurry}), 400)
    assert f"waits for pay ({first})" in post(host, resume_of(run, first, "call_nobody")).json()["message"]
    resumption = resume_of(run, first) | {"messages": [message | {"toolCallId": first}]}
    resumed = events_of(host, resumption)
    assert [event["content"] for event in resumed if event["type"] == "TOOL_CALL_RESULT"] == ["paid 3.0"]
    second = call_of(resumed)
    assert events_of(host, resumption) == resumed
    for call_ids in ((first, second), (other,), ("call_nobody",)):
        refuse(post(host, resume_of(run, *call_ids)))
    refuse(post(host, resume_of(run, first, approved=False)))
    resume = resume_of(run, second)
    end = events_of(host, resume)
    assert end[-2]["messages"][-1]["content"] == "Paid."
    assert events_of(host, resume) == end
    assert events_of(host, resumption) == resumed
    refuse(post(host, resume_of(run, "call_nobody")))
    refuse(post(host, resume_of(run, first, approved=False) | {"messages": hurry[1:]}), 400)
    assert "hurry" not in json.dumps(host.session("Helper", run["threadId"]))


def test_an_approval_within_an_agent_is_an_interrupt(host: AgentHost, model: PracticeModel):
    """Its call is not one of the thread's messages; the run that approves it goes on to the end."""
    model.plan(PLANS["agui inner"][0], PAY, {"text": "I have paid."}, {"text": "The clerk did it."})
    run = run_input("let the clerk pay")
    (interrupt,) = events_of(host, run)[-1]["outcome"]["interrupts"]
    assert (interrupt["reason"], "toolCallId" in interrupt) == ("input_required", False)
    end = events_of(host, resume_of(run, interrupt["id"]))
    assert end[-2]["messages"][-1]["content"] == "The clerk did it."


def test_a_message_after_a_failed_turn_begins_another(host: AgentHost, model: PracticeModel):
    """Also where the last thing before it is the result of a tool of the front end."""
    model.plan(PLANS["agui tool"][0], PLANS["agui failing"][0])
    run = run_input("where", tools=[{"name": "locate", "description": "Where."}])
    messages = events_of(host, run)[-2]["messages"]
    messages.append({"id": "t1", "role": "tool", "toolCallId": messages[-1]["toolCalls"][0]["id"], "content": "Bonn"})
    run |= {"runId": uuid4().hex, "messages": messages}
    failed = events_of(host, run)
    assert failed[-1]["type"] == "RUN_ERROR"
    messages = [*failed[-2]["messages"], {"id": "u2", "role": "user", "content": "again"}]
    model.plan({"text": "In Bonn."})
    *_, snapshot, end = events_of(host, run | {"runId": uuid4().hex, "messages": messages})
    assert end["type"] == "RUN_FINISHED"
    assert [message.get("content") for message in snapshot["messages"]][-3:] == ["Bonn", "again", "In Bonn."]


def test_a_message_with_results_of_tools_comes_once(host: AgentHost, model: PracticeModel):
    """A repeated run, whatever its id, has the same events; a refused one brings no message."""
    model.plan(PLANS["agui tool"][0], {"text": "In Bonn, then."})
    run = run_input("where", tools=[{"name": "locate", "description": "Where."}])
    messages = events_of(host, run)[-2]["messages"]
    located = {"id": "t1", "role": "tool", "toolCallId": messages[-1]["toolCalls"][0]["id"], "content": "Bonn"}
    message = {"id": "u2", "role": "user", "content": "hurry"}

    def next_run(*new_messages: Mapping[str, Any]) -> dict[str, Any]:
        return run | {"runId": uuid4().hex, "messages": [*messages, *new_messages]}

    assert post(host, next_run(located | {"content": [ODD_IMAGE]}, message)).status_code == 400
    hurried = next_run(located, message)
    events = events_of(host, hurried)
    assert events_of(host, hurried) == events
    assert events_of(host, hurried | {"runId": "another"})[1:-1] == events[1:-1]
    assert json.dumps(model.requests()[-1]).count("hurry") == 1
    session = host.session("Helper", run["threadId"])
    assert [turn for turn in session["turns"] if "joined_turn_id" not in turn] == session["turns"][:1]
    assert json.dumps(session["messages"]).count("hurry") == 1


def test_a_thread_that_was_deleted_is_not_begun_again(host: AgentHost, model: PracticeModel):
    """What the client has of it would be lost to the model."""
    model.plan({"text": "Hello."})
    run = run_input("hello")
    messages = [*events_of(host, run)[-2]["messages"], *run["messages"]]
    assert requests.delete(f"{host.url}/api/agents/Helper/sessions/{run['threadId']}").ok
    assert post(host, run | {"runId": uuid4().hex, "messages": messages}).status_code == 409


def test_a_thread_has_the_state_of_its_session(host: AgentHost, model: PracticeModel):
    """Whoever comes without it gets it first; a client cannot change it."""
    model.plan(*PLANS["agui again"], {"text": "Again."})
    run = run_input("note it")
    notes = [event["snapshot"] for event in events_of(host, run) if event["type"] == "STATE_SNAPSHOT"]
    assert notes == [{"notes": 1}]
    connected = events_of(host, run, "/connect")
    assert connected[1] == {"type": "STATE_SNAPSHOT", "snapshot": {"notes": 1}}
    messages = [*connected[-2]["messages"], {"id": "u2", "role": "user", "content": "again"}]
    run |= {"runId": uuid4().hex, "messages": messages}
    refused = post(host, run | {"state": {"notes": 2}})
    assert (refused.status_code, "another 'state'" in refused.json()["message"]) == (409, True)
    assert [event["type"] for event in events_of(host, run)][:3] == ["RUN_STARTED", "STATE_SNAPSHOT", BEGIN[1]]
    assert "state" not in host.session("Helper", run["threadId"])


def test_a_run_may_have_any_id(host: AgentHost, model: PracticeModel):
    """It is the key of the turn: another message with it is refused by this name."""
    model.plan({"text": "Once."})
    run = run_input("twice", runId="Lauf-ä")
    assert events_of(host, run) == events_of(host, run)
    other = post(host, run | {"messages": [{"id": "u1", "role": "user", "content": "other"}]})
    assert (other.status_code, other.json()["message"][:18]) == (422, "runId 'Lauf-ä' was")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"state": {"count": 1}}, "another 'state'"),
        ({"forwardedProps": {"speed": 1}}, "forwardedProps"),
        ({"parentRunId": "r0"}, "fork"),
        ({"messages": [{"id": "s", "role": "system", "content": "Be brief."}]}, "system"),
        ({"messages": [{"id": "u", "role": "user", "content": [{"type": "movie"}]}]}, "movie"),
        ({"messages": [{"id": "u", "role": "user", "content": [{"type": "image"}]}]}, "source"),
        ({"tools": [{"name": "note"}]}, "the agent has a tool 'note' itself"),
        ({"messages": [{"id": "u", "role": "user", "content": None}]}, "'text'"),
        ({"messages": [{"id": "u", "role": "user", "content": []}]}, "'text'"),
        ({"messages": [{"id": "msg_a/b_0", "role": "user"}], "resume": [NO_REPLY]}, "nothing in the thread waits"),
        ({"threadId": ""}, "threadId"),
        ({"threadId": "a/b"}, "threadId"),
        ({"runId": "\ud800"}, "runId"),
        ({"messages": [{"id": "u", "role": "user", "content": [ODD_IMAGE]}]}, "source"),
        ({"messages": [{"id": "t", "role": "tool", "content": "no call"}]}, "nothing in the thread waits"),
        ({"runId": " "}, "runId"),
        ({"resume": [NO_REPLY]}, "comes with 'resume'"),
    ],
)
def test_what_is_not_taken_is_refused(host: AgentHost, fields: dict[str, Any], reason: str):
    """The body of the refusal is the protocol's error, and names the field."""
    answer = post(host, run_input("no", **fields))
    assert 400 <= answer.status_code < 500
    assert answer.json()["type"] == "RUN_ERROR"
    assert reason in answer.json()["message"]
    assert "object" in post(host, [1]).json()["message"]


def test_a_request_has_parts_and_context(host: AgentHost, model: PracticeModel):
    """The model gets both; whoever connects sees what the user has sent."""
    model.plan({"text": "A pixel."})
    image = {"type": "image", "source": {"type": "data", "value": PIXEL, "mimeType": "image/png"}}
    content = [{"type": "text", "text": "What is it?"}, image]
    context = [{"description": "page", "value": "home"}]
    run = run_input("", messages=[{"id": "u1", "role": "user", "content": content}], context=context)
    assert events_of(host, run)[-1]["type"] == "RUN_FINISHED"
    request = json.dumps(model.requests()[0])
    assert "page" in request
    assert PIXEL in request
    user, assistant = events_of(host, run, "/connect")[1]["messages"]
    assert user["content"][0] == content[0]
    assert user["content"][1]["source"]["type"] == "url"
    assert assistant["content"] == "A pixel."


def test_a_client_before_1_0_gets_no_outcome_that_it_does_not_know(host: AgentHost, model: PracticeModel):
    """It names no version, and fails at the ids of tool calls that wait for it."""
    for version, outcome in ((None, ["type"]), ("1.0", ["type", "pendingToolCallIds"])):
        model.plan(PLANS["agui tool"][0])
        run = run_input("where", tools=[{"name": "locate", "description": "Where."}], protocolVersion=version)
        assert [*events_of(host, run)[-1]["outcome"]] == outcome
