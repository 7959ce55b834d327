"""Checks Bicep files without Azure's compiler: syntax, names, parameters of modules, and what Flex Consumption refuses.

``.venv/linters/bin/python scripts/supply/bicep.py FILE...`` prints what is wrong, and then exits with 1. It knows no
types of resources: a misspelt property is found by ``azd provision`` only.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import tree_sitter_bicep
from tree_sitter import Language, Node, Parser

FUNCTIONS = frozenset(
    {"empty", "guid", "resourceGroup", "subscription", "subscriptionResourceId", "take", "toLower", "uniqueString"}
)
"""The functions that the files use: a new one is added here once it has been looked up."""

FLEX_REFUSES = {
    *("alwaysOn", "ftpsState", "functionAppScaleLimit", "functionsRuntimeScaleMonitoringEnabled", "linuxFxVersion"),
    *("netFrameworkVersion", "preWarmedInstanceCount", "use32BitWorkerProcess", "windowsFxVersion"),
    *("ENABLE_ORYX_BUILD", "FUNCTIONS_EXTENSION_VERSION", "FUNCTIONS_WORKER_RUNTIME", "SCM_DO_BUILD_DURING_DEPLOYMENT"),
    *("TZ", "WEBSITE_CONTENTAZUREFILECONNECTIONSTRING", "WEBSITE_CONTENTSHARE", "WEBSITE_RUN_FROM_PACKAGE"),
    "WEBSITE_TIME_ZONE",
}
"""Properties of ``siteConfig`` and app settings that this plan does not have."""

PARSER = Parser(Language(tree_sitter_bicep.language()))
DECLARATIONS = ("parameter_declaration", "variable_declaration", "resource_declaration", "module_declaration")


def walk(node: Node) -> Iterator[Node]:
    """Yield a node and all below it."""
    yield node
    for child in node.children:
        yield from walk(child)


def text_of(node: Node | None) -> str:
    """Return the source of a node."""
    return (node.text if node and node.text else b"").decode()


def declared(root: Node, *kinds: str) -> dict[str, Node]:
    """Return the declarations of these kinds by name."""
    nodes = (node for node in walk(root) if node.type in kinds)
    return {text_of(next(child for child in node.named_children if child.type == "identifier")): node for node in nodes}


def parameters(root: Node) -> dict[str, bool]:
    """Return the parameters, and whether each has a default."""
    found = declared(root, "parameter_declaration")
    return {name: any(child.type == "=" for child in node.children) for name, node in found.items()}


def check_arguments(what: str, passed: set[str], accepted: dict[str, bool]) -> Iterator[str]:
    """Compare what a module or a file of parameters passes with what is accepted."""
    yield from (f"{what} has no parameter {name!r}" for name in passed - accepted.keys())
    required = {name for name, has_default in accepted.items() if not has_default}
    yield from (f"{what} is not given {name!r}" for name in required - passed)


def check(path: Path) -> Iterator[str]:
    """Yield what is wrong in a file."""
    root = PARSER.parse(path.read_bytes()).root_node
    names = FUNCTIONS | declared(root, *DECLARATIONS).keys()
    for node in walk(root):
        line = f"line {node.start_point.row + 1}: "
        if node.type == "ERROR" or node.is_missing:
            yield f"{line}syntax error at {text_of(node)[:40]!r}"
        parent = node.parent
        is_name = parent is None or parent.type in {*DECLARATIONS, "output_declaration"} or is_key(node, parent)
        is_in_decorator = parent is not None and parent.parent is not None and parent.parent.type == "decorator"
        if node.type == "identifier" and not is_name and not is_in_decorator and text_of(node) not in names:
            yield f"{line}{text_of(node)!r} is not declared"
        if node.type in {"identifier", "string_content"} and text_of(node) in FLEX_REFUSES:
            yield f"{line}Flex Consumption refuses {text_of(node)!r}"
    for module in declared(root, "module_declaration").values():
        target = path.parent / text_of(next(child for child in module.named_children if child.type == "string")).strip(
            "'"
        )
        params = next(
            node
            for node in walk(module)
            if node.type == "object_property" and text_of(node.named_children[0]) == "params"
        )
        passed = {text_of(entry.named_children[0]) for entry in params.named_children[1].named_children}
        yield from check_arguments(target.name, passed, parameters(PARSER.parse(target.read_bytes()).root_node))
    values = path.with_name(f"{path.stem}.parameters.json")
    if values.exists():
        passed = set(json.loads(values.read_text())["parameters"])
        yield from check_arguments(path.name, passed, parameters(root))


def is_key(node: Node, parent: Node) -> bool:
    """Whether a node is the name of a property, rather than its value."""
    return parent.type == "object_property" and node == parent.named_children[0]


def main() -> int:
    """Check the files that the command line names."""
    problems = [f"{name}: {problem}" for name in sys.argv[1:] for problem in check(Path(name))]
    print(*problems, sep="\n", end="\n" if problems else "")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
