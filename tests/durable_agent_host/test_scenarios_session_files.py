"""Files and todo lists that the framework's context providers keep for a session live, fork and end with it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_session_state import call
from tests.kit import AgentHost, Lives, PracticeModel

APP = Path(__file__).parent / "apps" / "session_files"
PLAN = {"file_name": "plan.txt", "content": "Buy plums.\n", "description": "the plan"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The app's working directory, in which the framework's stores would keep their files."""
    return tmp_path_factory.mktemp("folder")


@pytest.fixture(scope="module")
def _lives(practice_model: PracticeModel, folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lives]:
    lives = Lives(tmp_path_factory.mktemp("session_files"), practice_model, app=APP, FOLDER=str(folder))
    yield lives
    lives.host.stop()


@pytest.fixture
def life(_lives: Lives, model: PracticeModel) -> Lives:
    """A host with these agents, that can crash; the model has no plan."""
    return _lives


def results(host: AgentHost, model: PracticeModel, agent: str, session: str, *calls: dict[str, Any]) -> list[Any]:
    """Run a turn whose model makes these calls one after the other; gives what the tools returned."""
    model.plan(*({"calls": [tool_call]} for tool_call in calls), {"text": "Done."})
    response = host.run(agent, {"message": "go", "session_id": session})
    assert response.status_code == 200, response.text
    sent = model.requests()[-1]["body"]["input"]
    outputs = [item["output"] for item in sent if item["type"] == "function_call_output"]
    return outputs[-len(calls) :]


def on_disk(folder: Path) -> list[str]:
    """The files that providers have left, other than the shared ones."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in files if "shared" not in path.parts)


def test_the_harness_agent_keeps_its_notes_in_the_session(life: Lives, model: PracticeModel, folder: Path):
    """Notes and todos of the framework's harness agent survive a crash, and are in no folder."""
    todo = call("todos_add", todos=[{"title": "plums"}])
    results(life.host, model, "Harness", "notes", call("file_memory_write", **PLAN), todo)
    host = life.crash()
    files, plan, todos = results(
        host,
        model,
        "Harness",
        "notes",
        *(call("file_memory_ls"), call("file_memory_read", file_name="plan.txt")),
        call("todos_get_all"),
    )
    assert json.loads(files) == [{"name": "plan.txt", "type": "file", "description": "the plan"}]
    assert plan == "Buy plums.\n"
    assert json.loads(todos)[0]["title"] == "plums"
    assert "plan.txt**: the plan" in json.dumps(model.requests()[-1]["body"]["input"])
    assert on_disk(folder) == []


def test_the_files_of_a_session_end_with_it(life: Lives, model: PracticeModel):
    """A session that begins under the id of a deleted one has none of its files."""
    results(life.host, model, "Harness", "ended", call("file_memory_write", **PLAN))
    response = requests.delete(f"{life.host.url}/api/agents/Harness/sessions/ended")
    assert response.status_code == 200, response.text
    assert results(life.host, model, "Harness", "ended", call("file_memory_ls")) == ["[]"]


def test_a_fork_has_the_files_of_its_original(life: Lives, model: PracticeModel):
    """A fork begins with the files of the original, and what it writes is its own."""
    results(life.host, model, "Harness", "original", call("file_memory_write", **PLAN))
    url = f"{life.host.url}/api/agents/Harness/sessions/original/fork"
    assert requests.post(url, json={"session_id": "copied"}).status_code == 201
    pears = call("file_memory_replace", file_name="plan.txt", old_string="plums", new_string="pears")
    read = call("file_memory_read", file_name="plan.txt")
    assert results(life.host, model, "Harness", "copied", pears, read)[1] == "Buy pears.\n"
    assert results(life.host, model, "Harness", "original", read) == ["Buy plums.\n"]


def test_another_session_does_not_see_the_files(life: Lives, model: PracticeModel):
    """The files of a session are not those of another one with the same agent."""
    results(life.host, model, "Harness", "mine", call("file_memory_write", **PLAN))
    assert results(life.host, model, "Harness", "yours", call("file_memory_ls")) == ["[]"]


def test_files_of_a_failed_turn_are_in_its_session(life: Lives, model: PracticeModel):
    """What a turn has written stays when the turn fails afterwards, like its messages."""
    error = {"error": {"status": 400, "code": "bad", "message": "no such temperature"}}
    model.plan({"calls": [call("file_memory_write", **PLAN)]}, error)
    assert life.host.run("Harness", {"message": "go", "session_id": "failed"}).status_code == 502
    (listing,) = results(life.host, model, "Harness", "failed", call("file_memory_ls"))
    assert [file["name"] for file in json.loads(listing)] == ["plan.txt"]


def test_a_turn_that_is_replayed_edits_a_file_once(life: Lives, model: PracticeModel):
    """A stream that breaks after an edit does not repeat the edit, and the turn continues with the edited file."""
    results(life.host, model, "Harness", "broken", call("file_memory_write", **PLAN))
    more = call("file_memory_replace", file_name="plan.txt", old_string="Buy", new_string="Buy Buy")
    read = {"calls": [call("file_memory_read", file_name="plan.txt")]}
    model.plan({"calls": [more]}, read | {"break_after_events": 3}, read, {"text": "Done."})
    assert life.host.run("Harness", {"message": "go", "session_id": "broken"}).status_code == 200
    outputs = [
        item["output"] for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output"
    ]
    assert outputs[-1] == "Buy Buy plums.\n"


def test_workspaces_and_todo_files_are_stored_in_the_session(life: Lives, model: PracticeModel, folder: Path):
    """A session's own workspace and a list of todos that the framework would write to a file survive a crash."""
    write = call("file_access_write", file_name="drafts/plan.txt", content="Buy plums.\n")
    results(life.host, model, "Working", "work", write, call("todos_add", todos=[{"title": "plums"}]))
    host = life.crash()
    matches, todos = results(
        host, model, "Working", "work", call("file_access_grep", regex_pattern="PLUM"), call("todos_get_all")
    )
    assert [match["file_name"] for match in json.loads(matches)] == ["drafts/plan.txt"]
    assert json.loads(todos)[0]["title"] == "plums"
    assert on_disk(folder) == []


def test_an_agent_that_is_a_tool_leaves_no_files(life: Lives, model: PracticeModel, folder: Path):
    """The notes of an agent that is a tool of another one go with its session, which ends with the call."""
    model.plan(
        {"calls": [call("ask_helper", task="note the plan")]},
        {"calls": [call("file_memory_write", **PLAN)]},
        *({"text": "Noted."}, {"text": "Done."}),
    )
    assert life.host.run("Asking", {"message": "go", "session_id": "asking"}).json()["response"] == "Done."
    assert on_disk(folder) == []


def test_files_with_a_scope_belong_to_the_app(life: Lives, model: PracticeModel, folder: Path):
    """Files that a provider shares between sessions by its scope stay where the app keeps them."""
    results(life.host, model, "Sharing", "one", call("file_memory_write", **PLAN))
    requests.delete(f"{life.host.url}/api/agents/Sharing/sessions/one")
    assert (folder / "shared" / "everybody" / "plan.txt").read_text() == "Buy plums.\n"
    assert results(life.host, model, "Sharing", "two", call("file_memory_read", file_name="plan.txt")) == [
        "Buy plums.\n"
    ]
