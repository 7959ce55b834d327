"""What the embedded host shows of the app's own logs."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from functions_host.app.logs import find_level
from tests.functions_host.conftest import Host, StartHost
from tests.functions_host.test_start import write_app
from tests.processes import wait_until

ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"


@pytest.fixture(scope="module")
def app_host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with an app that logs, without any option."""
    running = start_host("worker_http", tmp_path_factory.mktemp("logs") / "data")
    yield running
    running.stop()


def log_lines(host: Host, path: str) -> list[str]:
    """Call a function, and give the lines that the log has of it, without time and invocation."""
    before = len(host.log.read_text())
    assert host.send("GET", f"/api/{path}").status == 200
    lines = host.log.read_text()[before:].splitlines()
    ids = {found[0] for line in lines if (found := re.search(ID, line))}
    assert len(ids) == 1, lines
    return [re.sub(rf" {ID}\]", "]", re.sub(r"^\d{4}-\d\d-\d\d [\d:,]+ ", "", line)) for line in lines]


def test_log_records_of_a_function_are_printed_once(app_host: Host):
    """From INFO on, with the logger, the function and the invocation; the library's own loggers stay quiet."""
    assert log_lines(app_host, "writes") == [
        "INFO root [writes]: root info",
        "WARNING root [writes]: root warning",
        "ERROR orders [writes]: orders error",
    ]


def test_an_async_function_and_its_tasks(app_host: Host):
    """Tasks that a function starts belong to its invocation, tracebacks included."""
    lines = log_lines(app_host, "writes_later")
    assert "INFO orders [writes_later]: first line" in lines
    at = lines.index("ERROR orders [writes_later]: nested line")
    assert lines[at + 1].startswith("Traceback")
    assert "ZeroDivisionError: division by zero" in lines


def test_a_failure_is_one_record(app_host: Host):
    """A function that fails is told once, with its traceback."""
    before = len(app_host.log.read_text())
    assert app_host.send("GET", "/api/divides").status == 500
    lines = app_host.log.read_text()[before:].splitlines()
    assert len([line for line in lines if "Function 'divides' failed" in line]) == 1
    assert lines.count("ZeroDivisionError: division by zero") == 1


def test_requests_are_not_logged_without_verbose(app_host: Host):
    """The lines of requests stay with -v."""
    assert app_host.send("GET", "/api/text").text == "plain text"
    assert "/api/text" not in app_host.log.read_text()


APP = """
import logging
import azure.functions as func
logging.basicConfig(level=logging.DEBUG)
logging.info("while imported")
logging.getLogger("azure.core.something").warning("a library warns")
app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)

def write(name):
    for level in ("debug", "info", "warning", "error"):
        logging.log(getattr(logging, level.upper()), "%s %s", name, level)

@app.route()
def loud(req: func.HttpRequest) -> str:
    write("loud")
    return ""

@app.route()
def quiet(req: func.HttpRequest) -> str:
    write("quiet")
    return ""

@app.route()
def usual(req: func.HttpRequest) -> str:
    write("usual")
    return ""

@app.route()
def dumb(req: func.HttpRequest) -> str:
    write("dumb")
    return ""
"""
LEVELS = {
    "default": "Error",
    "Function": "Warning",
    "Function.loud": "Debug",
    "Function.quiet": "Error",
    "Function.dumb": "None",
}


def test_log_levels_of_host_json(start_host: StartHost, tmp_path: Path):
    """Levels hold by function, for all functions, and for the rest; one that does not exist is told."""
    host_json = {"version": "2.0", "logging": {"logLevel": {**LEVELS, "Host": "Loud"}}}
    app = write_app(tmp_path / "app", APP, host_json)
    host = start_host(app, tmp_path / "data", env={"PYTHON_ENABLE_DEBUG_LOGGING": "1"})
    for name in ("loud", "quiet", "usual", "dumb"):
        host.send("GET", f"/api/{name}")
    host.stop()
    log = host.log.read_text()
    found = re.findall(r"\b(loud|quiet|usual|dumb) (debug|info|warning|error)$", log, re.MULTILINE)
    assert found == [
        *(("loud", level) for level in ("debug", "info", "warning", "error")),
        ("quiet", "error"),
        ("usual", "warning"),
        ("usual", "error"),
    ]
    assert "while imported" not in log
    assert "a library warns" not in log
    assert "logging.logLevel.Host is 'Loud', which is no level" in log


def test_without_levels(start_host: StartHost, tmp_path: Path):
    """By default INFO is shown, of what is logged while the app is imported as well."""
    host = start_host(write_app(tmp_path / "app", APP), tmp_path / "data")
    host.send("GET", "/api/usual")
    host.stop()
    log = host.log.read_text()
    assert log.count("INFO root: while imported") == 1
    assert [word for word in ("usual debug", "usual info") if word in log] == ["usual info"]


def test_orchestrators_and_activities(start_host: StartHost, tmp_path: Path):
    """Durable functions are named like all others."""
    code = (
        "import logging\nimport azure.durable_functions as df\nimport azure.functions as func\napp = df.DFApp()\n"
        "@app.orchestration_trigger(context_name='context')\ndef deal(context):\n"
        "    logging.info('dealing')\n    yield context.call_activity('card', 1)\n    return 1\n"
        "@app.activity_trigger(input_name='n')\nasync def card(n: int) -> int:\n"
        "    logging.info('a card')\n    return n\n"
    )
    host = start_host(write_app(tmp_path / "app", code), tmp_path / "data")
    assert host.result("deal") == 1
    log = wait_until(lambda: (text := host.log.read_text()) and "a card" in text and text)
    host.stop()
    assert re.search(rf"INFO root \[deal {ID}\]: dealing", log)
    assert re.search(rf"INFO root \[card {ID}\]: a card", log)


@pytest.mark.parametrize(
    ("category", "level"),
    [("Function.a.User", 10), ("Function.b.User", 30), ("Function", 30), ("Functional", 40), ("default", 40)],
)
def test_the_nearest_category_decides(category: str, level: int):
    """A level holds for the categories below it, whatever the case of letters."""
    assert find_level({"function.A": 10, "Function": 30, "Default": 40}, category) == level
    assert find_level({}, category) == logging.INFO
