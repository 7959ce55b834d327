"""The wheel: an app in an empty folder needs nothing else of this repository."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.parser import Parser
from pathlib import Path

import pytest
import requests
from packaging.requirements import Requirement

from tests.house.distributions import needed_by
from tests.house.source import PACKAGES, PLUG_INS, ROOT, SHARED
from tests.processes import Server

APP = '''"""Ten lines."""

from agent_framework import Agent

from durable_agent_host import DurableAgentApp
from durable_agent_host.providers.openai import chat_client_from_environment

client = chat_client_from_environment()
helper = Agent(client, "You are helpful.", name="Helper")
app = DurableAgentApp(agents=[helper])
'''


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, as ``./scripts/build`` makes it."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    [built] = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and the packages that it needs with its extra ``host``, and no other.

    pip installs the wheel; the other packages are linked from this environment, which has the locked versions.
    """
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    for name, package in needed_by("durable-agent-host[host]").items():
        for file in (package.files or ()) if name != "durable-agent-host" else ():
            if ".." not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                if not (site / file).exists():
                    (site / file).symlink_to(Path(str(package.locate_file(file))))
    pip = [sys.executable, "-m", "pip", "--python", str(folder), "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "-q", "--no-index", "--no-deps", str(wheel)], check=True)
    subprocess.run([*pip, "check"], check=True)
    return folder / "bin"


@contextmanager
def running_server(*command: str | Path, cwd: Path, **env: str) -> Iterator[str]:
    """Run a program that prints a line with its URL when it is ready; give the URL."""
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | env
    server = Server(*map(str, command), cwd=cwd, env=clean)
    try:
        yield server.url
    finally:
        server.stop()


def test_the_wheel_has_the_packages_and_nothing_else(wheel):
    """Neither tests nor demo are installed; types and licence are."""
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names if ".dist-info/" not in name} == {*PACKAGES, *SHARED, *PLUG_INS}
    assert {f"{package}/py.typed" for package in (*PACKAGES, *SHARED, *PLUG_INS)} <= names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_its_metadata_suits_an_index(wheel):
    """The description has no link that leads nowhere there; each requirement needs the Python that the wheel needs.

    Otherwise pip before 24.1 looks for requirements on an older Python, and names one of them that it does not find.
    """
    archive = zipfile.ZipFile(wheel)
    [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
    metadata = Parser().parsestr(archive.read(name).decode())
    assert not re.findall(r"\]\((?!https?:|#)[^)]*", metadata.get_payload())
    assert metadata["Requires-Python"] == ">=3.13"
    requirements = map(Requirement, metadata.get_all("Requires-Dist"))
    without_marker = {
        requirement.name
        for requirement in requirements
        for extra in ("", "host", "redis")
        if requirement.marker is None or requirement.marker.evaluate({"extra": extra, "python_version": "3.12"})
    }
    assert not without_marker


def test_an_app_of_ten_lines_serves_a_turn(environment, tmp_path):
    """In an empty folder, with the wheel installed, an app starts and answers; it is not this checkout that runs."""
    app, model = tmp_path / "app", tmp_path / "model"
    app.mkdir()
    model.mkdir()
    (app / "function_app.py").write_text(APP)
    result = subprocess.run(
        [
            environment / "python",
            "-c",
            "import durable_agent_host as d, functions_host as f; print(d.__file__, f.__file__)",
        ],
        cwd=app,
        check=True,
        capture_output=True,
        text=True,
    )
    assert all(Path(name).is_relative_to(environment.parent) for name in result.stdout.split())
    with (
        running_server(environment / "python", "-m", "practice_model", "--port", "0", cwd=model) as model_url,
        running_server(
            environment / "durable-agent-host",
            *("start", "--port", "0"),
            cwd=app,
            OPENAI_API_KEY="practice",
            OPENAI_MODEL="practice",
            OPENAI_BASE_URL=model_url,
        ) as url,
    ):
        answer = requests.post(f"{url}/api/agents/Helper/run", json={"message": "Hello"}, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["response"]


def test_a_deployed_app_needs_neither_host_nor_model(environment, tmp_path):
    """On Azure, where the extra is not installed, the app's functions are found without the other packages."""
    (tmp_path / "function_app.py").write_text(APP)
    call = (
        "import sys; sys.modules.update(dict.fromkeys(('functions_host', 'practice_model', 'httptools')));"
        "import function_app; print([one.get_function_name() for one in function_app.app.get_functions()])"
    )
    env = {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "none"}
    done = subprocess.run(
        [environment / "python", "-c", call], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'dafx-Helper'" in done.stdout


def test_without_its_extra_the_command_prints_what_to_install(environment, tmp_path):
    """``durable-agent-host start`` names the extra, also where other packages have brought a part of it."""
    call = "import sys; sys.modules['httptools'] = None; from durable_agent_host.cli.main import main; main(['start'])"
    done = subprocess.run(
        [environment / "python", "-c", call], cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.strip() == "The embedded host is not installed: pip install 'durable-agent-host[host]'"
