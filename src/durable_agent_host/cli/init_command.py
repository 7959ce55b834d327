"""The command ``durable-agent-host init``: a new folder with an app, its tests, and what deploys it.

The files are those of ``templates/common`` and of one other template, copied; in their names, ``dot_`` is a dot, so
that this repository's own tools do not read them.
"""

import json
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import click

from durable_agent_host.cli.host_command import CommandError

_PACKAGE: Final = "durable-agent-host"
_TEMPLATES: Final = Path(__file__).parents[1] / "templates"
_MAY_EXIST: Final = {".git", ".venv"}


@click.command("init")
@click.argument("folder", metavar="[DIR]", type=click.Path(file_okay=False, path_type=Path), default=".")
@click.option(
    "--template", type=click.Choice(["minimal", "support-desk", "team"]), default="minimal", show_default=True
)
def init(folder: Path, template: str) -> None:
    """Make an app in a new folder, with its tests and what deploys it."""
    if folder.exists() and not _MAY_EXIST.issuperset(path.name for path in folder.iterdir()):
        raise CommandError(
            f"{str(folder)!r} is not empty, and nothing was written: name a new folder, as in "
            f"'{_PACKAGE} init my-agent'"
        )
    for source in (_TEMPLATES / "common", _TEMPLATES / template):
        for path in source.rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                target = folder / str(path.relative_to(source)).replace("dot_", ".")
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, target)
    requirement = _add_requirement(folder)
    for path in folder.glob("requirements*.txt"):
        path.write_text(path.read_text().replace(_PACKAGE, requirement))
    enter = "" if folder == Path() else f"cd {shlex.quote(str(folder))} && "
    python = "python3.13" if shutil.which("python3.13") == sys.executable else shlex.quote(sys.executable)
    click.echo(
        f"The app is in {folder.resolve()}. Next:\n\n"
        f"  {enter}{python} -m venv .venv && .venv/bin/pip install -q uv\n"
        "  .venv/bin/uv pip install --compile-bytecode -qr requirements-dev.txt\n"
        "  .venv/bin/pytest\n"
        f"  .venv/bin/{_PACKAGE} dev"
    )


def _add_requirement(folder: Path) -> str:
    """Return the requirement of this package, which is its wheel in the folder unless it comes from an index."""
    package = distribution(_PACKAGE)
    origin = package.read_text("direct_url.json")
    if origin is None:
        return f"{_PACKAGE}=={package.version}"
    options = ["--disable-pip-version-check", "-q", "--no-deps", "--no-build-isolation"]
    pip = [sys.executable, "-m", "pip", "wheel", *options, "-w", folder, json.loads(origin)["url"]]
    wheel = f"./durable_agent_host-{package.version}-py3-none-any.whl"
    if subprocess.run(pip, capture_output=True, check=False).returncode:  # noqa: S603 - pip, of this interpreter
        click.echo(f"The wheel was not found: copy it to {folder / wheel}, which requirements.txt names.", err=True)
    return wheel
