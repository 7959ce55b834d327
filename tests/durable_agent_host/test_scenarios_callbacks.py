"""Tools whose results come later, from jobs elsewhere: answered by a token that opens nothing else."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.kit import AgentHost, PracticeModel, start_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "callbacks"
EVA = {"x-who": "eva"}


BOSS = {"x-who": "bob/boss"}


class Studio:
    """A host on one data directory that may crash, and the ledger of its tools."""

    def __init__(self, folder: Path, model: PracticeModel) -> None:
        self.folder = folder
        self._model = model
        self._ledger = folder / "ledger.txt"
        self._ledger.touch()
        self.host: AgentHost

    def start(self, crash: str = "") -> None:
        """Start the host; it dies at a crash point, or not at all."""
        settings = {"LEDGER": str(self._ledger), "DURABLE_AGENT_HOST_CRASH": crash}
        settings["DURABLE_AGENT_HOST_MAX_TOOL_RESULT_BYTES"] = "20000"
        self.host = start_host(self.folder / "data", self._model, app=APP, **settings)

    @property
    def lines(self) -> list[str]:
        """What the tools have left."""
        return self._ledger.read_text().splitlines()

    def paths(self) -> dict[str, str]:
        """Paths of callbacks, by job."""
        return dict(line.rsplit(" ", 1) for line in self.lines)

    def clear(self) -> None:
        """Empty the ledger."""
        self._ledger.write_text("")

    def begin(self, session: str, agent: str = "Studio") -> str:
        """Start a turn; return its URL."""
        headers = {"x-ms-wait-for-response": "false", **EVA}
        response = self.host.run(agent, {"message": "go", "session_id": session}, headers=headers)
        assert response.status_code == 202, response.text
        return response.json()["turn_url"].partition("/api")[2]

    def read(self, turn: str) -> dict:
        """Read a turn."""
        return requests.get(f"{self.host.url}/api{turn}", headers=EVA).json()

    def waiting(self, turn: str) -> list[dict]:
        """Wait until a turn waits; return its pending calls."""
        return wait_until(lambda: view["pending_calls"] if (view := self.read(turn))["status"] == "waiting" else None)

    def ended(self, turn: str) -> dict:
        """Wait until a turn has ended."""
        return wait_until(lambda: view if (view := self.read(turn))["status"] not in {"running", "waiting"} else None)

    def call_back(self, path: str, body: object) -> requests.Response:
        """Post to a callback, as nobody."""
        return requests.post(f"{self.host.url}{path}", json=body)

    def outputs(self) -> list[str]:
        """Return the results of tools that the model was sent last."""
        items = self._model.requests()[-1]["body"]["input"]
        return [item["output"] for item in items if item["type"] == "function_call_output"]

    def events(self, turn: str) -> list[tuple[str, dict]]:
        """Read the events of a turn that has ended."""
        text = requests.get(f"{self.host.url}/api{turn}/events", headers=EVA).text
        blocks = [dict(line.split(": ", 1) for line in block.splitlines()) for block in text.strip().split("\n\n")]
        return [(block["event"], json.loads(block["data"])) for block in blocks]


@pytest.fixture(scope="module")
def _studio(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    studio = Studio(tmp_path_factory.mktemp("studio"), practice_model)
    studio.start()
    yield studio
    studio.host.stop()


@pytest.fixture
def studio(_studio: Studio, model: PracticeModel) -> Studio:
    """A host that runs, with an empty ledger."""
    del model
    _studio.clear()
    return _studio


def plan(model: PracticeModel, *calls: tuple[str, dict[str, object]]) -> None:
    """Plan an answer with calls, then a last one."""
    model.plan({"calls": [{"name": name, "arguments": arguments} for name, arguments in calls]}, {"text": "Done."})


def test_a_token_answers_its_call_without_a_key_or_a_name(studio: Studio, model: PracticeModel):
    """The turn waits without running the tool again; the same result is accepted again, another one is not."""
    plan(model, ("render", {"film": "Metropolis"}))
    turn = studio.begin("render")
    (call,) = studio.waiting(turn)
    assert (call["kind"], call["name"], call["arguments"]) == ("callback", "render", {"film": "Metropolis"})
    path = studio.paths()["Metropolis"]
    assert path not in json.dumps(studio.read(turn))
    for body in ({"approved": True}, {}, [], {"result": 1, "error": "none"}):
        refusal = studio.call_back(path, body)
        assert (refusal.status_code, "approved" in refusal.json()["detail"]) == (400, False)
    assert studio.call_back(path, {"result": 1, "call_id": "call_other"}).status_code == 403
    response = studio.call_back(path, {"result": {"frames": 7}})
    assert (response.status_code, response.json()) == (200, {"call_id": call["call_id"], "status": "answered"})
    assert studio.ended(turn)["response"] == "Done."
    assert [json.loads(output) for output in studio.outputs()] == [{"frames": 7}]
    assert studio.call_back(path, {"result": {"frames": 7}}).status_code == 200
    assert studio.call_back(path, {"result": {"frames": 8}}).status_code == 409
    assert len(studio.lines) == 1
    names = [name for name, _ in studio.events(turn)]
    assert names[1:7] == [
        *("tool.started", "call.pending", "turn.waiting", "call.answered", "tool.completed", "message.started")
    ]


def test_a_tool_of_an_agent_within_the_agent_may_defer(studio: Studio, model: PracticeModel):
    """The call is named by its path, its token answers it, and neither agent asks its model again."""
    model.plan({"calls": [{"name": "cutter", "arguments": {"task": "cut"}}]}, {"text": "Directed."}, agent="Direct.")
    model.plan({"calls": [{"name": "render", "arguments": {"film": "M"}}]}, {"text": "It is cut."}, agent="Cut.")
    turn = studio.begin("within", "Director")
    (call,) = studio.waiting(turn)
    assert (call["kind"], call["name"], call["path"].count("/t:")) == ("callback", "render", 2)
    assert studio.call_back(studio.paths()["M"], {"result": "rendered"}).status_code == 200
    assert studio.ended(turn)["response"] == "Directed."
    assert studio.outputs() == ["It is cut."]
    assert len(model.requests()) == 4
    assert len(studio.lines) == 1


def test_a_token_opens_nothing_else(studio: Studio, model: PracticeModel):
    """A changed token, another call's and none at all learn nothing; the token is no key to other routes."""
    plan(model, ("render", {"film": "Faust"}))
    turn = studio.begin("closed")
    studio.waiting(turn)
    path = studio.paths()["Faust"]
    token = path.rpartition("/")[2]
    changed = token[:-1] + ("0" if token[-1] != "0" else "1")
    for wrong_token in (changed, "cb_nothing", "cb_e30." + "0" * 64, "x"):
        response = studio.call_back(f"/api/callbacks/{wrong_token}", {"result": 1})
        assert (response.status_code, response.json()["detail"]) == (404, "there is no such callback")
    bearer = {"authorization": f"Bearer {token}"}
    for method, other in (("GET", ""), ("GET", "/events"), ("POST", "/cancel"), ("GET", "/steps")):
        url = f"{studio.host.url}/api{turn}{other}"
        assert requests.request(method, url, headers=bearer).status_code == 403
    answers = f"{studio.host.url}/api{turn}/answers"
    for sent in ({}, {"headers": bearer}, {"params": {"token": token}}):
        assert requests.post(answers, json={"result": "early"}, **sent).status_code == 403
    response = studio.call_back(path, {"result": "in time"})
    assert response.json().keys() == {"call_id", "status"}
    assert studio.ended(turn)["status"] == "completed"
    assert studio.outputs() == ["in time"]


def test_a_result_must_fit_its_schema(studio: Studio, model: PracticeModel):
    """What does not fit is refused with the place, and the call still waits; an error needs no schema."""
    plan(model, ("count_words", {"book": "Emma"}), ("count_words", {"book": "Lear"}))
    turn = studio.begin("count")
    calls = studio.waiting(turn)
    assert calls[0]["schema"]["required"] == ["count"]
    paths = studio.paths()
    response = studio.call_back(paths["Emma"], {"result": {"count": "many"}})
    assert response.status_code == 400
    assert "$.count" in response.json()["detail"]
    large_result = {"result": {"count": 1, "words": "w" * 20_000}}
    assert studio.call_back(paths["Emma"], large_result).status_code == 400
    assert studio.call_back(paths["Lear"], {"error": "the book is lost"}).status_code == 200
    (remaining_call,) = studio.waiting(turn)
    assert remaining_call["arguments"] == {"book": "Emma"}
    assert studio.call_back(paths["Emma"], {"result": {"count": 3}}).status_code == 200
    assert studio.ended(turn)["status"] == "completed"
    assert studio.outputs() == ['{"count": 3}', "Error: the book is lost"]


def test_a_call_without_a_result_expires(studio: Studio, model: PracticeModel):
    """The model is told, and a late result is refused."""
    plan(model, ("race", {"horse": "Red"}))
    turn = studio.begin("race")
    assert studio.ended(turn)["status"] == "completed"
    assert studio.outputs()[0].startswith("Error: no answer before ")
    assert studio.call_back(studio.paths()["Red"], {"result": "won"}).status_code == 410


def test_a_result_may_come_before_the_turn_waits(studio: Studio, model: PracticeModel):
    """What a job sends is taken at once, and found when the other calls of the answer have ended."""
    plan(model, ("render", {"film": "Nosferatu"}), ("render", {"film": "Faust"}), ("climb", {"steps": 150}))
    turn = studio.begin("early")
    paths = wait_until(lambda: found if len(found := studio.paths()) > 1 else None)
    assert studio.call_back(paths["Faust"], {"progress": {"text": "half"}}).status_code == 202
    assert studio.call_back(paths["Nosferatu"], {"error": "e" * 20_001}).status_code == 400
    first, again, other = (studio.call_back(paths["Nosferatu"], {"result": text}) for text in ("a", "a", "b"))
    assert (first.status_code, first.json()["status"]) == (202, "accepted")
    assert (again.status_code, other.status_code) == (200, 409)
    assert studio.read(turn)["status"] == "running"
    call = wait_until(lambda: next((call for call in studio.waiting(turn) if call.get("progress")), None))
    assert (call["arguments"], call["progress"]["text"]) == ({"film": "Faust"}, "half")
    assert studio.call_back(paths["Faust"], {"error": "it is lost"}).status_code == 200
    assert studio.ended(turn)["status"] == "completed"
    assert studio.outputs() == ["a", "Error: it is lost", "climbed"]


def test_an_early_result_outlives_the_process(tmp_path: Path, model: PracticeModel):
    """Killed after it took a result for a call that did not wait yet, the host has it; the tool does not run again."""
    studio = Studio(tmp_path, model)
    plan(model, ("render", {"film": "M"}), ("climb", {"steps": 3000}))
    studio.start()
    turn = studio.begin("s")
    try:
        path = wait_until(lambda: studio.paths().get("M"))
        assert studio.call_back(path, {"result": "rendered"}).status_code == 202
        studio.host.kill()
        studio.start()
        assert studio.ended(turn)["status"] == "completed"
        assert studio.outputs()[0] == "rendered"
        assert studio.call_back(path, {"result": "rendered"}).status_code == 200
        assert len(studio.lines) == 1
    finally:
        studio.host.kill()


def test_a_tool_that_needs_approval_may_defer(studio: Studio, model: PracticeModel):
    """The approval and the callback are two calls; the tool runs once, with what the approver has changed."""
    plan(model, ("build", {"house": "red"}))
    turn = studio.begin("build")
    (approval,) = studio.waiting(turn)
    url = f"{studio.host.url}/api{turn}/answers"
    body = {"call_id": approval["call_id"], "approved": True}
    assert requests.post(url, json=body, headers=EVA, timeout=30).status_code == 403
    assert requests.post(url, json=body, headers=BOSS, timeout=30).status_code == 200
    callback = wait_until(lambda: next((call for call in studio.waiting(turn) if call["kind"] == "callback"), None))
    assert callback["call_id"] != approval["call_id"]
    assert requests.post(url, json=body | {"call_id": callback["call_id"]}, headers=BOSS, timeout=30).status_code == 400
    assert studio.call_back(studio.paths()["red"], {"result": "built"}).status_code == 200
    assert studio.ended(turn)["status"] == "completed"
    assert (studio.outputs(), len(studio.lines)) == (["built"], 1)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("wait_for_ever", "DURABLE_AGENT_HOST_TURN_LOG_RETENTION_HOURS"),
        ("wait_for_a_number", "expires is 3600: give a timedelta"),
    ],
)
def test_a_call_cannot_wait_longer_than_its_log_is_kept(studio: Studio, model: PracticeModel, name, reason):
    """The tool gets an error, which the log explains; nothing waits. A number has no unit."""
    plan(model, (name, {}))
    turn = studio.begin("for ever")
    assert studio.ended(turn)["status"] == "completed"
    assert "Error" in studio.outputs()[0]
    assert studio.lines == []
    wait_until(lambda: reason in studio.host.text)


def test_a_call_that_dies_before_its_deferral_is_in_doubt(tmp_path: Path, model: PracticeModel):
    """Until the deferral is journaled, the call is one as any other; its job's result comes too late."""
    studio = Studio(tmp_path, model)
    plan(model, ("render", {"film": "M"}))
    studio.start("journal.tool.after_run")
    turn = studio.begin("s")
    studio.host.process.wait(60)
    try:
        studio.start()
        assert studio.ended(turn)["status"] == "completed"
        assert "is not known" in studio.outputs()[0]
        assert studio.call_back(studio.paths()["M"], {"result": "rendered"}).status_code == 409
        assert len(studio.lines) == 1
    finally:
        studio.host.kill()


def test_tools_show_their_progress(studio: Studio, model: PracticeModel):
    """Notes are events between a tool's start and end, few a second, the last one kept; from threads, too."""
    plan(model, ("climb", {"steps": 30}), ("dive", {"metres": 9}))
    started_at = time.monotonic()
    turn = studio.begin("climb")
    assert studio.ended(turn)["status"] == "completed"
    seconds = time.monotonic() - started_at
    events = studio.events(turn)
    names = [name for name, _ in events]
    notes = [data for name, data in events if name == "tool.progress"]
    by_text = {note["text"]: note for note in notes}
    assert by_text["step 0"]["fraction"] == 0
    assert by_text["9 m deep"]["fraction"] is None
    climbing_notes = [note for note in notes if note["fraction"] is not None]
    assert climbing_notes[-1]["fraction"] == 1
    assert 2 <= len(climbing_notes) <= 2 + seconds / 0.25
    assert names.index("tool.started") < names.index("tool.progress") < len(names) - names[::-1].index("tool.completed")


def test_a_job_shows_its_progress(studio: Studio, model: PracticeModel):
    """The pending call has the last note; notes that come fast are dropped, and a result ends them."""
    plan(model, ("render", {"film": "Vampyr"}))
    turn = studio.begin("job")
    studio.waiting(turn)
    path = studio.paths()["Vampyr"]
    assert studio.call_back(path, {"progress": {"text": "half", "fraction": 0.5}}).status_code == 202
    progress = wait_until(lambda: studio.waiting(turn)[0].get("progress"))
    assert (progress["text"], progress["fraction"]) == ("half", 0.5)
    assert studio.call_back(path, {"progress": {"text": "more"}}).status_code == 202
    for body in ({"progress": "half"}, {"progress": {"text": "x", "fraction": 2}}):
        assert studio.call_back(path, body).status_code == 400
    assert studio.waiting(turn)[0]["progress"] == progress
    assert studio.call_back(path, {"result": "rendered"}).status_code == 200
    assert studio.ended(turn)["status"] == "completed"
    assert studio.call_back(path, {"progress": {"text": "late"}}).status_code == 409


def test_a_tool_knows_for_whom_it_runs(studio: Studio, model: PracticeModel):
    """The running call has the principal, the agent, the session, the turn and the path."""
    plan(model, ("introduce", {}))
    turn = studio.begin("who")
    view = studio.ended(turn)
    who, agent, session, turn_id, path = studio.outputs()[0].split(" ")
    assert (who, agent, session) == ("eva@contoso", "Studio", "who")
    assert turn_id == view["turn_id"]
    assert path.startswith("m0/t:")
