"""The packages stay small, their names plain, and features in their folders."""

import ast
import re

import pytest

from tests.house.figures import Figures, count
from tests.house.source import SRC

LIMITS = {
    "durable_agent_host": Figures(modules=324, tokens=357_000, pairs=1, banned_names=1, participles=5),
    "functions_host": Figures(modules=70, tokens=49_500, pairs=1, banned_names=0.5, participles=2),
    "durable_agent_host_azure_ai_agents": Figures(modules=9, tokens=12_600, pairs=1, banned_names=1, participles=5),
    "practice_model": Figures(modules=33, tokens=22_000, pairs=1, banned_names=0.7, participles=1),
}
"""Package → what it may have; a figure that falls is lowered here."""

HOST = SRC / "durable_agent_host"
FEATURES = sorted(path.parent.name for path in (HOST / "features").glob("*/__init__.py"))
MAX_NAMING_FILES = 3
IMPORTERS = {"features/registry.py", "app.py", "__init__.py"}
"""The list of all features; the composition root, for a type of its arguments; public names."""


@pytest.mark.parametrize("package", LIMITS)
def test_a_package_does_not_grow(package: str):
    """Whoever adds code makes room for it first, or says in this table why the package needs more."""
    figures, limits = count(SRC / package), LIMITS[package]
    assert figures.modules <= limits.modules
    assert figures.tokens <= limits.tokens
    assert figures.pairs <= limits.pairs
    assert figures.banned_names <= limits.banned_names
    assert figures.participles <= limits.participles


@pytest.mark.parametrize("feature", FEATURES)
def test_few_files_name_a_feature(feature: str):
    """Outside of its folder, few name its modules or classes; the list of features and the public names import them."""
    folder = HOST / "features" / feature
    nodes = [node for path in folder.glob("*.py") for node in ast.parse(path.read_text()).body]
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]
    assert classes
    name = re.compile(rf"\bfeatures[./]{feature}\b|\b({'|'.join(classes)})\b")
    import_line = re.compile(rf"^\s*(from|import) durable_agent_host\.features\.{feature}\b", re.MULTILINE)
    paths = [path for path in HOST.rglob("*.py") if folder not in path.parents]
    names = {path.relative_to(HOST).as_posix(): path.read_text() for path in paths if name.search(path.read_text())}
    assert len(names) <= MAX_NAMING_FILES, names.keys()
    assert {path for path, text in names.items() if import_line.search(text)} <= IMPORTERS
