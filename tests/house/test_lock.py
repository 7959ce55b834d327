"""The lock: what is tested is what is written down, and what is deployed."""

import re
import tomllib
from importlib.metadata import distributions
from itertools import chain

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts.supply.locks import read_lock
from tests.house.distributions import needed_by
from tests.house.source import ROOT, modules

LOCKS = {"constraints.txt": "durable-agent-host[dev]", "requirements.txt": "durable-agent-host"}
"""File → what it locks."""

HASHED = ("requirements.txt", "scripts/supply/tools.txt")
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


@pytest.mark.parametrize("file", HASHED)
def test_every_file_that_may_be_installed_has_its_hash(file):
    """Each package of a lock with hashes has at least one, and no file stands for two packages."""
    hashes = {pin.name: pin.hashes for pin in read_lock(ROOT / file)}
    assert not [name for name, file_hashes in hashes.items() if not file_hashes]
    every = [*chain.from_iterable(hashes.values())]
    assert len(every) == len(set(every))


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


def test_the_tools_fit_their_requirements():
    """The tools that lock and audit are locked themselves, in the ranges of tools.in."""
    lines = (ROOT / "scripts/supply/tools.in").read_text().splitlines()
    requirements = [Requirement(line) for line in lines if not line.startswith("#")]
    assert requirements
    assert not [
        str(requirement) for requirement in requirements if not _is_pinned_by(requirement, "scripts/supply/tools.txt")
    ]


def _modules_by_distribution() -> dict[str, str]:
    """Map each installed module to the distribution that installed it; namespaces, such as azure, belong to none."""
    owners: dict[str, str] = {}
    for distribution in distributions():
        name = canonicalize_name(distribution.name)
        for line in (distribution.read_text("RECORD") or "").splitlines():
            file, _, _ = line.partition(",")
            if file.endswith(".py"):
                owners[file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")] = name
    return owners


def test_every_imported_distribution_is_declared():
    """What the source imports is named in pyproject.toml, so that no other package decides which version it gets."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [*project["dependencies"], *chain.from_iterable(project["optional-dependencies"].values())]
    declared_names = {canonicalize_name(Requirement(line).name) for line in lines}
    owners = _modules_by_distribution()
    importers = {found.module: module.name for module in modules() for found in module.imports}
    foreign = {name: owners[name] for name in importers if name in owners}
    assert {"agent-framework-durabletask", "azure-core"} <= set(foreign.values())
    assert not [
        f"{importers[name]}: {name} of {owner}" for name, owner in foreign.items() if owner not in declared_names
    ]
