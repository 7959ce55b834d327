"""What the repository promises beside its code: settings, requirements, and what is deployed."""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path, PurePosixPath

from tests.house.source import ROOT, SHARED, SRC, tracked_files

FUNCTIONS_SETTINGS = {
    "FUNCTIONS_WORKER_RUNTIME",
    "PYTHON_THREADPOOL_THREAD_COUNT",
    "AzureWebJobsStorage",
    "TASKHUB_NAME",
    "DURABLE_TASK_SCHEDULER_CONNECTION_STRING",
}
"""Settings of the Functions host and of host.json, which our code does not read."""

INTERNAL_SETTINGS = {
    # Another name of AZURE_OPENAI_DEPLOYMENT that the framework's own samples use.
    "AZURE_OPENAI_MODEL",
}

SETTING = re.compile(r'"((?:AZURE_OPENAI|OPENAI)_[A-Z_]+)"')


def _sample_settings() -> set[str]:
    return set(json.loads((ROOT / "local.settings.sample.json").read_text())["Values"])


def _read_settings() -> set[str]:
    from dataclasses import fields

    from durable_agent_host.settings import PREFIX, Settings

    setting_names = {PREFIX + field.name.upper() for field in fields(Settings)}
    providers = (SRC / "durable_agent_host/providers").rglob("*.py")
    return setting_names.union(*(SETTING.findall(path.read_text()) for path in providers))


def _project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def _deployed_files() -> list[str]:
    """What ``func azure functionapp publish`` would upload: ``.funcignore`` has the rules of ``.gitignore``."""
    return [name for name in tracked_files() if not _is_ignored(name)]


def _is_ignored(name: str) -> bool:
    is_ignored = False
    for rule in (ROOT / ".funcignore").read_text().splitlines():
        pattern = rule.removeprefix("!").removesuffix("/")
        paths = [PurePosixPath(name), *PurePosixPath(name).parents][rule.endswith("/") : -1]
        if any(path.full_match(pattern[1:]) if pattern.startswith("/") else path.name == pattern for path in paths):
            is_ignored = not rule.startswith("!")
    return is_ignored


def test_packages_that_were_built_before_publishing_are_deployed():
    """No rule takes a file out of them, whatever its folder is called."""
    folder = ".python_packages/lib/site-packages/other"
    for name in ("tests/__init__.py", "docs/a.py", "scripts/run.py", "README.md", ".libs/a.so"):
        assert not _is_ignored(f"{folder}/{name}")
    assert _is_ignored(f"{folder}/__pycache__/a.pyc")
    assert _is_ignored(".venv/bin/python")


def test_sample_settings_are_what_the_code_reads():
    """Every setting that the code reads is in the sample, and the sample has no other."""
    assert _sample_settings() - FUNCTIONS_SETTINGS == _read_settings() - INTERNAL_SETTINGS


def test_sample_settings_are_the_defaults():
    """Copying the sample changes nothing but what is filled in."""
    from durable_agent_host.settings import Settings

    values = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    assert Settings.from_environment(values) == Settings()


def test_host_settings_are_in_the_sample():
    """What host.json takes from the environment is in the sample."""
    host = (ROOT / "host.json").read_text()
    connection = json.loads(host)["extensions"]["durableTask"]["storageProvider"]["connectionStringName"]
    assert {*re.findall(r"%(\w+)%", host), connection} <= _sample_settings()


def _documents() -> dict[str, str]:
    """The prose for users and contributors, by its path."""
    return {name: (ROOT / name).read_text() for name in tracked_files() if name.endswith(".md")}


def test_settings_are_documented():
    """Every setting of ours is explained."""
    settings = (ROOT / "docs/reference/settings.md").read_text()
    assert not [name for name in _sample_settings() - FUNCTIONS_SETTINGS if f"`{name}`" not in settings]


def test_routes_are_documented():
    """Every route is explained, and none that is not there."""
    from durable_agent_host.http.routes import ROUTES

    http = (ROOT / "docs/reference/http.md").read_text()
    documented_routes = set(re.findall(r"`(GET|HEAD|POST|PUT|DELETE|PATCH) (/api/[^`]*)`", http))
    pages = {("GET", "/api/inspector"), ("GET", "/api/openapi.json")}
    assert documented_routes == {(route.method, f"/api/{route.template}") for route in ROUTES} | pages


def test_version_is_one():
    """The project's version, the changelog's newest and that of the wheel in documents are the same."""
    newest = re.search(r"^## \[?(\d+\.\d+\.\d+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert newest
    versions = {
        version for text in _documents().values() for version in re.findall(r"durable_agent_host-(\d[\d.]*)-py3", text)
    }
    assert {newest[1], *versions} == {_project()["version"]}


def test_what_a_deployed_app_needs_is_deployed():
    """The app, its host settings, its requirements and the whole package are uploaded, and nothing for this machine."""
    names = _deployed_files()
    folders = ("src/functions_host", "src/practice_model", "tests", "benchmarks", "demo", "examples", "scripts", "docs")
    assert not [name for name in names if name.startswith(tuple(f"{folder}/" for folder in folders))]
    packages = ("durable_agent_host", *SHARED)
    package = {path.relative_to(ROOT).as_posix() for name in packages for path in (SRC / name).rglob("*.py")}
    assert {"function_app.py", "host.json", "requirements.txt", *package} <= set(names)


NAME_FUNCTIONS = """
import json, sys
root, app = sys.argv[1:]
sys.path[:] = [app, *(path for path in sys.path if not path.startswith(root) or "site-packages" in path)]
import function_app, durable_agent_host
names = [function.get_function_name() for function in function_app.app.get_functions()]
loaded = list(sys.modules)
foreign = [name for name in loaded if name.partition(".")[0] in ("functions_host", "practice_model", "tests")]
print(json.dumps([names, foreign, durable_agent_host.__file__]))
"""


def test_a_deployed_app_can_be_imported(tmp_path):
    """What is uploaded is an app: it loads with nothing of ours but what is in it, and names its functions."""
    for name in _deployed_files():
        target = tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, target)
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    environment |= {"OPENAI_API_KEY": "none", "OPENAI_MODEL": "none"}
    done = subprocess.run(
        [sys.executable, "-c", NAME_FUNCTIONS, str(ROOT), str(tmp_path)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    names, foreign, package = json.loads(done.stdout.splitlines()[-1])
    assert {"agent_turn", "run_agent_turn", "http-run", "dafx-BugRepro", "dafx-Analyst"} <= set(names)
    assert not foreign
    assert Path(package).is_relative_to(tmp_path)


MACHINE_PATH = re.compile(rb"(?<![\w.])/(?:home(?!/site/wwwroot)|Users|root|work|workspace)/[\w.]|[A-Z]:\\\\?Users\\")


def test_no_file_contains_a_path_of_one_machine():
    """The project stands on any machine: no tracked file names a folder of someone's home."""
    paths: list[str] = []
    for name in tracked_files():
        content = (ROOT / name).read_bytes()
        if b"\0" not in content and name != "tests/house/test_repository.py":
            found = MACHINE_PATH.search(content)
            if found:
                paths.append(f"{name}: {content[max(0, found.start() - 20) : found.end() + 20]!r}")
    assert not paths
