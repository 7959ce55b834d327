"""How values are made: by arguments that the type checker reads."""

import ast
from collections.abc import Iterator

from tests.house.source import modules

ALLOWED = {
    "durable_agent_host.agent.tool_invocation": "_FunctionResultCarrier",  # the framework's, as it was stored
    "durable_agent_host.codec.content_fields": "Content",  # the framework's, with whichever fields were stored
    "durable_agent_host.encryption.key_wrapping": "CryptographyClient",  # options of the app for the SDK's client
}
"""Module → the class of somebody else's that it calls with a mapping."""


def test_no_mapping_is_splatted_into_a_constructor():
    """A class gets its arguments by name or position; only the keywords that a function was called with are passed on.

    A mapping's values have no types, and a misspelled name in it is found when the code runs.
    """
    found = [(module, line, name) for module in modules() for line, name in _splats(module.tree, frozenset())]
    wrong = [f"{module.at(line)} {name}" for module, line, name in found if ALLOWED.get(module.name) != name]
    assert not wrong
    assert {module.name for module, _, _ in found} == set(ALLOWED)


def _splats(node: ast.AST, own_keywords: frozenset[str]) -> Iterator[tuple[int, str]]:
    """Line and class of each constructor, or partial one, that gets a mapping as keywords."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.args.kwarg is not None:
        own_keywords |= {node.args.kwarg.arg}
    if isinstance(node, ast.Call):
        function = node.args[0] if node.args and _name(node.func) == "partial" else node.func
        is_class = _name(function) == "cls" or _name(function).lstrip("_")[:1].isupper()
        mappings = [keyword.value for keyword in node.keywords if keyword.arg is None]
        if is_class and any(_name(mapping) not in own_keywords for mapping in mappings):
            yield node.lineno, _name(function)
    for child in ast.iter_child_nodes(node):
        yield from _splats(child, own_keywords)


def _name(node: ast.AST) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def test_the_rule_finds_what_it_forbids():
    """Of these calls, the first four are forbidden."""
    text = """
Value(**fields)
partial(Value, **fields)
_Value(**{"a": 1})
class V:
    def make(cls, fields): cls(**fields)
def f(**more): Value(**more)
function(**fields)
{**fields}
"""
    assert [name for _, name in _splats(ast.parse(text), frozenset())] == ["Value", "Value", "_Value", "cls"]
