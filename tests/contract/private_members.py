"""Reads `private_members.md`, and the names that it lists in the installed packages."""

import ast
import hashlib
import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

LIST = Path(__file__).with_name("private_members.md")
VALUE = "value"
"""Instead of a signature: a member that is not called, or that instances have."""

_HEADING = re.compile(r"## (\S+) (\S+)")
_ROW = re.compile(r"\| `([^`]+)` \| (?:`([^`]+)`|value)(?: `(\w+)`)? \| `([^`]+)` \| (.+) \|")


@dataclass(frozen=True)
class PrivateMember:
    """A row of the list.

    Attributes:
        package: the distribution that has it.
        version: of the package that the row was checked against.
        path: ``module:name`` or ``module:Class.name``.
        signature: as `describe` writes it.
        digest: of the method's source, if an override does not call it.
        user: our module or package; ``module:Class`` if the class overrides it.
        reason: why no public name does.
    """

    package: str
    version: str
    path: str
    signature: str
    digest: str
    user: str
    reason: str

    @property
    def name(self) -> str:
        """The last part of the path."""
        return re.split(r"[:.]", self.path)[-1]


@cache
def private_members() -> tuple[PrivateMember, ...]:
    """Read the list."""
    members: list[PrivateMember] = []
    package = version = ""
    for line in LIST.read_text().splitlines():
        if heading := _HEADING.fullmatch(line):
            package, version = heading.groups()
        elif package and line.startswith("| `"):
            row = _ROW.fullmatch(line)
            assert row is not None, f"{LIST.name}: this row cannot be read: {line}"
            path, signature, digest, user, reason = row.groups()
            members.append(PrivateMember(package, version, path, signature or VALUE, digest or "", user, reason))
    return tuple(members)


def describe(member: str) -> str | None:
    """Return the signature of a name, `VALUE` for what has none, or None when the name does not exist."""
    module_name, _, path = member.partition(":")
    try:
        found: Any = importlib.import_module(module_name)
    except ImportError:
        return None
    for name in filter(None, path.split(".")):
        owner = found
        try:
            found = _get_member(owner, name)
        except AttributeError:
            return VALUE if inspect.isclass(owner) and name in _instance_attributes(owner) else None
    found = inspect.unwrap(getattr(found, "__func__", found))  # what the host has replaced is looked at, too
    return _format_signature(found) if inspect.isroutine(found) or inspect.isclass(found) else VALUE


def _get_member(owner: Any, name: str) -> Any:
    """Return a member as it is written, not bound; modules may make theirs when they are first read."""
    return getattr(owner, name) if inspect.ismodule(owner) else inspect.getattr_static(owner, name)


def _format_signature(function: Any) -> str:
    """Write the parameters without their types; ``=`` follows those with a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # written in C
        return VALUE
    marks = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    names: list[str] = []
    for parameter in parameters:
        is_keyword = parameter.kind is inspect.Parameter.KEYWORD_ONLY
        if is_keyword and not any(name.startswith("*") for name in names):
            names.append("*")
        default = "" if parameter.default is inspect.Parameter.empty else "="
        names.append(f"{marks.get(parameter.kind, '')}{parameter.name}{default}")
    return f"({', '.join(names)})"


def _instance_attributes(owner: type[Any]) -> Iterator[str]:
    """List what the methods of a class and its bases set on ``self``."""
    for base in owner.__mro__[:-1]:
        for node in ast.walk(_parse(base)):
            match node:
                case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                    yield name
                case _:
                    pass


def _parse(source: Any) -> ast.AST:
    try:
        return ast.parse(textwrap.dedent(inspect.getsource(source)))
    except (OSError, TypeError):  # written in C
        return ast.Module([], [])


def source_digest(member: str) -> str:
    """Return the digest of a method's source, whatever its comments and its docstring say."""
    module_name, _, path = member.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in path.split("."):
        found = _get_member(found, name)
    tree = _parse(getattr(found, "__func__", found))
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.unparse(tree).encode()).hexdigest()[:12]
