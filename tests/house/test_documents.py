"""What documents, docstrings and comments cite is in the repository."""

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from inspect import signature
from textwrap import dedent

import durable_agent_host
from tests.house.source import ROOT, tracked_files

BELOW = (
    *("", "src/", "src/durable_agent_host/", "tests/", "tests/durable_agent_host/", "benchmarks/"),
    *("src/durable_agent_host/templates/common/", "src/durable_agent_host/templates/minimal/"),
)
"""Folders below which a document may name a file."""

NAMED_FILE = re.compile(r"(?<![\w./:@*<>-])((?:[\w-]+/)*[\w-]+\.(?:py|md))\b")
REPOSITORY_PATH = re.compile(r"`(?:\./)?((?:src|tests|scripts|benchmarks|docs|demo|examples)/[\w./-]*)[`\s]")
PATH_IN_CODE = re.compile(r"`([\w./-]*(?:/[\w./-]*|\.(?:py|json|html|md)))`")
LINK = re.compile(r"\]\((?!https?:)([^)#]*)(?:#([^)]+))?\)")


@cache
def _texts(*endings: str) -> dict[str, str]:
    names = (name for name in tracked_files() if name.endswith(endings) and name != "tests/house/test_documents.py")
    return {name: (ROOT / name).read_text() for name in names}


def _is_there(name: str, document: str) -> bool:
    folders = [ROOT / folder for folder in BELOW] + [(ROOT / document).parent]
    return any((folder / name).exists() for folder in folders)


def _anchors(text: str) -> Iterator[str]:
    """The names that a forge gives to the headings of a document."""
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        yield re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-")


def test_files_that_documents_name_are_there():
    """Every Python file, document and folder that a document names exists."""
    documents = _texts(".md")
    paths = [
        (document, name)
        for document, text in documents.items()
        for name in (*NAMED_FILE.findall(text), *REPOSITORY_PATH.findall(text))
        if f"```python\n# {name}\n" not in text
    ]
    assert len(paths) > len(documents)
    assert not [f"{document}: {name}" for document, name in paths if not _is_there(name, document)]


def test_links_lead_somewhere():
    """Every link inside the repository leads to a file, and to a heading of it where it names one."""
    broken_links: list[str] = []
    for document, text in _texts(".md").items():
        for path, heading in LINK.findall(text):
            target = (ROOT / document).parent / path if path else ROOT / document
            if not target.exists() or (heading and heading not in _anchors(target.read_text())):
                broken_links.append(f"{document}: {path}#{heading}")
    assert not broken_links


def test_code_in_documents_can_be_read():
    """Python in a document is valid, and what it imports of ours is there."""
    import_count = 0
    for document, text in _texts(".md").items():
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            for node in ast.walk(ast.parse(dedent(block), filename=document)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("durable_agent_host"):
                    module = import_module(node.module or "")
                    import_count += 1
                    assert not [alias.name for alias in node.names if not hasattr(module, alias.name)], document
    assert import_count


def test_generated_pages_are_current():
    """`./scripts/reference` has been run, and the site's navigation has every page."""
    reference = runpy.run_path(str(ROOT / "scripts/supply/reference.py"))
    for page in ("CLI", "HTTP", "PYTHON", "SETTINGS"):
        assert reference[f"{page.lower()}_page"]() == reference[page].read_text(), "run ./scripts/reference"
    assert reference["llms_text"]() == reference["LLMS"].read_text(), "run ./scripts/reference"
    pages = {
        name.removeprefix("docs/") for name in tracked_files() if name.startswith("docs/") and name.endswith(".md")
    }
    assert {*re.findall(r"- (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)} == pages


def test_events_are_documented():
    """The table of events has every event, and no other."""
    from durable_agent_host.turn.turn_events import EVENTS

    http = (ROOT / "docs/reference/http.md").read_text()
    assert set(re.findall(r"^\| `([a-z]+\.[a-z]+|inner)` \|", http, re.MULTILINE)) == set(EVENTS)


def test_public_names_are_documented():
    """The Python reference has every public name."""
    reference = (ROOT / "docs/reference/python.md").read_text()
    assert not [name for name in durable_agent_host.__all__ if not re.search(rf"`[^`]*\b{name}\b[^`]*`", reference)]


def test_arguments_of_the_app_are_documented():
    """The Python reference has every argument of the app."""
    reference = (ROOT / "docs/reference/python.md").read_text()
    names = list(signature(durable_agent_host.DurableAgentApp).parameters)
    assert names
    assert not [name for name in names if f"`{name}`" not in reference]


def test_a_change_edits_two_files_at_most():
    """The table of changes names files and folders that are there, and at most two to edit for one change."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    table = text.partition("| change | edit | test |\n|---|---|---|\n")[2].partition("\n\n")[0]
    rows = [row.strip("| ").split(" | ") for row in table.splitlines()]
    assert rows
    wrong: list[str] = []
    for change, *columns in rows:
        to_edit, to_test = (PATH_IN_CODE.findall(column) for column in columns)
        missing = [path for path in to_edit + to_test if not _is_there(path, "CONTRIBUTING.md")]
        wrong += [f"{change}: {path} is missing" for path in missing]
        wrong += [f"{change}: {len(to_edit)} files to edit"] if len(to_edit) > 2 else []
    assert not wrong
