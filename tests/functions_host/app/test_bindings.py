"""Bindings that the embedded host does not serve are told, and never pretended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.functions_host.conftest import Host, StartHost
from tests.functions_host.test_start import write_app

HINT = "use the service's own client in the function, or run the app with func start"


@pytest.fixture(scope="module")
def bound(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with the app of these tests."""
    running = start_host("bindings", tmp_path_factory.mktemp("bindings") / "data")
    yield running
    running.stop()


def notes(bound: Host) -> list[str]:
    path = bound.data / "notes"
    return path.read_text().splitlines() if path.exists() else []


def test_the_start_names_functions_and_bindings(bound: Host):
    """Each function that has them is warned of by name; one that is not served at all is named as that alone."""
    log = bound.log.read_text()
    for sentence in (
        "Function 'sends': this host does not serve the output 'letter' (queue); a call that sets it fails.",
        "Function 'reads': this host does not serve the input 'page' (blob); every call fails.",
        "Function 'yearly': this host does not serve the return value (queue); a call that sets it fails.",
        "Function 'posts': this host does not serve the output 'letter' (queue); a call that sets it fails.",
        "Function 'look': this host does not serve the input 'page' (blob); every call fails.",
        "This host does not serve: receives (queueTrigger).",
    ):
        assert log.count(sentence) == 1, sentence
    assert "Function 'stores': this host does not serve the output 'letter' (queue), the output 'page' (blob);" in log
    assert "Function 'receives'" not in log


def test_an_output_that_nobody_stores_is_a_500(bound: Host):
    """The caller learns which output was lost, and what to do; without the output, the answer is the function's."""
    answer = bound.send("GET", "/api/sends")
    assert answer.status == 500
    assert answer.text == (
        "Function 'sends' ran, but this host does not serve the output 'letter' (queue), so nothing was stored there; "
        f"{HINT}.\n"
    )
    assert answer.text.strip() in bound.log.read_text()
    assert bound.send("GET", "/api/sends?silent=1").text == "sent"
    assert notes(bound).count("sends ran") == 2


STREAMING = """
import azure.functions as func
from azurefunctions.extensions.http.fastapi import Request, Response

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

@app.route()
@app.queue_output(arg_name="letter", queue_name="letters", connection="S")
{0}def sends(req: Request, letter: func.Out[str]) -> str:
    if "silent" not in req.query_params:
        letter.set("dear reader")
    return "sent"

@app.route()
@app.blob_input(arg_name="page", path="pages/one", connection="S")
{0}def reads(req: Request, page: str) -> str:
    return page

@app.route(binding_arg_name="answer")
{0}def named(req: Request, answer: func.Out[Response]) -> None:
    answer.set(Response("by name", status_code=201))
"""


@pytest.mark.parametrize("kind", ["", "async "])
def test_functions_that_take_a_fastapi_request(start_host: StartHost, tmp_path: Path, kind: str):
    """The same holds for functions of the streaming extension."""
    host = start_host(write_app(tmp_path / "app", STREAMING.format(kind)), tmp_path / "data")
    answer = host.send("GET", "/api/sends")
    assert (answer.status, "'letter' (queue), so nothing was stored" in answer.text) == (500, True)
    assert host.send("GET", "/api/sends?silent=1").json == "sent"
    answer = host.send("GET", "/api/reads")
    assert (answer.status, "does not serve the input 'page' (blob)" in answer.text) == (500, True)
    answer = host.send("GET", "/api/named")
    assert (answer.status, answer.text) == (201, "by name")
    host.stop()
    assert "Traceback" not in host.log.read_text()
