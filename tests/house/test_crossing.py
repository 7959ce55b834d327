"""Where threads and event loops are crossed."""

import ast

from tests.house.source import is_below, modules

CALLS = {"call_soon_threadsafe", "run_coroutine_threadsafe"}
PLACES = ("durable_agent_host.concurrency", "durable_agent_host.agent.agent_event_loop")
"""The primitives, and the loop of all agents."""


def test_loops_are_woken_in_one_room():
    """Whoever wakes another thread's loop does it with the primitives, which wake each loop once."""
    wrong: list[str] = []
    places: set[str] = set()
    for module in modules("durable_agent_host"):
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and node.attr in CALLS:
                places |= {place for place in PLACES if is_below(module.name, place)}
                if not any(is_below(module.name, place) for place in PLACES):
                    wrong.append(f"{module.at(node.lineno)} {node.attr}")
    assert places == set(PLACES)
    assert not wrong
