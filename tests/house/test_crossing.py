"""Where threads and event loops are crossed."""

import ast

from tests.house.source import is_below, modules

CALLS = {"call_soon_threadsafe", "run_coroutine_threadsafe"}
ALLOWED_MODULES = ("durable_agent_host.concurrency", "durable_agent_host.agent.agent_event_loop")
"""The primitives, and the loop of all agents."""


def test_other_loops_are_woken_by_the_primitives_only():
    """Whoever wakes another thread's loop does it with the primitives, which wake each loop once."""
    wrong: list[str] = []
    modules_found: set[str] = set()
    for module in modules("durable_agent_host"):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in CALLS:
                modules_found |= {
                    allowed_module for allowed_module in ALLOWED_MODULES if is_below(module.name, allowed_module)
                }
                if not any(is_below(module.name, allowed_module) for allowed_module in ALLOWED_MODULES):
                    wrong.append(f"{module.at(node.lineno)} {node.attr}")
    assert modules_found == set(ALLOWED_MODULES)
    assert not wrong
