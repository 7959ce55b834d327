"""Where the project's files are."""

import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGES = ("durable_agent_host", "functions_host", "practice_model")
SHARED = ("ncrontab", "sqlite_store")
"""Packages that those may import."""
PLUG_INS = ("durable_agent_host_azure_ai_agents",)
"""Providers outside of durable_agent_host: they import it, and it does not know them."""


@cache
def tracked_files() -> tuple[str, ...]:
    """Paths that git tracks or would add; every file outside hidden folders where there is no repository."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, check=False)
    if result.returncode == 0:
        return tuple(name for name in result.stdout.decode().split("\0") if name and (ROOT / name).is_file())
    found = (Path(folder, name) for folder, _, names in os.walk(ROOT) for name in names)
    paths = (path.relative_to(ROOT) for path in found)
    return tuple(path.as_posix() for path in paths if not any(part.startswith(".") for part in path.parts[:-1]))
