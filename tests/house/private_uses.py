"""Finds where the project uses names that other packages do not promise: private ones, and overridden methods.

A name is private if it, or a module on its way, begins with an underscore. An object's type is not known here, so a use
is a name and a module; `tests/contract/private_members.md` says whose name it is.
"""

import ast
import importlib
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.house.source import PACKAGES, SHARED, Module, is_below, modules

OURS = (*PACKAGES, *SHARED)
PROMISED = frozenset({"sys._current_frames", "os._exit", "_asdict", "_replace"})
"""Documented in spite of their names; the last two are methods of named tuples."""
_PRIVATE = re.compile(r"_[A-Za-z]\w*(?<!__)")
_BY_NAME = frozenset({"getattr", "setattr", "hasattr", "delattr", "attrgetter", "vars"})
_TABLE_METHODS = frozenset({"get", "pop", "setdefault"})
_COPIERS = frozenset({"copy_with_mixin", "normalize_streams", "overridden_class", "create_adapter"})
"""Functions of ours that put a class before one that they get at run time."""


@dataclass(frozen=True)
class Use:
    """A private name, or ``module:name`` of an import, and where it is used."""

    name: str
    module: str
    location: str


@dataclass(frozen=True)
class OurClass:
    """A class of ours that overrides methods: of its bases, or of what it is put before at run time."""

    module: Module
    node: ast.ClassDef

    @property
    def name(self) -> str:
        """``module:Class``."""
        return f"{self.module.name}:{self.node.name}"

    @property
    def methods(self) -> dict[str, ast.AST]:
        """What it defines itself."""
        return {node.name: node for node in self.node.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def private_uses() -> Iterator[Use]:
    """Every use of a private name that its module does not define."""
    for module in modules(*OURS):
        defined_names = _defined_names(module)
        for name, line in (*_attributes(module, defined_names), *_names_in_text(module), *_imports(module)):
            if name not in PROMISED:
                yield Use(name, module.name, module.at(line))


@cache
def _defined_names(module: Module) -> set[str]:
    names: set[str] = set()
    for node in module.nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                names.add(name)
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case _:
                pass
    return names


@cache
def _declared_names(module: Module) -> set[str]:
    """List what classes declare without a value, but for dataclasses: what they expect of another class."""
    return {
        node.target.id
        for owner in module.nodes
        if isinstance(owner, ast.ClassDef) and not owner.decorator_list
        for node in owner.body
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name)
    }


@cache
def _names_defined_anywhere(package: str) -> frozenset[str]:
    return frozenset(name for module in modules(package) for name in _defined_names(module))


def _attributes(module: Module, defined_names: set[str]) -> Iterator[tuple[str, int]]:
    inherited = _names_defined_anywhere(module.name.partition(".")[0])
    declared_names = _declared_names(module)
    for node in module.nodes:
        if not isinstance(node, ast.Attribute) or not _PRIVATE.fullmatch(node.attr):
            continue
        is_self = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        is_ours = node.attr in (inherited if is_self else defined_names) and node.attr not in declared_names
        if not is_ours and ast.unparse(node) not in PROMISED:
            yield node.attr, node.lineno


def _names_in_text(module: Module) -> Iterator[tuple[str, int]]:
    """Names given as text to ``getattr`` and its like, directly or as a constant of the module."""
    constants = _assigned_values(module.tree.body)
    for statement in (node for node in module.nodes if isinstance(node, ast.stmt)):
        nodes = list(_own_nodes(statement))
        if not any(_looks_up_by_name(node) for node in nodes):
            continue
        values = [constants.get(node.id, node) for node in nodes if isinstance(node, ast.Name)]
        for node in (*nodes, *(inner for value in values for inner in ast.walk(value))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and _PRIVATE.fullmatch(node.value):
                yield node.value, statement.lineno


def _assigned_values(nodes: Iterable[ast.AST]) -> dict[str, ast.expr]:
    """Variable → the last value that it is given."""
    return {
        target.id: node.value
        for node in nodes
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    }


def _own_nodes(statement: ast.stmt) -> Iterator[ast.AST]:
    """What stands in a statement: a loop with its body, anything else without the statements in it."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return
    if isinstance(statement, ast.For):
        yield from ast.walk(statement)
        return
    ahead: list[ast.AST] = [statement]
    while ahead:
        node = ahead.pop()
        yield node
        ahead += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.stmt)]


def _looks_up_by_name(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _BY_NAME
        case ast.Attribute(attr=name):
            return name == "__dict__"
        case _:
            return False


def _imports(module: Module) -> Iterator[tuple[str, int]]:
    for node in module.nodes:
        match node:
            case ast.ImportFrom(module=str(origin), names=aliases) if not _is_ours(origin):
                for alias in aliases:
                    if _is_private_path(origin) or _PRIVATE.fullmatch(alias.name):
                        yield f"{origin}:{alias.name}", node.lineno
            case ast.Import(names=aliases):
                for alias in aliases:
                    if _is_private_path(alias.name):
                        yield alias.name, node.lineno
            case ast.Call(args=[ast.Constant(value=str(origin)), *_]) if ast.unparse(node.func).endswith(
                "import_module"
            ) and _is_private_path(origin):
                yield origin, node.lineno
            case _:
                pass


def _is_ours(name: str) -> bool:
    return any(is_below(name, package) for package in OURS) or name == "__future__"


def _is_private_path(name: str) -> bool:
    return any(_PRIVATE.fullmatch(part) for part in name.split("."))


def patches() -> Iterator[Use]:
    """Every assignment to an attribute of a module, or of something imported from one, but for ``sys``."""
    for module in modules(*OURS):
        imported_names = _imported_names(module)
        module_variables = {
            variable
            for variable, value in _assigned_values(module.nodes).items()
            if re.search(r"\bimport_module\(|\bsys\.modules\b", ast.unparse(value))
        }
        for node in module.nodes:
            match node:
                case ast.Attribute(value=ast.Name(id=variable), attr=name, ctx=ast.Store()) if (
                    variable in module_variables or not _is_ours(imported_names.get(variable, OURS[0]))
                ):
                    yield Use(name, module.name, module.at(node.lineno))
                case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id=variable), *_]) if (
                    variable != "sys" and not _is_ours(imported_names.get(variable, OURS[0]))
                ):
                    yield Use(ast.unparse(node), module.name, module.at(node.lineno))
                case _:
                    pass


@cache
def _imported_names(module: Module) -> dict[str, str]:
    """Variable → ``module:name`` or module that it was imported from."""
    names: dict[str, str] = {}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom):
            names |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            names |= {alias.asname or alias.name.partition(".")[0]: alias.name for alias in node.names}
    return names


@cache
def _classes() -> tuple[OurClass, ...]:
    return tuple(
        OurClass(module, node) for module in modules(*OURS) for node in module.nodes if isinstance(node, ast.ClassDef)
    )


def mixins() -> dict[str, OurClass]:
    """Classes of ours that are put before another one at run time, by name."""
    classes = {found.name: found for found in _classes()}
    names: set[str] = set()
    for module in modules(*OURS):
        variables = _assigned_values(module.nodes)
        for node in module.nodes:
            arguments: list[ast.expr] = []
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in _COPIERS:
                arguments = [variables.get(ast.unparse(argument), argument) for argument in node.args[1:]]
            elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "overrides":  # a provider's
                arguments = [node.value]
            if arguments:
                inner_nodes = [inner for argument in arguments for inner in ast.walk(argument)]
                names |= {_full_name(module, inner.id) for inner in inner_nodes if isinstance(inner, ast.Name)}
    found_classes = {name: classes[name] for name in names & classes.keys()}
    for found in [*found_classes.values()]:
        base_names = {_full_name(found.module, ast.unparse(base)) for base in found.node.bases}
        found_classes |= {name: classes[name] for name in base_names & classes.keys()}
    return found_classes


def _full_name(module: Module, variable: str) -> str:
    origin, _, name = _imported_names(module).get(variable, f"{module.name}.{variable}").rpartition(".")
    return f"{origin}:{name}"


def subclasses() -> Iterator[tuple[OurClass, type[Any]]]:
    """Classes of ours with a base of another package that is not the standard library, and that base."""
    for found in _classes():
        imported_names = _imported_names(found.module)
        for base in found.node.bases:
            expression = base.value if isinstance(base, ast.Subscript) else base
            root, *path = ast.unparse(expression).split(".")
            origin = imported_names.get(root, OURS[0])
            if not _is_ours(origin) and origin.partition(".")[0] not in sys.stdlib_module_names:
                yield found, _import(".".join((origin, *path)))


def _import(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(_import(module), attribute)


def calls_super(method: ast.AST) -> bool:
    """Return whether an override calls what it overrides."""
    return any(isinstance(node, ast.Name) and node.id == "super" for node in ast.walk(method))
