"""An app of several files, with auth levels, timers and tools, as a running host serves it."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions_host.conftest import MANAGEMENT, Host, StartHost
from tests.processes import wait_until

SETTINGS = {"EVERY_SECOND": "* * * * * *", "AzureWebJobs.switched_off.Disabled": "true"}


@pytest.fixture(scope="module")
def model(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the app, open to all as locally usual."""
    running = start_host("model", tmp_path_factory.mktemp("model") / "data", "-v", env=SETTINGS)
    yield running
    running.stop()


def test_blueprints_of_several_files(model: Host):
    """Functions of blueprints in other modules are served, durable clients, sync and async activities included."""
    answer = model.send("POST", "/api/orders/tea")
    assert (answer.status, answer.text) == (200, "sent packed tea")


def test_all_levels_are_open_without_keys(model: Host):
    """Locally every request is an administrator's."""
    for name in ("open", "guarded", "administrators"):
        assert model.send("GET", f"/api/{name}").text == name


def test_a_disabled_function_is_not_served(model: Host):
    """AzureWebJobs.<function>.Disabled makes its route answer 404."""
    assert model.send("GET", "/api/off").status == 404


def test_start_lists_the_functions(model: Host):
    """With -v there is one line per function after the ready line, with methods and URL or with the trigger."""
    lines = [line.strip() for line in model.output[1:14]]
    assert f"guarded: [GET] {model.url}/api/guarded" in lines
    assert f"create_order: [POST] {model.url}/api/orders/{{name}}" in lines
    assert "pack: activityTrigger" in lines
    assert "yearly: timerTrigger 0 0 0 1 1 *" in lines
    assert f"add_numbers: mcpToolTrigger add at {model.url}/runtime/webhooks/mcp" in lines
    assert not [line for line in lines if "switched_off" in line]


# --- timers -------------------------------------------------------------------------------------


def runs(data: Path, name: str) -> list[dict]:
    path = data / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_timer_continues_after_failures_and_never_overlaps(model: Host):
    """A function that takes longer than its interval, and raises, runs again at the next whole second."""
    seen = wait_until(lambda: (found := runs(model.data, "often"))[2:] and found, 10)
    gaps = [after["at"] - before["at"] for before, after in itertools.pairwise(seen)]
    assert all(1.9 < gap < 2.4 for gap in gaps), gaps
    assert all(run["at"] % 1 < 0.4 for run in seen)
    assert not any(run["past_due"] or run["status"] for run in seen)
    assert "of no consequence" in model.log.read_text()


def test_run_on_startup_and_retries(model: Host):
    """A function that fails is called again as its policy says, and knows which attempt it is."""
    seen = wait_until(lambda: (found := runs(model.data, "at_startup"))[2:] and found)
    assert [run["retry"] for run in seen] == [[0, 2], [1, 2], [2, 2]]


def test_a_missed_occurrence_runs_once_at_start(start_host: StartHost, tmp_path: Path):
    """The status of a timer outlives the process; what was missed runs once, and knows that it is late."""
    data = tmp_path / "data"
    start_host("model", data, env=SETTINGS).stop()
    status = data / "timers" / "yearly.json"
    status_json = json.loads(status.read_text())
    assert status_json["Schedule"] == "0 0 0 1 1 *"
    assert runs(data, "yearly") == []
    status.write_text(json.dumps(status_json | {"Next": "2020-01-01T00:00:00+00:00"}))
    host = start_host("model", data, env=SETTINGS)
    (run,) = wait_until(lambda: runs(data, "yearly"))
    assert run["past_due"]
    assert run["status"]["Next"] == "2020-01-01T00:00:00+00:00"
    host.stop()
    start_host("model", data, env=SETTINGS).stop()
    assert len(runs(data, "yearly")) == 1


def test_a_timer_function_can_be_run_on_demand(model: Host):
    """POST /admin/functions/NAME runs it, not past due; its schedule stays as it is."""
    before = json.loads((model.data / "timers" / "yearly.json").read_text())
    assert model.send("POST", "/admin/functions/Yearly", "{}", Content_Type="application/json").status == 202
    (run,) = wait_until(lambda: runs(model.data, "yearly"))
    assert not run["past_due"]
    assert json.loads((model.data / "timers" / "yearly.json").read_text()) == before
    response = model.send("POST", "/admin/functions/pack", "{}", Content_Type="application/json")
    assert response.status == 400
    assert "'pack' is of the kind activityTrigger" in response.json["Message"]
    assert model.send("POST", "/admin/functions/nothing", "{}").status == 404


def test_tools_can_ask_whether_the_host_is_up(model: Host):
    """The front page, ping and status answer."""
    assert model.send("GET", "/").status == 200
    assert model.send("GET", "/admin/host/ping").status == 200
    assert model.send("GET", "/admin/host/status").json["state"] == "Running"


# --- keys ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keyed_host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the app that asks for keys."""
    running = start_host("model", tmp_path_factory.mktemp("guarded") / "data", "--enable-auth", env=SETTINGS)
    yield running
    running.stop()


def test_keys_open_what_their_level_allows(keyed_host: Host):
    """With --enable-auth, a function needs its level's key, in a header or in the query."""
    keys = json.loads((keyed_host.data / "keys.json").read_text())
    assert (keyed_host.data / "keys.json").stat().st_mode & 0o777 == 0o600
    cases = {"open": (200, 200, 200, 200), "guarded": (401, 401, 200, 200), "administrators": (401, 401, 401, 200)}
    for path, status_codes in cases.items():
        for key, status in zip(("", "wrong", keys["function"], keys["master"]), status_codes, strict=True):
            assert keyed_host.send("GET", f"/api/{path}?code={key}").status == status, (path, key)
            assert keyed_host.send("GET", f"/api/{path}", x_functions_key=key).status == status, (path, key)


def test_the_first_key_of_a_query_is_checked(keyed_host: Host):
    """In any case of the parameter's name, and only without the header: as the platform does it."""
    right = json.loads((keyed_host.data / "keys.json").read_text())["function"]
    queries = {f"CODE={right}": 200, f"Code={right}&code=wrong": 200, f"CODE=wrong&code={right}": 401}
    for query, status in queries.items():
        assert keyed_host.send("GET", f"/api/guarded?{query}").status == status, query
    for header, query, status in ((right, "wrong", 200), ("wrong", right, 401), ("", right, 401)):
        answer = keyed_host.send("GET", f"/api/guarded?code={query}", x_functions_key=header)
        assert answer.status == status, (header, query)


def test_a_rejection_contains_a_hint(keyed_host: Host):
    """Without a key, and for a route or method that there is not, the answer is a problem with a sentence."""
    key = json.loads((keyed_host.data / "keys.json").read_text())["master"]
    paths = ("/api/guarded", "/admin/host/status", f"{MANAGEMENT}/instances", "/runtime/webhooks/mcp")
    rejections = [(keyed_host.send("GET", path), 401, "x-functions-key") for path in paths]
    missing = {
        "/api/nothing": "No function takes GET /api/nothing.",
        "/api/orders/tea": "No function takes GET /api/orders/tea.",
        "/admin/nothing": "/admin has no route GET /nothing",
        f"{MANAGEMENT}/nothing": "has no route GET /nothing",
    }
    rejections += [(keyed_host.send("GET", path, x_functions_key=key), 404, text) for path, text in missing.items()]
    for answer, status, sentence in rejections:
        assert (answer.status, answer.json["status"]) == (status, status)
        assert answer.headers["content-type"] == "application/problem+json"
        assert sentence in answer.json["detail"]
    response = keyed_host.send("GET", "/runtime/webhooks/mcp", x_functions_key=key)
    assert (response.status, "takes POST" in response.text) == (405, True)


def test_admin_needs_the_master_key(keyed_host: Host):
    """No other key opens it."""
    keys = json.loads((keyed_host.data / "keys.json").read_text())
    for key, status in [("", 401), (keys["function"], 401), (keys["system"], 401), (keys["master"], 200)]:
        assert keyed_host.send("GET", "/admin/host/status", x_functions_key=key).status == status


def test_the_management_api_needs_the_system_key(keyed_host: Host):
    """The URLs that the app hands out carry it; the app's own client needs none."""
    keys = json.loads((keyed_host.data / "keys.json").read_text())
    assert keyed_host.send("GET", f"{MANAGEMENT}/instances").status == 401
    assert keyed_host.send("GET", f"{MANAGEMENT}/instances?code={keys['function']}").status == 401
    assert keyed_host.send("GET", f"{MANAGEMENT}/instances?code={keys['system']}").status == 200
    assert keyed_host.send("POST", f"/api/orders/tea?code={keys['function']}").text == "sent packed tea"
    answer = keyed_host.send("POST", f"{MANAGEMENT}/orchestrators/order?code={keys['system']}", '"tea"')
    address = answer.json["statusQueryGetUri"].removeprefix(keyed_host.url)
    assert keyed_host.send("GET", address).status in {200, 202}
    assert keyed_host.send("POST", "/runtime/webhooks/mcp").status == 401


def test_keys_are_saved_and_not_printed(start_host: StartHost, tmp_path: Path):
    """The start says where the keys are; the next start has the same."""
    saved_keys: list[str] = []
    for _ in range(2):
        host = start_host("model", tmp_path / "data", "--enable-auth", env=SETTINGS)
        host.stop()
        output = host.text + host.log.read_text()
        saved_keys.append((tmp_path / "data" / "keys.json").read_text())
        assert str(tmp_path / "data" / "keys.json") in output
        assert not any(key in output for key in json.loads(saved_keys[-1]).values())
    assert saved_keys[0] == saved_keys[1]


# --- tools --------------------------------------------------------------------------------------

ACCEPT = {"Accept": "application/json, text/event-stream", "Content_Type": "application/json"}


def ask(host: Host, method: str, params: object = None, **headers: str):
    body = json.dumps({"jsonrpc": "2.0", "id": 7, "method": method, "params": params or {}})
    answer = host.send("POST", "/runtime/webhooks/mcp", body, **ACCEPT, **headers)
    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    event = re.fullmatch(r"event: message\ndata: (.+)\n\n", answer.text)
    return json.loads(event[1]), answer.headers


def test_mcp_introduces_itself(model: Host):
    """Its answer to initialize has a session and its name; notifications are accepted, unknown methods are errors."""
    body, headers = ask(model, "initialize", {"protocolVersion": "2025-03-26"})
    assert body["result"]["protocolVersion"] == "2025-03-26"
    assert body["result"]["serverInfo"]["name"] == "Azure Functions MCP server"
    assert len(headers["mcp-session-id"]) == 32
    notification = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    assert model.send("POST", "/runtime/webhooks/mcp", notification, **ACCEPT).status == 202
    assert ask(model, "ping")[0]["result"] == {}
    assert ask(model, "resources/nothing")[0]["error"]["code"] == -32601
    for number, code in (("[7", -32700), ("[7]", -32600), ('{"a": 7}', -32600)):
        odd = '{"jsonrpc": "2.0", "method": "ping", "id": ' + number + "}"
        answer = model.send("POST", "/runtime/webhooks/mcp", odd, **ACCEPT).text
        assert f'"id": null, "error": {{"code": {code}' in answer
    assert model.send("GET", "/runtime/webhooks/mcp", **ACCEPT).status == 405
    assert model.send("POST", "/runtime/webhooks/mcp", notification).status == 406


def test_mcp_tools_can_be_found_and_called(model: Host):
    """A tool has its schema; required arguments are checked; a failure is a result that says so."""
    tools = {tool["name"]: tool for tool in ask(model, "tools/list")[0]["result"]["tools"]}
    assert tools["add"]["description"] == "Add two numbers."
    assert tools["add"]["inputSchema"]["required"] == ["a"]
    assert tools["add"]["inputSchema"]["properties"]["b"] == {"type": "number", "description": "other"}
    result = ask(model, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})[0]["result"]
    assert result == {"content": [{"type": "text", "text": "5"}]}
    result = ask(model, "tools/call", {"name": "measure"})[0]["result"]
    assert result == {"content": [{"type": "text", "text": "7 cm"}], "structuredContent": {"size": 7}}
    assert "a" in ask(model, "tools/call", {"name": "add", "arguments": {}})[0]["error"]["message"]
    assert "nothing" in ask(model, "tools/call", {"name": "nothing"})[0]["error"]["message"]
    failed_result = ask(model, "tools/call", {"name": "fail"})[0]["result"]
    assert failed_result["isError"]
    assert "as asked" in failed_result["content"][0]["text"]
