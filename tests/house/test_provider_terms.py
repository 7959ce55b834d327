"""A provider's words stand in its own folder: neutral rooms take them as data, through a port."""

import ast
import re

from tests.house.source import Module, modules

NEUTRAL_ROOMS = {"model", "codec", "session", "turn", "stream", "agent", "turn_log", "durable", "http"}

PROVIDER_TERMS = re.compile(
    r"\bfc_|\bopenai\b|\banthropic\b|\bclaude\b|\bgemini\b|code_interpreter_call|\bcontainer_id\b|"
    r"\bsignature\b|thought_signature|encrypted_content|logprobs",
    re.IGNORECASE,
)
"""What only one provider calls so; `code_interpreter_tool_call` and its like are the framework's types."""

EXCEPTIONS: dict[str, tuple[set[str], str]] = {
    "durable_agent_host.stream.fold_content": (
        {"logprobs"},
        "folds as the framework does, which names this property in its own fold",
    ),
}
"""Module → the words that stand in it, and why."""


def _find_provider_terms(module: Module) -> dict[str, int]:
    """Find the words in the strings of a module's code, docstrings aside, with the first line of each."""
    docstrings = {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    found: dict[str, int] = {}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            for word in PROVIDER_TERMS.findall(node.value):
                found.setdefault(word.lower(), node.lineno)
    return found


def test_neutral_folders_have_no_provider_terms():
    """No string in the code of a neutral room is a provider's own word."""
    wrong: list[str] = []
    for module in modules("durable_agent_host"):
        if module.folder in NEUTRAL_ROOMS:
            allowed_terms, _ = EXCEPTIONS.get(module.name, (set(), ""))
            wrong += [
                f"{module.at(line)} says {word!r}"
                for word, line in _find_provider_terms(module).items()
                if word not in allowed_terms
            ]
    assert not wrong


def test_exceptions_are_needed():
    """A word that no longer stands in a module is taken off its exception."""
    by_name = {module.name: module for module in modules("durable_agent_host")}
    unused_exceptions = [
        f"{name}: {word}"
        for name, (counts, _) in EXCEPTIONS.items()
        for word in counts
        if name not in by_name or word not in _find_provider_terms(by_name[name])
    ]
    assert not unused_exceptions
