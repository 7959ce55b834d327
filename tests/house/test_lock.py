"""The lock: what is tested is what is written down, and what is deployed."""

import re
import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.supply.locks import read_lock
from tests.house.distributions import needed_by
from tests.house.source import ROOT

LOCKS = {"constraints.txt": "durable-agent-host[dev]", "requirements.txt": "durable-agent-host"}
"""File → what it locks."""

HASHED = ("requirements.txt", "scripts/supply/tools.txt", "scripts/supply/linters.txt")
"""What is installed with ``pip install --require-hashes``."""


def _versions(file: str) -> dict[str, str]:
    """The versions that a lock gives to packages on this platform."""
    return {pin.name: pin.version for pin in read_lock(ROOT / file) if pin.is_for_here}


@pytest.mark.parametrize("file", LOCKS)
def test_what_is_installed_is_what_is_locked(file):
    """A lock names every package that is needed, no other, and the version that is installed."""
    needed_versions = {
        name: package.version for name, package in needed_by(LOCKS[file]).items() if name != "durable-agent-host"
    }
    assert _versions(file) == needed_versions


@pytest.mark.parametrize("file", HASHED)
def test_the_locks_agree(file):
    """What is deployed, and what audits it, has the versions that are tested."""
    tested_versions = _versions("constraints.txt")
    assert {
        name: version for name, version in _versions(file).items() if tested_versions.get(name, version) != version
    } == {}


@pytest.mark.parametrize("file", sorted({*LOCKS, *HASHED}))
def test_a_lock_pins_each_package_once(file):
    """Exact versions and markers, on whatever platform: no ranges, no options, no index and no place of its own."""
    text = (ROOT / file).read_text()
    lines = [line for line in text.replace("\\\n", " ").splitlines() if not line.startswith("#")]
    assert not [
        line for line in lines if not re.match(r"[\w.-]+==[\w.!+]+( ; [^:@]+)?( +--hash=sha256:[0-9a-f]{64})*$", line)
    ]
    assert "://" not in text
    names = [pin.name for pin in read_lock(ROOT / file)]
    assert len(names) == len(set(names)) > 0


def _is_pinned_by(requirement: Requirement, file: str) -> bool:
    version = _versions(file).get(canonicalize_name(requirement.name))
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def test_the_locks_fit_the_project():
    """The pins are in the ranges of pyproject.toml: every extra where it is tested, none where deployed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = chain.from_iterable(extra for name, extra in project["optional-dependencies"].items() if name != "bench")
    tested_requirements = [
        requirement for requirement in map(Requirement, extras) if requirement.name != project["name"]
    ]
    deployed_requirements = [Requirement(requirement) for requirement in project["dependencies"]]
    assert not [
        str(requirement)
        for requirement in (*deployed_requirements, *tested_requirements)
        if not _is_pinned_by(requirement, "constraints.txt")
    ]
    assert not [
        str(requirement) for requirement in deployed_requirements if not _is_pinned_by(requirement, "requirements.txt")
    ]
