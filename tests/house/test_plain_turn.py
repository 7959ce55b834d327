"""A plain turn stays small: how much of the host runs when an agent without options calls one tool and answers."""

import ast
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

import pytest

from functions_host.testing import AppUnderTest, durable_app
from tests.house.source import SRC

__all__ = ["durable_app"]

PACKAGE = SRC / "durable_agent_host"
MAX_MODULES = 130
MAX_FUNCTIONS = 786
MIN_STATEMENTS = 0.158
"""The share of the host's statements that two turns and a read use. A figure that gets better is corrected here."""
TOOL = sys.monitoring.OPTIMIZER_ID


@contextmanager
def recorded_lines() -> Iterator[dict[str, set[tuple[str, int]]]]:
    """Record the lines of the host that run, by file: the function's qualified name, and the line's number."""
    lines: dict[str, set[tuple[str, int]]] = defaultdict(set)

    def record(code: CodeType, number: int) -> object:
        if code.co_filename.startswith(str(PACKAGE)):
            lines[code.co_filename].add((code.co_qualname, number))
        return sys.monitoring.DISABLE

    sys.monitoring.use_tool_id(TOOL, "plain turn")
    sys.monitoring.register_callback(TOOL, sys.monitoring.events.LINE, record)
    sys.monitoring.set_events(TOOL, sys.monitoring.events.LINE)
    try:
        yield lines
    finally:
        sys.monitoring.set_events(TOOL, 0)
        sys.monitoring.free_tool_id(TOOL)
        sys.monitoring.restart_events()


def count_statements(path: Path) -> set[int]:
    """Return the first lines of the statements inside the functions of a module, without docstrings."""
    lines: set[int] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            statements = node.body[1:] if ast.get_docstring(node) is not None else node.body
            lines |= {inner.lineno for outer in statements for inner in ast.walk(outer) if isinstance(inner, ast.stmt)}
    return lines


@pytest.fixture
def station(durable_app: Callable[[Path], AppUnderTest]) -> AppUnderTest:
    """An app that has answered once: what is made once per process has been made."""
    app = durable_app(Path(__file__).parent / "plain_app")
    run_turn(app, "first")
    return app


def run_turn(app: AppUnderTest, session_id: str) -> None:
    """Run a turn that calls the tool."""
    body = json.dumps({"message": "When does my train leave?", "session_id": session_id}).encode()
    response = app.http("POST", "/api/agents/Station/run", body=body, headers={"content-type": "application/json"})
    assert response.json()["response"] == "At noon."


def run_functions(station: AppUnderTest, session_id: str) -> set[tuple[str, str]]:
    """Run a turn; gives the file and the name of each function that ran meanwhile."""
    with recorded_lines() as lines:
        run_turn(station, session_id)
    return {(file, name) for file, places in lines.items() for name, _ in places if "<" not in name.split(".")[-1]}


def test_a_plain_turn_runs_few_modules_and_functions(station: AppUnderTest):
    """A feature that a turn does not use is not on its way; what timers run beside it is not in each of three turns."""
    functions = set.intersection(*(run_functions(station, f"plain-{number}") for number in range(3)))
    assert len({file for file, _ in functions}) <= MAX_MODULES
    assert len(functions) <= MAX_FUNCTIONS


def test_two_turns_and_a_read_use_much_of_the_host(station: AppUnderTest):
    """What few users need is a small part of the host."""
    with recorded_lines() as lines:
        run_turn(station, "twice")
        run_turn(station, "twice")
        assert station.http("GET", "/api/agents/Station/sessions/twice").status == 200
    statements = {path: count_statements(path) for path in PACKAGE.rglob("*.py")}
    used = sum(len(numbers & {line for _, line in lines[str(path)]}) for path, numbers in statements.items())
    assert used / sum(map(len, statements.values())) >= MIN_STATEMENTS
