"""Tools of the model's service that the client runs: custom tools, patches, shells, computers."""

import base64
import json

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import approve, read_ended_turn, waiting_turn
from tests.durable_agent_host.test_scenarios_cancel import run_next_turn
from tests.durable_agent_host.test_scenarios_client_tools import give
from tests.kit import AgentHost, PracticeModel
from tests.processes import wait_until

CODERS = ("Coder", "StoredCoder")
"""An agent whose conversation the host keeps (``store`` false), and one whose conversation the service keeps."""
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n0000").decode()
THINK = {"reasoning": "Let me see."}
SQL = {"type": "custom_tool_call", "name": "write_sql", "input": "SELECT 1"}
OPERATION = {"type": "create_file", "path": "a.txt", "diff": "+hello"}
PATCH = {"type": "apply_patch_call", "status": "completed", "operation": OPERATION}
EXEC = {"type": "exec", "command": ["ls", "-a"], "env": {}}
LOCAL_SHELL = {"type": "local_shell_call", "status": "completed", "action": EXEC}
COMMANDS = {"commands": ["ls", "pwd"], "timeout_ms": 1000, "max_output_length": 500}
SHELL = {"type": "shell_call", "status": "completed", "action": COMMANDS, "environment": {"type": "local"}}
PRINTED = {"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}}
CHECKS = [{"id": "s1", "code": "malicious_instructions", "message": "Look out."}]
CLICK = {"type": "click", "button": "left", "x": 1, "y": 2}
COMPUTER = {"type": "computer_call", "status": "completed", "actions": [CLICK], "pending_safety_checks": CHECKS}
SCREEN = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PIXEL}"}
IMAGE = [{"type": "image", "data": PIXEL, "media_type": "image/png"}]

CASES = {
    "custom": (SQL, "write_sql", {"input": "SELECT 1"}, "1 row", {"output": "1 row"}),
    "custom, json": (SQL, "write_sql", {"input": "SELECT 1"}, {"rows": 1}, {"output": '{"rows": 1}'}),
    "patch": (PATCH, "apply_patch", OPERATION, "Created.", {"status": "completed", "output": "Created."}),
    "local shell": (LOCAL_SHELL, "local_shell", EXEC, "a b", {"output": "a b"}),
    "shell": (
        SHELL,
        "shell",
        COMMANDS,
        [PRINTED, {"stdout": "/x"}],
        {"output": [PRINTED, {"stdout": "/x", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
    ),
    "shell, item": (SHELL, "shell", COMMANDS, {"output": [PRINTED]}, {"output": [PRINTED]}),
    "computer": (
        COMPUTER,
        "computer",
        {"actions": [CLICK], "pending_safety_checks": CHECKS},
        IMAGE,
        {"output": SCREEN, "acknowledged_safety_checks": CHECKS},
    ),
}
"""Item, name and arguments of the pending call, the client's result, the fields of the output for the model."""

ERRORS = {
    "custom": (SQL, {"output": "Error: no database"}),
    "patch": (PATCH, {"status": "failed", "output": "Error: no database"}),
    "local shell": (LOCAL_SHELL, {"output": "Error: no database"}),
    "shell": (
        SHELL,
        {"output": [{"stdout": "Error: no database", "stderr": "", "outcome": {"type": "exit", "exit_code": 1}}]},
    ),
}


def event_data(turn):
    """Read the data of a turn's events."""
    lines = requests.get(turn["events_url"]).text.splitlines()
    return [json.loads(line.removeprefix("data:")) for line in lines if line.startswith("data:")]


def sent_output(model: PracticeModel, item):
    """Give the output in the newest request, without its type and its call's id."""
    entries = model.requests()
    (call,) = [output for output in entries[-2]["output"] if output["type"] == item["type"]]
    output_type = f"{item['type']}_output"
    (output,) = [sent for sent in entries[-1]["body"]["input"] if sent.get("type") == output_type]
    assert output["call_id"] == call["call_id"]
    return {name: value for name, value in output.items() if name not in {"type", "call_id"}}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("agent", CODERS)
@pytest.mark.parametrize("case", CASES)
def test_the_client_runs_a_tool_of_the_service(people: AgentHost, model: PracticeModel, agent, case):
    """The call is a pending call; its result is the item's output; the model and the next turn accept it."""
    item, name, arguments, result, output = CASES[case]
    model.plan({"items": [THINK, {"item": item}]}, {"text": "Done."})
    turn = waiting_turn(people, agent=agent)
    (call,) = turn["pending_calls"]
    assert (call["kind"], call["name"], call["arguments"]) == ("client_tool", name, arguments)
    assert approve(turn, give(call, result)).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert (ended_turn["status"], ended_turn["response"]) == ("completed", "Done."), ended_turn
    assert sent_output(model, item) == output
    events = requests.get(turn["events_url"]).text.replace(" ", "")
    assert events.count("event:tool.started") == events.count("event:tool.completed") == 1
    assert events.index("call.answered") < events.index("event:tool.completed")
    told_arguments = [data["arguments"] for data in event_data(turn) if "arguments" in data]
    assert told_arguments == [arguments] * len(told_arguments)
    session_path = f"/agents/{agent}/sessions/{turn['session_id']}"
    steps = people.get(f"{session_path}/turns/{turn['turn_id']}/steps").json()["steps"]
    (step,) = (step for step in steps if step["kind"] == "tool_call")
    assert (step["outcome"], step["runs_in"], step["in_doubt"]) == ("success", "host", False)
    assert step["arguments"] == arguments
    assert people.get(f"{session_path}/verify").json()["problems"] == []
    item_types = [sent["type"] for sent in run_next_turn(people, model, agent, turn["session_id"])]
    if agent == "Coder":
        calls = ["reasoning", item["type"], f"{item['type']}_output"]
        assert item_types == ["message", *calls, "message", "message"]
    else:
        assert item_types == ["message"]


@pytest.mark.drawn(2)
@pytest.mark.parametrize("case", ERRORS)
def test_an_error_of_the_client_is_an_output(people: AgentHost, model: PracticeModel, case):
    """The output says that the call failed, in the words of the client."""
    item, output = ERRORS[case]
    model.plan({"item": item}, {"text": "Never mind."})
    turn = waiting_turn(people, agent="Coder")
    error = {"call_id": turn["pending_calls"][0]["call_id"], "error": "no database"}
    assert approve(turn, error).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Never mind."
    assert sent_output(model, item) == output
    assert '"outcome":"error"' in requests.get(turn["events_url"]).text.replace(" ", "")
    run_next_turn(people, model, "Coder", turn["session_id"])


@pytest.mark.parametrize("reply", [{"error": "the screen is locked"}, {"result": "the screen is locked"}])
def test_a_computer_without_a_screenshot_is_explained(people: AgentHost, model: PracticeModel, reply):
    """The service takes nothing but a screenshot: the model gets an empty one, and the words as a message."""
    model.plan({"item": COMPUTER}, {"text": "Never mind."})
    turn = waiting_turn(people, agent="Coder")
    assert approve(turn, {"call_id": turn["pending_calls"][0]["call_id"]} | reply).status_code == 200
    assert wait_until(lambda: read_ended_turn(turn))["response"] == "Never mind."
    assert sent_output(model, COMPUTER)["output"]["image_url"].startswith("data:image/png;base64,iVBOR")
    last = model.requests()[-1]["body"]["input"][-1]
    assert (last["role"], "the screen is locked" in last["content"][0]["text"]) == ("user", True)
    run_next_turn(people, model, "Coder", turn["session_id"])


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", CODERS)
def test_calls_of_every_kind_are_answered_in_any_order(people: AgentHost, model: PracticeModel, agent, book):
    """Beside a tool of the app, which runs once; the model is asked again when all have their results."""
    rest = {"calls": [{"name": "rest", "arguments": {"seconds": 0}}]}
    model.plan({"items": [{"item": SQL}, rest, {"item": PATCH}]}, {"item": SQL}, {"text": "Done."})
    turn = waiting_turn(people, agent=agent)
    sql, patch = turn["pending_calls"]
    assert approve(turn, give(patch, "Created.")).status_code == 200
    assert approve(turn, give(sql, "1 row")).status_code == 200

    def next_calls():
        calls = requests.get(turn["turn_url"]).json().get("pending_calls") or ()
        return [call for call in calls if call["call_id"] not in {sql["call_id"], patch["call_id"]}]

    (again,) = wait_until(next_calls)
    assert approve(turn, give(again, "2 rows")).status_code == 200
    ended_turn = wait_until(lambda: read_ended_turn(turn))
    assert (ended_turn["status"], ended_turn["response"]) == ("completed", "Done."), ended_turn
    assert book.read_text() == "resting\nrested\n"
    entries = model.requests()
    assert len(entries) == 3
    outputs = [sent for sent in entries[1]["body"]["input"] if sent["type"].endswith("_output")]
    assert {(sent["type"], sent["output"]) for sent in outputs} == {
        ("function_call_output", "rested"),
        ("custom_tool_call_output", "1 row"),
        ("apply_patch_call_output", "Created."),
    }
    run_next_turn(people, model, agent, turn["session_id"])
