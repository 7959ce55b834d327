"""The lock: what is tested is what is written down, and what is deployed."""

import re
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house.installed import needed_by
from tests.house.source import ROOT

LOCKS = {"constraints.txt": "durable-agent-host[dev]", "requirements.txt": "durable-agent-host"}
"""File → what it locks."""


def _pins(file: str) -> dict[str, Requirement]:
    lines = (ROOT / file).read_text().splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    return {canonicalize_name(pin.name): pin for pin in pins}


def _version(pin: Requirement) -> str:
    assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), f"{pin} is not pinned"
    return str(pin.specifier).removeprefix("==")


@pytest.mark.parametrize("file", LOCKS)
def test_what_is_installed_is_what_is_locked(file):
    """A lock names every package that is needed, no other, and the version that is installed."""
    needed = {name: package.version for name, package in needed_by(LOCKS[file]).items() if name != "durable-agent-host"}
    assert {name: _version(pin) for name, pin in _pins(file).items()} == needed


def test_the_locks_agree():
    """What is deployed is what is tested."""
    tested = _pins("constraints.txt")
    assert not [pin for name, pin in _pins("requirements.txt").items() if _version(pin) != _version(tested[name])]


def test_the_locks_fit_the_project():
    """The pins are in the ranges of pyproject.toml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = _pins("constraints.txt")
    extras = chain.from_iterable(wanted for name, wanted in project["optional-dependencies"].items() if name != "bench")
    for one in map(Requirement, [*project["dependencies"], *extras]):
        if one.name != project["name"]:
            version = _version(pins[canonicalize_name(one.name)])
            assert one.specifier.contains(version, prereleases=True), f"{version} is outside of {one}"
