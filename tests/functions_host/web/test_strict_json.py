"""NaN and Infinity, which Python reads and writes and JSON does not have: no answer has them, no body may."""

import json
from typing import Any

import pytest

from tests.functions_host.conftest import MANAGEMENT, Answer, Host
from tests.functions_host.web.test_management_api import call, fresh
from tests.processes import wait_until

JSON = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}
MCP = "/runtime/webhooks/mcp"


def strict(answer: Answer) -> Any:
    """Read an answer as a parser does that knows only JSON."""

    def reject(word: str) -> None:
        raise AssertionError(f"{word} in {answer.text}")

    return json.loads(answer.text.removeprefix("event: message\ndata: "), parse_constant=reject)


@pytest.fixture(scope="module")
def instance(host: Host) -> str:
    """An orchestration with such numbers in its input, status, output, event, child and entity; it has ended."""
    name = fresh("infinite")
    assert call(host, "start_new", "infinite", name, float("nan")) == name
    wait_until(lambda: host.send("GET", f"{MANAGEMENT}/entities/counter/{name}").status == 200)
    assert call(host, "raise_event", name, "Go", float("nan")) is None
    host.wait(name)
    return name


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("instances/{}", {"customStatus": {"at": "Infinity"}, "output": ["NaN", {"plain": "-Infinity"}, "NaN"]}),
        ("instances/{}?showHistory=true&showHistoryOutput=true", {"customStatus": {"at": "Infinity"}}),
        ("instances?instanceIdPrefix={}", [{"customStatus": {"at": "Infinity"}}]),
        ("entities/counter/{}", "NaN"),
        ("entities/counter?fetchState=true", [{"state": "NaN"}]),
    ],
)
def test_an_answer_of_the_management_api_is_json(host: Host, instance: str, path: str, expected: Any):
    """Numbers that JSON does not have are texts, as the platform writes them."""
    answer = strict(host.send("GET", f"{MANAGEMENT}/{path.format(instance)}"))
    if isinstance(expected, list):
        (answer,), (expected,) = answer, expected
    assert answer == expected if isinstance(expected, str) else expected.items() <= answer.items()


def test_an_output_that_is_waited_for_is_json(host: Host):
    """An orchestration that is started and waited for answers with its output."""
    body = json.dumps(json.dumps(float("inf")))
    answer = host.send("POST", f"{MANAGEMENT}/orchestrators/no_yield?timeout=60", body, **JSON)
    assert (answer.status, strict(answer)) == (200, {"plain": "Infinity"})


def test_a_body_that_a_function_describes_is_json(host: Host):
    """A text that describes a response, and a result of an MCP tool, are written by the host."""
    assert strict(host.send("GET", "/api/described/infinite")) == {"size": "Infinity"}
    request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "measure"}}
    assert strict(host.send("POST", MCP, json.dumps(request), **JSON))["result"]["structuredContent"] == {"size": "NaN"}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "path", ["orchestrators/no_yield", "instances/{}/raiseEvent/Go", "entities/counter/refused?op=add"]
)
def test_a_body_with_such_a_number_is_rejected(host: Host, instance: str, path: str, number: str):
    """What starts, is raised or signalled is a 400 that names the number, and changes nothing."""
    answer = host.send("POST", f"{MANAGEMENT}/{path.format(instance)}", f'{{"n": [{number}]}}', **JSON)
    assert answer.status == 400
    assert number in strict(answer)["ExceptionMessage"]
    assert host.send("GET", f"{MANAGEMENT}/entities/counter/refused").status == 404


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e999"])
def test_an_argument_of_a_tool_with_such_a_number_is_rejected(host: Host, number: str):
    """A call over MCP is an error of parsing that names the number."""
    request = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {{"arguments": {{"a": {number}}}}}}}'
    error = strict(host.send("POST", MCP, request, **JSON))["error"]
    assert (error["code"], number in error["message"]) == (-32700, True)
