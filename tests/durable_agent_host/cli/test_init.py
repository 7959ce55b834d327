"""``durable-agent-host init``: apps that answer, whose tests pass, and that upload nothing that is private."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pathspec import GitIgnoreSpec

from tests.forks import AGENTS
from tests.kit import running_host
from tests.processes import Process

TEMPLATES = {"minimal": "Helper", "support-desk": "Desk", "team": "Lead"}
"""Template → its agent."""

COMMAND = [sys.executable, "-m", "durable_agent_host", "init"]
CLEAN = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
"""The environment without settings of a model."""


def init(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, str(folder), *options], capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture(scope="module", params=TEMPLATES)
def app(request, tmp_path_factory) -> tuple[Path, str]:
    """The folder of a new app, and its agent's name."""
    folder = tmp_path_factory.mktemp("apps") / request.param
    process = init(folder, "--template", request.param)
    assert process.returncode == 0, process.stderr
    return folder, TEMPLATES[request.param]


def test_its_tests_pass(app):
    """The tests that come with an app pass without a key."""
    folder, _ = app
    command = ["-m", "pytest", "-q", "-p", "no:cacheprovider"]
    with Process(*command, cwd=folder, env=CLEAN, preload=AGENTS) as process:
        status = process.process.wait(300)
        assert status == 0, process.text
        assert " passed" in process.text


def test_it_answers_and_uploads_no_conversation(app, model):
    """The app answers; of what is then in its folder, what runs it is uploaded, and nothing of the conversation."""
    folder, agent = app
    data = folder / "data"
    with running_host(data, model, app=folder) as host:
        answer = host.run(agent, {"message": "A secret."})
        assert answer.json()["response"], answer.text
    packages = {f".python_packages/lib/site-packages/other/{name}" for name in ("tests/keys.json", "a.db", "README.md")}
    for name in (*packages, ".venv/bin/python", ".azure/dev/.env", ".functions-host/host.db"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    app_files = {"function_app.py", "host.json", "requirements.txt", *(path.name for path in folder.glob("*.whl"))}
    harmless = {f"data/{path.relative_to(data)}" for path in (data / ".gitignore", *(data / "timers").iterdir())}
    assert _left_by(folder / ".funcignore", folder) == app_files | packages | harmless
    assert _left_by(folder / ".dockerignore", folder) <= app_files | harmless
    private = {f"data/{path.name}" for path in data.iterdir() if path.is_file() and path.name != ".gitignore"}
    assert {"data/host.db", "data/turn-log.sqlite", "data/segments.sqlite"} <= private
    assert not private & _left_by(folder / ".gitignore", folder)
    assert not [name for name in harmless if b"A secret." in (folder / name).read_bytes()]


def _left_by(rules: Path, folder: Path) -> set[str]:
    """The files of a folder that the rules do not leave out. Docker has the same syntax for the rules that are used."""
    spec = GitIgnoreSpec.from_lines(rules.read_text().splitlines())
    names = (str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    return {name for name in names if not spec.match_file(name)}


def test_requirements_name_a_wheel_that_is_there(app):
    """The package comes along while it is on no index."""
    folder, _ = app
    assert (folder / (folder / "requirements.txt").read_text().strip()).is_file()
    assert "durable_agent_host-" in (folder / "requirements-dev.txt").read_text()


def test_its_files_can_be_read(app):
    """Every JSON and YAML file is one, and the files that point to each other agree."""
    folder, _ = app
    for path in (*folder.glob("*.json"), *folder.glob(".vscode/*.json"), *folder.glob("infra/*.json")):
        assert json.loads(path.read_text())
    azure, compose = (yaml.safe_load((folder / name).read_text()) for name in ("azure.yaml", "compose.yaml"))
    [service] = azure["services"]
    assert f"'azd-service-name': '{service}'" in (folder / "infra/resources.bicep").read_text()
    ports = str([service["ports"] for service in compose["services"].values()])
    values = json.loads((folder / "local.settings.json").read_text())["Values"]
    assert values["AzureWebJobsStorage"] == "UseDevelopmentStorage=true"
    assert ":10000" in ports
    assert values["DURABLE_TASK_SCHEDULER_CONNECTION_STRING"].startswith("Endpoint=http://localhost:8080;")
    assert ":8080" in ports
    host = json.loads((folder / "host.json").read_text())["extensions"]["durableTask"]
    settings = {host["hubName"].strip("%"), host["storageProvider"]["connectionStringName"]}
    assert settings <= set(values)
    assert all(f"'{name}'" in (folder / "infra/resources.bicep").read_text() for name in settings)


def test_a_folder_with_files_is_refused(tmp_path):
    """Nothing is written; a new environment or repository is no obstacle."""
    (tmp_path / ".venv").mkdir()
    (tmp_path / "host.json").write_text("mine")
    process = init(tmp_path)
    assert process.returncode == 2
    assert "is not empty, and nothing was written: name a new folder" in process.stderr
    assert {path.name for path in tmp_path.iterdir()} == {".venv", "host.json"}
    (tmp_path / "host.json").unlink()
    assert init(tmp_path).returncode == 0
