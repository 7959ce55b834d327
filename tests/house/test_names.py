"""How things are named."""

import ast

from tests.house.source import Module, definitions, modules

NOT_A_NOUN = {"utils", "util", "helpers", "helper", "common", "misc", "shared", "tools"}


def test_modules_are_named_for_what_they_are_about():
    """There is no place for things that belong nowhere."""
    assert not [module.name for module in modules() if NOT_A_NOUN & set(module.name.split("."))]


def _bases(node: ast.ClassDef) -> set[str]:
    return {ast.unparse(base).partition("[")[0].rpartition(".")[2] for base in node.bases}


def _classes(module: Module) -> list[tuple[str, ast.ClassDef]]:
    return [(name, node) for name, node in definitions(module.tree) if isinstance(node, ast.ClassDef)]


def test_wire_shapes_end_in_wire():
    """A TypedDict is a shape that is stored or sent, and is called so."""
    wire = {"TypedDict"}
    wrong: list[str] = []
    for module in modules():
        for name, node in _classes(module):
            if any(base == "TypedDict" or base.endswith("Wire") for base in _bases(node)):
                wire.add(name)
                if not name.endswith("Wire"):
                    wrong.append(f"{module.at(node.lineno)} {name}")
    assert len(wire) > 1
    assert not wrong


def test_errors_end_in_error():
    """Whatever can be raised is called an error."""
    raisable = {"Exception", "BaseException", "AgentFrameworkException"}
    wrong: list[str] = []
    for module in modules():
        for name, node in _classes(module):
            is_error = any(base in raisable or base.endswith(("Error", "Exception")) for base in _bases(node))
            if is_error and not name.endswith("Error"):
                wrong.append(f"{module.at(node.lineno)} {name}")
    assert not wrong
