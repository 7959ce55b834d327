"""``durable-agent-host eval``: cases of conversations, and what their last turns should do."""

import json
import subprocess
from pathlib import Path
from uuid import uuid4
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.durable_agent_host.cli.terminal import COMMAND
from tests.durable_agent_host.test_scenarios_approvals import plan_payments
from tests.kit import ROOT, AgentHost, PracticeModel, clean_environment, model_environment

PAYER = {"agent": "Payer", "messages": ["Pay five."]}


def run_eval(folder: Path, cases: object, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Play cases; the results are in ``junit.xml`` too."""
    file = folder / "cases.yaml"
    file.write_text(cases if isinstance(cases, str) else yaml.safe_dump(cases))
    command = [*COMMAND, "eval", str(file), "--junit", str(folder / "junit.xml"), *options]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=clean_environment() | env, timeout=120
    )


def test_cases_say_what_is_not_as_it_should_be(people: AgentHost, model: PracticeModel, book, tmp_path):
    """Tools with arguments, exact answers, patterns, schemas and a judge; what fails is in the table and in JUnit."""
    schema = {"type": "object", "properties": {"paid": {"type": "integer"}}, "required": ["paid"]}
    model.plan(
        *(plan_payments(5), {"text": "Paid 5."}),
        *(plan_payments(5), {"text": "Not paid."}),
        {"text": '{"paid": "five"}'},
        *({"text": "I paid."}, {"text": json.dumps({"passes": False, "reason": "no amount"})}),
        plan_payments(5),
    )
    cases = [
        {**PAYER, "name": "approved", "approve": True, "tools": [{"pay": {"amount": 5}}], "answer": "Paid 5."},
        {**PAYER, "name": "denied", "approve": False, "tools": ["refund"], "answer": {"matches": r"^Paid \d"}},
        {**PAYER, "name": "data", "answer": {"json_schema": schema}},
        {**PAYER, "name": "judged", "answer": {"judge": {"agent": "Payer", "criteria": "names an amount"}}},
        {**PAYER, "name": "waits"},
    ]
    ran = run_eval(tmp_path, cases, "--url", people.url)
    assert ran.returncode == 1, ran.stderr
    assert book.read_text() == "paid 5.0\n"
    words = [line.split() for line in ran.stdout.splitlines()]
    outcomes = {line[1]: line[0] for line in words if line[0] in {"ok", "fails"}}
    assert outcomes == {"approved": "ok", "denied": "fails", "data": "fails", "judged": "fails", "waits": "fails"}
    suite = ET.fromstring((tmp_path / "junit.xml").read_text())
    assert suite.attrib["failures"] == "4"
    failures = {case.attrib["name"]: case.findtext("failure") or "" for case in suite}
    assert failures["approved"] == ""
    assert '[{"pay": {"amount": 5.0}}], not ["refund"]' in failures["denied"]
    assert "'Not paid.'" in failures["denied"]
    assert "'five' is not of type 'integer'" in failures["data"]
    assert failures["judged"] == "Payer: no amount"
    assert "give the case `approve`" in failures["waits"]


def test_a_recorded_turn_becomes_a_case(people: AgentHost, model: PracticeModel, book, tmp_path):
    """`sessions case` prints messages, tools and answer; played again, the case passes."""
    del book
    session = f"case-{uuid4().hex[:8]}"
    for _ in range(2):
        model.plan({"text": "Hello."}, {"text": "You are welcome."})
    for message in ("Hi", "Thanks"):
        assert people.run("Payer", {"message": message, "session_id": session}).ok
    command = [*COMMAND, "sessions", "case", "Payer", session, "--url", people.url]
    case = subprocess.run(command, capture_output=True, text=True, check=True, env=clean_environment()).stdout
    assert yaml.safe_load(case)[0]["messages"] == ["Hi", "Thanks"]
    ran = run_eval(tmp_path, case, "--url", people.url)
    assert (ran.returncode, ran.stdout.splitlines()[-1]) == (0, "1 cases, none failed"), ran.stdout


def test_the_app_is_started_for_the_cases(model: PracticeModel, tmp_path):
    """Without a URL the app runs on a free port, and leaves no data behind."""
    app = ROOT / "examples" / "chat-completions"
    model.plan({"text": "Hello."})
    case = {"name": "hello", "agent": "BugRepro", "messages": ["Hi"], "answer": "Hello."}
    ran = run_eval(tmp_path, [case], "--app", str(app), **model_environment(model))
    assert (ran.returncode, ran.stdout[:2]) == (0, "ok"), ran.stdout + ran.stderr
    assert not (app / ".functions-host").exists()


@pytest.mark.parametrize(
    ("cases", "reason"),
    [
        ("- name: [", "is no YAML"),
        ("name: x", "has no list of cases"),
        ("- name: x\n  agent: A\n  message: hi", "case 1, messages: Field required"),
        ("- name: x\n  agent: A\n  messages: [hi]\n  tool: []", "case 1, tool: Extra inputs are not permitted"),
    ],
)
def test_a_file_without_cases_is_refused(tmp_path, cases, reason):
    """The message has the case and the field."""
    ran = run_eval(tmp_path, cases)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert reason in ran.stderr
