"""What the house tests read: the project's own modules as syntax trees, and what git tracks."""

import ast
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGES = ("durable_agent_host", "functions_host", "practice_model")
SHARED = ("ncrontab", "sqlite_store")
"""Packages that those may import."""
DEMO = "demo"
"""Beside the packages of ``src``, and held by the same rules."""


@dataclass(frozen=True)
class Import:
    """One imported module; ``needs_type_checking`` is never imported at run time, ``is_deferred`` inside a function."""

    module: str
    line: int
    needs_type_checking: bool
    is_deferred: bool


@dataclass(frozen=True)
class Module:
    """One module of the project."""

    name: str
    path: Path

    @cached_property
    def text(self) -> str:
        """Its source."""
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        """Its syntax."""
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of its syntax."""
        return tuple(ast.walk(self.tree))

    @property
    def folder(self) -> str:
        """The part after the package's name: a folder's name, or the module's own."""
        return (*self.name.split("."), "")[1]

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """What it imports, anywhere in it."""
        return tuple(_imports(self.tree, needs_type_checking=False, is_deferred=False))

    def imports_from(self, prefix: str) -> list[Import]:
        """The imports of a module and what is below it."""
        return [found for found in self.imports if is_below(found.module, prefix)]

    def at(self, line: int) -> str:
        """A place in it, for a failure's message."""
        return f"{self.path.relative_to(ROOT)}:{line}"


def is_below(name: str, prefix: str) -> bool:
    """Whether a dotted name is the prefix or something in it."""
    return name == prefix or name.startswith(prefix + ".")


def _imports(node: ast.AST, *, needs_type_checking: bool, is_deferred: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        typing_only = needs_type_checking or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
        deferred_import = is_deferred or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        if isinstance(child, ast.Import):
            for alias in child.names:
                yield Import(alias.name, child.lineno, typing_only, deferred_import)
        elif isinstance(child, ast.ImportFrom):
            assert child.module and not child.level, f"line {child.lineno}: relative imports are not used here"  # noqa: PT018 - one rule
            for alias in child.names:
                inner = f"{child.module}.{alias.name}"
                yield Import(inner if _is_module(inner) else child.module, child.lineno, typing_only, deferred_import)
        else:
            yield from _imports(child, needs_type_checking=typing_only, is_deferred=deferred_import)


def _is_module(name: str) -> bool:
    return name in {"azure.functions", "azure.durable_functions"} or name in module_names()


@cache
def _paths() -> dict[str, Path]:
    """The project's modules by their dotted names: everything under ``src``, and the demo."""
    found: dict[str, Path] = {}
    for folder in (*(SRC / package for package in (*PACKAGES, *SHARED)), ROOT / DEMO):
        for path in folder.rglob("*.py"):
            parts = path.relative_to(folder.parent).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


@cache
def module_names() -> frozenset[str]:
    """The dotted names of all modules."""
    return frozenset(_paths())


@cache
def _modules() -> tuple[Module, ...]:
    return tuple(Module(name, path) for name, path in sorted(_paths().items()))


@cache
def modules(*packages: str) -> tuple[Module, ...]:
    """The modules of these packages, or all; each is read once, whoever asks for it."""
    return tuple(module for module in _modules() if not packages or any(is_below(module.name, p) for p in packages))


def definitions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Every function and class below a node, with its dotted name."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{prefix}{child.name}"
            yield name, child
            yield from definitions(child, f"{name}.")
        else:
            yield from definitions(child, prefix)


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
