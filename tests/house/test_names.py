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


def test_event_names_are_constants_that_exist_once():
    """Only the table of events spells their names; the CLI, a client over HTTP, spells them as any client does."""
    from durable_agent_host.turn.turn_events import EVENTS

    wrong = [
        f"{module.at(node.lineno)} {node.value!r}"
        for module in modules("durable_agent_host")
        if module.folder != "cli" and module.name != "durable_agent_host.turn.turn_events"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in EVENTS
    ]
    assert not wrong


def test_turn_requests_are_built_in_one_module():
    """What a new way of asking needs is in one module; stored requests are read by the wire."""
    wrong = [
        module.at(node.lineno)
        for module in modules("durable_agent_host")
        if module.name not in {"durable_agent_host.turn.turn_requests", "durable_agent_host.turn.turn_wire"}
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "TurnRequest"
    ]
    assert not wrong


SHARED_NAMES = {
    "lost_state": "what a provider's service can no longer use",
    "message_accumulator": "one message of a provider, put together from its stream",
    "request_messages": "the messages of a request in a provider's form",
    "client": "the hosted class of a provider's chat client",
    "errors": "what the errors of this place mean",
    "event_grammar": "the events of an answer of one dialect",
    "overlay": "a value and its JSON",
    "journal": "the finished steps of a turn, and the layer of calls that replays and records them",
    "journal_entry": "a value and its JSON",
    "log_entry": "a value and its JSON",
    "protocol": "what a kind of store promises",
    "feature": "the port for features, and who implements it",
    "entries": "what a feature writes into the journal",
    "registry": "all of a kind, each named once",
    "provider": "the port to model providers, and who implements it",
    "reading": "a request of one dialect as the model reads it",
    "stream_events": "the events of a provider's stream",
    "stream_normalization": "the events of a provider's stream in the form of its API",
    "durable_functions": "the engine's port to the app's functions, and who implements it",
}
"""File names that stand more than once in a package, with the role that those files share."""


def test_modules_share_a_name_only_when_they_share_a_role():
    """Whoever looks for a file by its name finds one, or several that are the same thing of different places."""
    paths_by_name: dict[tuple[str, str], list[str]] = {}
    for module in modules():
        package, _, inner_path = module.name.partition(".")
        if module.path.name not in {"__init__.py", "__main__.py"}:
            paths_by_name.setdefault((package, inner_path.rpartition(".")[2]), []).append(module.name)
    twice = {name: found for (_, name), found in paths_by_name.items() if len(found) > 1}
    assert {name: found for name, found in twice.items() if name not in SHARED_NAMES} == {}
    assert set(SHARED_NAMES) <= set(twice), "a name that stands once needs no role"
