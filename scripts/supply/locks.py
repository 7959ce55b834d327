"""What the locks name."""

import re
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
LOCKS = tuple(ROOT / name for name in ("requirements.txt", "constraints.txt", "scripts/supply/tools.txt"))
"""What is deployed; what is tested, all extras included; what makes and audits these files."""


class Pin(NamedTuple):
    """One line of a lock."""

    name: str
    version: str
    hashes: tuple[str, ...]
    is_for_here: bool
    """Whether it is installed on this platform."""


def read_lock(file: Path) -> list[Pin]:
    """The pins of a lock, in its order."""
    lines = file.read_text().replace("\\\n", " ").splitlines()
    return [_pin(line) for line in lines if not line.startswith("#")]


def _pin(line: str) -> Pin:
    one = Requirement(re.sub(r"\s--hash=\S+", "", line))
    hashes = tuple(re.findall(r"--hash=sha256:(\w+)", line))
    version = str(one.specifier).removeprefix("==")
    return Pin(canonicalize_name(one.name), version, hashes, one.marker is None or one.marker.evaluate())
