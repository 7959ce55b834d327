"""Every public name says what it is."""

import ast

from tests.house.source import definitions, modules


def _is_public(name: str, functions: set[str]) -> bool:
    is_inner = name.rpartition(".")[0] in functions
    return not is_inner and not any(part.startswith("_") for part in name.split("."))


def test_public_names_have_a_docstring():
    """Modules, and their public classes, functions and methods, begin with a docstring."""
    missing: list[str] = []
    for module in modules():
        if not ast.get_docstring(module.tree):
            missing.append(module.at(1))
        found = list(definitions(module.tree))
        functions = {name for name, node in found if not isinstance(node, ast.ClassDef)}
        for name, node in found:
            assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
            is_overload = "overload" in map(ast.unparse, node.decorator_list)  # the function itself has the docstring
            if _is_public(name, functions) and not is_overload and not ast.get_docstring(node):
                missing.append(f"{module.at(node.lineno)} {name}")
    assert not missing
