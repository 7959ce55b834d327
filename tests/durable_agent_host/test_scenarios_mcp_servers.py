"""Tools of MCP servers that are killed and restarted, between turns and within a call."""

import os
import signal
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.test_scenarios_approvals import read_ended_turn
from tests.durable_agent_host.test_scenarios_session_state import call
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import Process, wait_until

APP = Path(__file__).parent / "apps" / "mcp_servers"
UNKNOWN = "Error: The outcome of this call is not known"


class Local:
    """The MCP server that the host starts, and starts again after it was killed."""

    agent = "Local"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def pids(self) -> list[int]:
        """Of its processes so far."""
        return [int(pid) for pid in (self.folder / "pids").read_text().split()]

    def start(self) -> None:
        """Leave it to the host."""

    def kill(self) -> None:
        """End with SIGKILL what the agents have started; returns when it is gone."""
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: not _is_running(pid))


def _is_running(pid: int) -> bool:
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


class Remote:
    """An MCP server over HTTP that can be killed and started again at the same URL."""

    agent = "Remote"

    def __init__(self, folder: Path) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self.port = str(listener.getsockname()[1])
        self.folder = folder
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._command = ["-m", "server", *(str(folder / name) for name in ("others", "ledger", "tools")), self.port]
        self.process: Process | None = None

    def start(self) -> None:
        """Start it, unless it runs; returns when it answers."""
        if self.process is not None and self.process.process.poll() is None:
            return
        environment = {**os.environ, "PYTHONPATH": str(APP)}
        self.process = process = Process(*self._command, env=environment, preload=("mcp.server.mcpserver", "uvicorn"))
        process.await_ready(lambda: "Uvicorn running" in process.text)

    def kill(self) -> None:
        """End it with SIGKILL."""
        assert self.process is not None
        self.process.kill()


class Gateway(ThreadingHTTPServer):
    """Passes requests on to an MCP server over HTTP; it answers the next call of a tool itself.

    Args:
        target: of the server.

    Attributes:
        url: where it listens.
        before: status of the answer to the next call, which the server does not get.
        after: status, type and body of the answer to the next call, when the server has answered.
        breaks: what the requests contain whose connections end, in their order.
    """

    def __init__(self, target: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.target = target
        self.before: int | None = None
        self.after: tuple[int, str, bytes] | None = None
        self.breaks: list[bytes] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}/mcp"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


class _Passing(BaseHTTPRequestHandler):
    server: Gateway

    def do_GET(self) -> None:
        self._send(405, {})

    def do_DELETE(self) -> None:
        self._send(405, {})

    def do_POST(self) -> None:
        gateway = self.server
        body = self.rfile.read(int(self.headers["content-length"]))
        is_call = b'"tools/call"' in body
        if is_call and gateway.before is not None:
            status, gateway.before = gateway.before, None
            self._send(status, {"retry-after": "1"}, b"no")
            return
        if gateway.breaks and gateway.breaks[0] in body:
            del gateway.breaks[0]
            self.close_connection = True
            return
        headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
        response = requests.post(gateway.target, data=body, headers=headers, stream=True)
        if is_call and gateway.after is not None:
            (status, kind, data), gateway.after = gateway.after, None
            assert response.content
            self._send(status, {"content-type": kind}, data)
            return
        names = response.headers.keys() & {"Content-Type", "Mcp-Session-Id"}
        self._send(response.status_code, {name: response.headers[name] for name in names})
        with suppress(OSError):
            for chunk in response.iter_content(None):
                self.wfile.write(chunk)

    def _send(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def gateway(remote: Remote) -> Iterator[Gateway]:
    """A gateway before the server over HTTP."""
    running = Gateway(remote.url)
    yield running
    running.shutdown()
    running.server_close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the servers share with the test: their pids, the ledger, the names of their tools."""
    return tmp_path_factory.mktemp("mcp")


@pytest.fixture(scope="module")
def local(folder: Path) -> Local:
    """The server over stdio."""
    return Local(folder)


@pytest.fixture(scope="module")
def remote(folder: Path) -> Iterator[Remote]:
    """The server over HTTP."""
    server = Remote(folder)
    yield server
    if server.process is not None:
        server.kill()


@pytest.fixture(scope="module")
def _using(
    practice_model: PracticeModel,
    folder: Path,
    remote: Remote,
    gateway: Gateway,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AgentHost]:
    data = tmp_path_factory.mktemp("mcp_servers")
    urls = {"MCP_URL": remote.url, "GATEWAY_URL": gateway.url}
    with running_host(data, practice_model, app=APP, FOLDER=str(folder), **urls) as running:
        yield running


@pytest.fixture
def using(_using: AgentHost, model: PracticeModel, folder: Path) -> AgentHost:
    """A host whose agents use the servers, which offer four tools; the ledger is empty."""
    (folder / "ledger").write_text("")
    (folder / "tools").write_text("note book look reserve")
    return _using


def turn(host: AgentHost, agent: str, session: str) -> requests.Response:
    """Run a turn."""
    return host.run(agent, {"message": "go", "session_id": session})


def outputs(model: PracticeModel) -> list[str]:
    """What the model was told last of the tools' results."""
    sent = model.requests()[-1]["body"]["input"]
    return [item["output"] for item in sent if item["type"] == "function_call_output"]


def ledger(folder: Path) -> list[str]:
    """What the tools have written."""
    return (folder / "ledger").read_text().splitlines()


def write_step(text: str) -> dict:
    """A step of a plan that calls the tool ``note``."""
    return {"calls": [call("note", text=text)]}


def test_a_server_that_restarts_serves_all_sessions_again(using: AgentHost, model: PracticeModel, local: Local):
    """After the server that the host has started was killed, the next turns start one server, and use it together."""
    model.plan(write_step("first"), {"text": "Done."})
    assert turn(using, "Local", "first").status_code == 200
    process_count = len(local.pids)
    local.kill()
    model.plan(write_step("again"), {"text": "Done."}, times=None, by_round=True)
    with ThreadPoolExecutor() as pool:
        responses = [*pool.map(lambda index: turn(using, "Local", f"again{index}"), range(4))]
    assert [response.status_code for response in responses] == [200] * 4
    assert ledger(local.folder) == ["note first", *["note again"] * 4]
    assert len(local.pids) == process_count + 1


def test_a_server_that_stays_away_fails_turns_until_it_is_back(using: AgentHost, model: PracticeModel, local: Local):
    """Turns say which server cannot be reached; when it is back with other tools, the model is offered those."""
    model.plan(write_step("before"), {"text": "Done."})
    assert turn(using, "Local", "away").status_code == 200
    (local.folder / "tools").unlink()  # the server does not start without
    local.kill()
    wait_until(lambda: turn(using, "Local", "away").status_code == 502)  # the host has to see the end of the pipe
    response = turn(using, "Local", "away")
    assert response.status_code == 502
    assert response.json()["detail"] == "the MCP server 'ledger' cannot be reached: see that it runs, and try again"
    (local.folder / "tools").write_text("late")
    model.reset()
    model.plan({"calls": [call("late", text="after")]}, {"text": "Done."})
    assert turn(using, "Local", "away").status_code == 200
    assert [tool["name"] for tool in model.requests()[-1]["body"]["tools"]] == ["late"]
    assert ledger(local.folder) == ["note before", "note after"]
    (local.folder / "tools").write_text("note book look reserve")
    local.kill()


@pytest.fixture(params=["Local", "Remote"])
def server(request: pytest.FixtureRequest, local: Local, remote: Remote) -> Local | Remote:
    """Each of the servers."""
    return local if request.param == "Local" else remote


@pytest.mark.drawn(1)
def test_a_call_that_is_cut_is_in_doubt(using: AgentHost, model: PracticeModel, server: Local | Remote):
    """A call whose server is killed is not repeated; the model gets a result that says that its outcome is unknown."""
    cut(using, model, server, "book")
    (output,) = outputs(model)
    assert output.startswith(UNKNOWN)
    assert ledger(server.folder) == ["begin blue"]


def test_a_call_that_is_cut_runs_again_if_that_is_harmless(using: AgentHost, model: PracticeModel, local: Local):
    """A call whose server is killed is repeated if the server declares the tool read-only."""
    cut(using, model, local, "look")
    (output,) = outputs(model)
    assert "booked blue" in output
    assert ledger(local.folder) == ["begin blue", "begin blue", "end blue"]


def test_a_call_of_an_agent_that_is_a_tool_is_in_doubt_too(using: AgentHost, model: PracticeModel, local: Local):
    """The model of a nested agent learns that the outcome is unknown; the server serves the next call."""
    cut(using, model, local, "book", agent="Asking")
    (output,) = [
        item["output"]
        for request in model.requests()
        for item in request["body"]["input"]
        if item["type"] == "function_call_output" and item["output"] != "Done."
    ]
    assert output.startswith(UNKNOWN)
    model.plan({"calls": [call("ask_helper", task="note")]}, write_step("after"), {"text": "Done."}, {"text": "Done."})
    assert turn(using, "Asking", "asking-after").status_code == 200
    assert ledger(local.folder) == ["begin blue", "note after"]


def cut(host: AgentHost, model: PracticeModel, server: Local | Remote, tool: str, agent: str = "") -> None:
    """Run a turn that calls a tool whose server is killed while it works; another one is there for the next call."""
    server.start()
    slow = server.folder / "slow"
    slow.touch()
    outer = [{"calls": [call("ask_helper", task="book")]}, {"text": "Done."}] if agent else []
    model.plan(*outer[:1], {"calls": [call(tool, room="blue")]}, {"text": "Done."}, *outer[1:])
    with ThreadPoolExecutor() as pool:
        response = pool.submit(turn, host, agent or server.agent, f"cut-{tool}")
        wait_until(lambda: ledger(server.folder) == ["begin blue"], 60)
        server.kill()
        server.start()
        slow.unlink()
        assert response.result().status_code == 200


def test_a_call_to_a_stopped_server_does_not_run(using: AgentHost, model: PracticeModel, remote: Remote):
    """When a server is killed within a turn and stays down, the model learns that its next call did not run."""
    remote.start()
    (remote.folder / "slow").touch()
    model.plan({"calls": [call("book", room="blue")]}, write_step("never"), {"text": "Done."})
    with ThreadPoolExecutor() as pool:
        response = pool.submit(turn, using, "Remote", "gone")
        wait_until(lambda: ledger(remote.folder) == ["begin blue"], 60)
        remote.kill()
        assert response.result().status_code == 200
    (remote.folder / "slow").unlink()
    cut_call, next_call = outputs(model)
    assert cut_call.startswith(UNKNOWN)
    assert next_call.startswith("Error: The tool did not run: the MCP server 'remote' cannot be reached")
    assert ledger(remote.folder) == ["begin blue"]


FAILURES: dict[str, tuple[int, str, bytes]] = {
    "500": (500, "text/plain", b"Internal Server Error"),
    "502": (502, "text/html", b"<html>Bad Gateway</html>"),
    "503": (503, "application/json", b'{"error": "overloaded"}'),
    "504": (504, "text/plain", b""),
    "html": (200, "text/html", b"<html>"),
    "json": (200, "application/json", b'{"jsonrpc": "2.0", "id": '),
    "events": (200, "text/event-stream", b"event: message\ndata: {not json\n\n"),
    "no events": (200, "text/event-stream", b""),
    "accepted": (202, "text/plain", b""),
}


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", FAILURES)
def test_a_call_that_a_gateway_answers_is_in_doubt(
    using: AgentHost, model: PracticeModel, remote: Remote, gateway: Gateway, name: str
):
    """It is not repeated after the server has run the tool, unless that is harmless."""
    remote.start()
    for tool, effects in (("book", ["begin blue", "end blue"]), ("look", ["begin blue", "end blue"] * 2)):
        (remote.folder / "ledger").write_text("")
        gateway.after = FAILURES[name]
        model.plan({"calls": [call(tool, room="blue")]}, {"text": "Done."})
        assert turn(using, "Behind", f"{name}-{tool}").status_code == 200
        (output,) = outputs(model)
        assert output.startswith(UNKNOWN) if tool == "book" else "booked blue" in output
        assert ledger(remote.folder) == effects


@pytest.mark.drawn(1)
@pytest.mark.parametrize("status", [400, 401, 403, 404, 429])
def test_a_call_that_a_gateway_refuses_has_failed(
    using: AgentHost, model: PracticeModel, remote: Remote, gateway: Gateway, status: int
):
    """The server did not get it: it is not in doubt, and the model learns that it failed."""
    remote.start()
    gateway.before = status
    model.plan({"calls": [call("book", room="blue")]}, {"text": "Done."})
    assert turn(using, "Behind", f"refused-{status}").status_code == 200
    assert outputs(model) == ["Error: Function failed."]
    assert ledger(remote.folder) == []


def test_a_cut_call_whose_server_does_not_list_its_tools_again_has_no_result(
    using: AgentHost, model: PracticeModel, remote: Remote, gateway: Gateway
):
    """It is as with a server that cannot be reached, and the next turn has the tools."""
    remote.start()
    gateway.breaks = [b'"tools/call"', b'"tools/list"']
    model.plan({"calls": [call("look", room="blue")]}, {"text": "Done."})
    assert turn(using, "Behind", "unlisted").status_code == 200
    (output,) = outputs(model)
    assert output.startswith("Error: The call was cut and has no result; it is safe to make it again")
    model.plan({"calls": [call("look", room="blue")]}, {"text": "Done."})
    assert turn(using, "Behind", "unlisted").status_code == 200
    assert "booked blue" in outputs(model)[-1]


def test_an_approved_call_whose_server_is_away_keeps_its_approval(
    using: AgentHost, model: PracticeModel, remote: Remote
):
    """The turn fails, and once it resumes, no call is asked about again; the call runs once."""
    remote.start()
    model.plan({"calls": [call("note", text="approved"), call("locate")]}, {"text": "Done."})
    waiting = turn(using, "Approving", "away").json()
    question, locating = sorted(waiting["pending_calls"], key=itemgetter("kind"))
    remote.kill()
    assert answer(waiting["turn_url"], question, approved=True).status_code == 200
    assert answer(waiting["turn_url"], locating, result="Rome").status_code == 200
    assert end_of(waiting["turn_url"]) == "failed"
    error = requests.get(waiting["turn_url"]).json()["error"]
    assert "MCP server 'approving' cannot be reached" in error["message"]
    assert error["retryable"] is True
    assert (ledger(remote.folder), len(model.requests())) == ([], 1)
    assert (answer(waiting["turn_url"], question, approved=False)).status_code == 409
    remote.start()
    assert requests.post(f"{waiting['turn_url']}/resume").status_code == 202
    assert end_of(waiting["turn_url"]) == "completed"
    assert (ledger(remote.folder), outputs(model)[1:]) == (["note approved"], ["Rome"])
    events = requests.get(waiting["events_url"]).text
    assert [events.count(f"event: call.{name}\n") for name in ("pending", "answered")] == [2, 2]
    answers = [answer(waiting["turn_url"], question, approved=approved).status_code for approved in (True, False)]
    assert answers == [200, 409]


def test_a_server_at_a_url_that_restarts_is_used_again(using: AgentHost, model: PracticeModel, remote: Remote):
    """A server that is away fails turns with its name, and serves all sessions once it is back."""
    remote.start()
    model.plan(write_step("before"), {"text": "Done."})
    assert turn(using, "Remote", "one").status_code == 200
    remote.kill()
    response = turn(using, "Remote", "one")
    assert response.status_code == 502
    assert "MCP server 'remote' cannot be reached" in response.json()["detail"]
    remote.start()
    model.reset()
    model.plan(write_step("after"), {"text": "Done."}, times=None, by_round=True)
    assert [turn(using, "Remote", session).status_code for session in ("one", "two")] == [200, 200]
    assert ledger(remote.folder) == ["note before", "note after", "note after"]


def answer(turn_url: str, question: dict[str, Any], **answer: Any) -> requests.Response:
    """Answer a question."""
    return requests.post(f"{turn_url}/answers", json={"call_id": question["call_id"]} | answer)


def end_of(turn_url: str) -> str:
    """Wait for a turn's end; gives its status."""
    return wait_until(lambda: read_ended_turn({"turn_url": turn_url}))["status"]


@pytest.mark.drawn(1)
def test_a_question_of_a_server_is_declined(using: AgentHost, model: PracticeModel, server: Local | Remote):
    """The tool that asks does not go on, and the model learns that its call has failed."""
    server.start()
    model.plan({"calls": [call("reserve", room="blue")]}, {"text": "Done."})
    assert turn(using, server.agent, f"asks-{server.agent}").status_code == 200
    assert outputs(model) == ["Error: Function failed."]
    assert ledger(server.folder) == []
