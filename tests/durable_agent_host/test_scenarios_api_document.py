"""The document of the API says what the routes do: schemathesis draws requests, and finds nothing else, and no 500."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import requests

from durable_agent_host.http.api_document import api_document
from durable_agent_host.http.routes import ROUTES
from tests.forks import ROOT
from tests.kit import AgentHost, PracticeModel, running_host
from tests.processes import wait_until
from tests.sweeps import IS_LONG, SEED, chooser, count

GATE = Path(__file__).parent / "apps" / "gate"
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_headers_conformance",
    "response_schema_conformance",
)
DRAWN = """
[parameters]
"path.workflow" = "shouting"
"""
NAMED = (
    DRAWN
    + """
"path.agent" = "Payer"
"path.session" = "described"
"path.turn" = "{turn}"
"path.call" = "1.0"
"path.run" = "described"
"path.request" = "{request}"
"query.session_id" = "described"
"query.thread_id" = "described"

[[operations]]
include-method = "DELETE"
parameters = {{ "path.session" = "to-delete" }}
"""
)


def test_the_document_is_open_to_everyone_and_names_its_server(lab: AgentHost):
    """Tools get it from the host that they ask, with the events, the routes that the app has, and nothing else."""
    response = requests.get(f"{lab.url}/api/openapi.json?x=y")
    document = response.json()
    assert response.headers["content-type"] == "application/json"
    assert document.pop("servers") == [{"url": f"{lab.url}/api"}]
    assert document == api_document(frozenset({"agents", "health"}))


def test_every_route_is_described():
    """A route says what it does, what it answers, and what each part of its path means."""
    paths = api_document()["paths"]
    described = {(path, method) for path, methods in paths.items() for method in methods}
    others = {(f"/workflow/{{workflow}}/{rest}", method) for rest, method in UPSTREAMS}
    assert {(f"/{route.template}", route.method.lower()) for route in ROUTES} | others == described
    for path, method in described:
        operation = paths[path][method]
        named_parts = {parameter["name"] for parameter in operation["parameters"] if parameter["in"] == "path"}
        assert operation["summary"], path
        assert any(int(status) < 400 for status in operation["responses"]), path
        assert named_parts == set(re.findall(r"\{(\w+)\}", path)), path


UPSTREAMS = (("run", "post"), ("status/{run}", "get"), ("respond/{run}/{request}", "post"))


def test_parameters_that_routes_read_are_described():
    """What a handler looks up in the query is in the table."""
    parameters = {parameter.name for route in ROUTES for parameter in route.parameters}
    sources = [path.read_text() for path in (ROOT / "src/durable_agent_host/http").glob("*.py")]
    reads = r"(?:query|params)(?:\.get\(|, )\"([\w-]+)\""
    assert {name for text in sources for name in re.findall(reads, text)} <= parameters


@pytest.mark.sweep
@pytest.mark.timeout(7200)
def test_schemathesis_finds_no_answer_outside_of_the_document(practice_model: PracticeModel, tmp_path: Path):
    """Drawn requests, valid and not, to what there is and to what there is not: answers are those of the document."""
    practice_model.reset()
    with running_host(tmp_path / "data", practice_model, app=GATE, LEDGER=str(tmp_path / "ledger.txt")) as host:
        url = f"{host.url}/api"
        caller = {"x-who": "ada@contoso"}
        answer = host.run("Payer", {"message": "Hello", "session_id": "described"}, headers=caller).json()
        assert host.run("Payer", "Hello", session_id="to-delete", headers=caller).ok
        assert requests.post(f"{url}/workflow/shouting/run?runId=described", data="Hi", headers=caller).ok
        assert requests.get(f"{url}/openapi.json").json() == {**api_document(), "servers": [{"url": url}]}
        pending = f"{url}/pending"
        (call,) = wait_until(lambda: requests.get(pending, headers=caller).json()["pending_calls"])
        run_schemathesis(host, tmp_path, NAMED.format(turn=answer["turn_id"], request=call["call_id"]))
        run_schemathesis(host, tmp_path, DRAWN)
        assert not [line for line in host.output if line.startswith("Traceback")], host.text


def run_schemathesis(host: AgentHost, folder: Path, configuration: str) -> None:
    """Ask every route for what the configuration names; what it does not name is drawn."""
    (folder / "schemathesis.toml").write_text(configuration)
    accept = chooser("accept").choice(["*/*", "application/json", "text/event-stream"])
    command = [
        *(str(Path(sys.executable).with_name("schemathesis")), "--config-file", "schemathesis.toml"),
        *("run", f"{host.url}/api/openapi.json", "--checks", ",".join(CHECKS), "--no-color", "--seed", str(SEED)),
        *("--max-examples", str(count("EXAMPLES", short=1, long=500)), "--request-timeout", "60"),
        *("--phases", "coverage,fuzzing,stateful" if IS_LONG else "fuzzing", "--suppress-health-check", "all"),
        *("-H", "x-who: ada@contoso", "-H", f"accept: {accept}"),
    ]
    report = subprocess.run(command, check=False, capture_output=True, text=True, cwd=folder)
    assert report.returncode == 0, report.stdout[-8000:] + report.stderr
    operations = sum(map(len, api_document()["paths"].values()))
    assert re.findall(r"Tested: (\d+)", report.stdout) == [str(operations)]
