"""The command ``durable-agent-host eval``: holds conversations with an app's agents, and checks how they end.

Theory of operation. A case is a conversation in a session of its own, with what its last turn should do. The app runs
on the embedded host, with its state in a temporary folder; with ``--url`` the cases are played against a running host.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any, Final, Literal, NoReturn, cast
from xml.etree import ElementTree as ET

import click
import yaml
from jsonschema import Draft202012Validator
from pydantic import BaseModel, ConfigDict, ValidationError

from durable_agent_host.agent_client import AgentClient
from durable_agent_host.cli.host_command import OK, PROBLEMS_FOUND, CommandError, printable, read_urls, start_module
from durable_agent_host.errors import AgentClientError
from durable_agent_host.turn import turn_events

_VERDICT: Final = {
    "type": "object",
    "properties": {"passes": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["passes", "reason"],
    "additionalProperties": False,
}


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Judge(_Model):
    """An agent of the app that decides whether an answer meets the criteria."""

    agent: str
    criteria: str


class _Answer(_Model):
    """What the answer should be; all that is set is checked."""

    equals: str | None = None
    matches: str | None = None
    json_schema: dict[str, Any] | None = None
    judge: _Judge | None = None


class _Case(_Model):
    """A conversation, and what its last turn should do."""

    name: str
    agent: str
    messages: list[str]
    tools: list[str | dict[str, dict[str, Any]]] | None = None
    answer: str | _Answer = _Answer()
    approve: bool | None = None
    status: Literal["success", "refused", "failed"] = "success"


@dataclass
class _Result:
    """How a case has ended; it passes without problems."""

    case: _Case
    problems: list[str] = field(default_factory=list[str])
    seconds: float = 0.0
    tokens: int = 0


@dataclass
class _Turn:
    """What a turn has done: its calls in their order, and its last event."""

    calls: dict[str, tuple[str, Any]] = field(default_factory=dict[str, tuple[str, Any]])
    status: str = ""
    text: str = ""
    value: Any = None
    tokens: int = 0


@click.command("eval")
@click.option("--app", "app_dir", default=".", show_default=True, type=click.Path(file_okay=False, path_type=Path))
@click.option("--url", help="play the cases against this running host instead of starting the app")
@click.option("--key", help="function key, for a host that requires one")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), help="write the results there, as JUnit XML")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def evaluate(app_dir: Path, url: str | None, key: str | None, junit: Path | None, file: Path) -> NoReturn:
    """Play the cases of a YAML FILE, and check tools and answers."""
    cases = _read_cases(file)
    with _running(app_dir, url) as host_url:
        results = asyncio.run(_play_all(host_url, key, cases))
    _print_table(results)
    if junit is not None:
        junit.write_text(_junit(file.stem, results), encoding="utf-8")
    sys.exit(PROBLEMS_FOUND if any(result.problems for result in results) else OK)


def _read_cases(file: Path) -> list[_Case]:
    try:
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} is no YAML: {error}") from None
    if not isinstance(document, list) or not document:
        raise CommandError(
            f"{file} has no list of cases, such as: - {{name: greets, agent: Helper, messages: [Hi], answer: Hello.}}"
        )
    cases: list[_Case] = []
    for number, item in enumerate(cast("list[Any]", document), 1):
        try:
            cases.append(_Case.model_validate(item))
        except ValidationError as error:
            first = error.errors()[0]
            path = ".".join(map(str, first["loc"]))
            raise CommandError(f"{file}, case {number}, {path or 'the whole case'}: {first['msg']}") from None
    return cases


@contextmanager
def _running(app_dir: Path, url: str | None) -> Generator[str]:
    """Start the app on a free port, with its state in a temporary folder; stop it at the end."""
    if url is not None:
        yield url
        return
    with tempfile.TemporaryDirectory(prefix="eval-") as folder:
        log = Path(folder, "log.txt")
        options = ["--app", str(app_dir), "--port", "0", "--data", str(Path(folder, "data"))]
        with log.open("w", encoding="utf-8") as errors:
            process = start_module(["functions_host", "start", *options], os.environ, errors)
        urls = read_urls(process)
        try:
            app_url = next(urls, "")
            if not app_url:
                raise CommandError(f"the app did not start:\n{log.read_text(encoding='utf-8').strip()}")
            Thread(target=list, args=(urls,), daemon=True).start()  # reads what the app prints
            yield app_url
        finally:
            process.terminate()
            process.wait()


async def _play_all(url: str, key: str | None, cases: Sequence[_Case]) -> list[_Result]:
    async with AgentClient(url, key=key) as client:
        return [await _play(client, case) for case in cases]


async def _play(client: AgentClient, case: _Case) -> _Result:
    result = _Result(case)
    started_at = time.perf_counter()
    session_id: str | None = None
    turn = _Turn()
    try:
        for message in case.messages:
            turn, session_id = await _run_turn(client, case, message, session_id)
            result.tokens += turn.tokens
            if turn.status != "success":
                break
        result.problems = await _problems(client, case, turn)
    except AgentClientError as error:
        result.problems = [str(error)]
    result.seconds = time.perf_counter() - started_at
    return result


async def _run_turn(client: AgentClient, case: _Case, message: str, session_id: str | None) -> tuple[_Turn, str | None]:
    turn = _Turn()
    async for event in client.stream(case.agent, message, session_id=session_id):
        data = event.data
        session_id = event.session_id
        match event.name:
            case turn_events.TOOL_STARTED if data["call_id"] not in turn.calls or data["arguments"] is not None:
                turn.calls[data["call_id"]] = (data["name"], data["arguments"])
            case turn_events.TOOL_COMPLETED if data.get("arguments") is not None:
                turn.calls[data["call_id"]] = (turn.calls[data["call_id"]][0], data["arguments"])
            case turn_events.CALL_PENDING if case.approve is None or data["kind"] != "approval":
                await client.cancel(case.agent, event.session_id, event.turn_id)
                turn.status, turn.text = "waiting", f"{data['name']} waits for {data['kind']}: give the case `approve`"
                return turn, session_id
            case turn_events.CALL_PENDING:
                turn.calls[data["call_id"]] = (data["name"], data["arguments"])
                answer = {"call_id": data["call_id"], "approved": case.approve}
                await client.answer(case.agent, event.session_id, event.turn_id, answer)
            case turn_events.TURN_FAILED:
                turn.status, turn.text = "failed", data["detail"]
            case _ if event.is_last:
                turn.status, turn.text, turn.value = data["status"], data["response"], data.get("value")
                usage: dict[str, Any] = data.get("usage") or {}
                turn.tokens = usage.get("total_token_count") or 0
            case _:
                pass
    return turn, session_id


async def _problems(client: AgentClient, case: _Case, turn: _Turn) -> list[str]:
    """Return what of a case's last turn is not as it should be."""
    if turn.status != case.status:
        return [f"status is {turn.status}, not {case.status}: {turn.text}"]
    problems: list[str] = []
    if case.tools is not None and (problem := _problem_of_tools(case.tools, [*turn.calls.values()])):
        problems.append(problem)
    expected = _Answer(equals=case.answer) if isinstance(case.answer, str) else case.answer
    if expected.equals is not None and turn.text.strip() != expected.equals.strip():
        problems.append(f"the answer is {turn.text!r}, not {expected.equals!r}")
    if expected.matches is not None and re.search(expected.matches, turn.text) is None:
        problems.append(f"the answer does not match {expected.matches!r}: {turn.text!r}")
    if expected.json_schema is not None:
        try:
            value = json.loads(turn.text) if turn.value is None else turn.value
        except ValueError:
            return [*problems, f"the answer is no JSON: {turn.text!r}"]
        validator = cast("Any", Draft202012Validator(expected.json_schema))
        problems += [error.message for error in validator.iter_errors(value)]
    if expected.judge is not None and (problem := await _problem_of_judge(client, expected.judge, case, turn)):
        problems.append(problem)
    return problems


def _problem_of_tools(expected: Sequence[str | dict[str, dict[str, Any]]], calls: Sequence[tuple[str, Any]]) -> str:
    """Say how the calls differ; arguments are compared where the case has them."""
    if len(expected) == len(calls) and all(
        name == item if isinstance(item, str) else item == {name: arguments}
        for item, (name, arguments) in zip(expected, calls, strict=True)
    ):
        return ""
    found = [{name: arguments} for name, arguments in calls]
    return f"the tools are {json.dumps(found)}, not {json.dumps(expected)}"


async def _problem_of_judge(client: AgentClient, judge: _Judge, case: _Case, turn: _Turn) -> str:
    question = json.dumps({"criteria": judge.criteria, "messages": case.messages, "answer": turn.text})
    verdict = (await client.run(judge.agent, question, response_format=_VERDICT)).value
    return "" if verdict["passes"] else f"{judge.agent}: {verdict['reason']}"


def _print_table(results: Sequence[_Result]) -> None:
    width = max(len(result.case.name) for result in results)
    for result in results:
        outcome = "fails" if result.problems else "ok"
        line = f"{outcome:5}  {result.case.name:{width}}  {result.seconds:6.1f} s  {result.tokens:7} tokens"
        print(printable(line))
        for problem in result.problems:
            print(printable(f"       {problem}"))
    failed_count = sum(bool(result.problems) for result in results)
    print(f"{len(results)} cases, {failed_count or 'none'} failed")


def _junit(name: str, results: Sequence[_Result]) -> str:
    failed_count = sum(bool(result.problems) for result in results)
    suite = ET.Element("testsuite", name=name, tests=str(len(results)), failures=str(failed_count))
    for result in results:
        element = ET.SubElement(
            suite, "testcase", name=result.case.name, classname=result.case.agent, time=f"{result.seconds:.3f}"
        )
        if result.problems:
            ET.SubElement(element, "failure", message=result.problems[0]).text = "\n".join(result.problems)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True)
