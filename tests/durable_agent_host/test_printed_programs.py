"""What the documents print runs: each Python program, and each command against a host of the program above it.

A Python block whose first line is a comment with a file's name is that file; one without continues the block above it.
Commands are sent to a host of the page's last `function_app.py`; pages without one share that of the README.
A `text` block after commands is what they print, with `…` for what differs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.house.source import ROOT, tracked_files
from tests.kit import AgentHost, PracticeModel, clean_environment, model_environment, running_host, start_host
from tests.kit_services import free_port

NOT_HERE = ("az", "azd", "docker", "func", "git", "npm", "pip", "pre-commit", "python3.13")
"""Programs that a test does not run: they need Azure, a container, another registry, or change this machine."""
NOT_INSTALLED = ("presidio_analyzer", "azure.monitor.opentelemetry")
"""Modules that a program of the documents imports and the suite does not have."""

APP = "function_app.py"
UNNAMED = "a block that begins neither with the name of its file nor after one that does"
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# ([\w./-]+\.py)\b")
PRELUDE = f"""
set -eo pipefail
trap 'kill -9 $(jobs -p) 2>/dev/null || :' EXIT
mkdir -p .venv/bin && : > .venv/bin/activate
export PATH="{Path(sys.executable).parent}:$PATH"
{"".join(f"{name}() {{ :; }}; " for name in NOT_HERE)}
curl() {{ command curl -sS --fail-with-body --max-time 60 --retry 20 --retry-connrefused --retry-delay 1 "$@"; }}
durable-agent-host() {{
  case $1 in
    start|dev) [ -z "$REAL_START" ] || exec python -m functions_host start --port "$PORT" ;;
    init) python -m durable_agent_host "$@" ;;
    *) python -m durable_agent_host "$@" --url "$URL" ;;
  esac
}}
kill() {{ builtin kill "$@"; sleep 0.5; }}  # until its port is closed
python() {{ case "$*" in *practice_model*) ;; *) command python "$@" ;; esac; }}
"""


@dataclass
class Example:
    """A program of a page, with the commands that follow it.

    Args:
        page: the document.
        files: by name.
        commands: blocks of commands, each with what it prints, or nothing.
    """

    page: str
    files: dict[str, str] = field(default_factory=dict[str, str])
    commands: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])


def _examples(page: str, text: str) -> Iterator[Example]:
    example = Example(page)
    name = UNNAMED
    previous = ""
    for indent, language, block in FENCE.findall(text):
        code = re.sub(f"^{indent}", "", block, flags=re.MULTILINE)
        if language == "python":
            named = FILE_NAME.match(code)
            if named:
                name = named[1]
                if name in example.files:
                    yield example
                    example = Example(page)
            example.files[name] = example.files.get(name, "") + "\n\n" + code
        elif language == "sh":
            example.commands.append((code, ""))
        elif language == "text" and previous == "sh":
            example.commands[-1] = (example.commands[-1][0], code)
        previous = language
    yield example


EXAMPLES = [
    example
    for page in tracked_files()
    if page.endswith(".md") and page.startswith(("docs/", "README", "CONTRIBUTING", "examples/"))
    for example in _examples(page, (ROOT / page).read_text())
]
HELPER = next(example.files[APP] for example in EXAMPLES if example.page == "README.md" and APP in example.files)


def _write(example: Example, folder: Path, replacements: dict[str, str] | None = None) -> None:
    for name, code in {APP: HELPER, **example.files}.items():
        text = code
        for old, new in (replacements or {}).items():
            text = text.replace(old, new)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "host.json").write_text((ROOT / "host.json").read_text())


LOAD = """
import runpy, sys, traceback
failed = 0
for path in sys.argv[1:]:
    try:
        app = runpy.run_path(path, run_name="function_app").get("app")
        app is None or app.get_functions()
    except BaseException:
        failed = 1
        print(path, traceback.format_exc(limit=-2))
sys.exit(failed)
"""


@pytest.fixture(scope="module")
def environment(practice_model: PracticeModel) -> dict[str, str]:
    """The variables that the documents name, for the practice model."""
    secret = "whsec_" + "A" * 43 + "="
    others = {"ANTHROPIC_API_KEY": "x", "DURABLE_AGENT_HOST_NOTIFY_SECRET": secret, "SLACK_SIGNING_SECRET": "x"}
    return clean_environment() | model_environment(practice_model, **others)


def test_every_program_is_whole(tmp_path: Path, environment: dict[str, str]):
    """Each names what it uses, and loads; an app names its functions; every other file is run by a command."""
    apps: list[Path] = []
    for number, example in enumerate(EXAMPLES):
        if not example.files:
            continue
        assert UNNAMED not in example.files, f"{example.page}: {example.files[UNNAMED]}"
        folder = tmp_path / f"{number:03}-{Path(example.page).stem}"
        _write(example, folder)
        if not any(module in code for code in example.files.values() for module in NOT_INSTALLED):
            apps.append(folder / APP)
        commands = "".join(code for code, _ in example.commands)
        assert not [name for name in example.files if name not in (APP, "conftest.py") and name not in commands], (
            example.page
        )
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "F", "--output-format", "concise", "."]
    names = subprocess.run(ruff, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert not names.returncode, names.stdout
    load = [sys.executable, "-c", LOAD, *map(str, apps)]
    loaded = subprocess.run(load, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert not loaded.returncode, loaded.stdout + loaded.stderr


def _address(server: AgentHost | PracticeModel) -> str:
    return server.url.removeprefix("http://").removesuffix("/v1")


def _squeezed(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.fixture(scope="module")
def helper_host(
    practice_model: PracticeModel, environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    """A host of the README's program, for all pages without one."""
    folder = tmp_path_factory.mktemp("helper")
    _write(Example("README.md"), folder)
    with running_host(folder / "data", practice_model, app=folder, **environment) as running:
        yield running


@pytest.mark.parametrize(
    "example", [pytest.param(example, id=example.page) for example in EXAMPLES if example.commands]
)
def test_commands_run(
    example: Example,
    tmp_path: Path,
    practice_model: PracticeModel,
    environment: dict[str, str],
    request: pytest.FixtureRequest,
) -> None:
    """Each block of commands succeeds, in order, and prints what the page says."""
    practice_model.reset()
    script = PRELUDE + "echo '===='\n".join(code for code, _ in example.commands)
    script = script.replace("127.0.0.1:8081", _address(practice_model))
    texts = "".join((*example.files.values(), *(code for code, _ in example.commands)))
    port, variables, own_host = "", {"REAL_START": ""}, None
    if "kill -9" in texts:
        port, variables = str(free_port()), {"REAL_START": "yes"}
    elif re.search(r":7071|durable-agent-host (chat|sessions)", texts):
        _write(example, tmp_path)
        if APP in example.files:
            own_host = start_host(tmp_path / "data", practice_model, app=tmp_path, **environment)
        port = (own_host or request.getfixturevalue("helper_host")).url.rpartition(":")[2]
    _write(example, tmp_path, {":7071": f":{port}", "127.0.0.1:8081": _address(practice_model)})
    variables |= {"URL": f"http://127.0.0.1:{port}", "PORT": port}
    try:
        ran = subprocess.run(
            ["bash", "-c", script.replace("localhost:7071", "127.0.0.1:7071").replace(":7071", f":{port}")],
            cwd=tmp_path,
            env=environment | variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )
    finally:
        if own_host:
            own_host.kill()
    assert not ran.returncode, f"{ran.stdout}\n{own_host.text if own_host else ''}"
    for (code, expected), output in zip(example.commands, ran.stdout.split("====\n"), strict=True):
        pattern = re.escape(_squeezed(expected)).replace("…", ".*?")
        assert re.search(pattern, _squeezed(output)), f"{code}\nprints\n{output}\nand not\n{expected}"
