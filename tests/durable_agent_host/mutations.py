"""Documents that somebody changed: seeded mutations of any JSON."""

import copy
import random
from collections.abc import Iterator
from typing import Any

REPLACEMENTS: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 3, 1.5, 10**30, "", "x", "\ud83d", "a" * 3000),
    *([], [1], [None], [[]], ["x"], [{}]),
    *({}, {"a": 1}, {"$type": "text"}, {"type": "text"}, {"$content": {}}, {"$plain": 5}, {"durableAgentHost": []}),
)
"""What a value is replaced with."""


def mutations(document: Any, count: int, seed: str) -> Iterator[tuple[str, Any]]:
    """Change copies of a document in one place each, every place about as often.

    Yields:
        What was changed, in words, and the changed copy.
    """
    chance = random.Random(seed)
    paths = list(_paths(document, ()))
    order: list[tuple[Any, ...]] = []
    while len(order) < count:
        order += chance.sample(paths, len(paths))
    for path in order[:count]:
        mutant = copy.deepcopy(document)
        yield f"{_change(mutant, path, chance)} {'.'.join(map(str, path))}", mutant


def _paths(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*path, name)
        yield from _paths(inner, (*path, name))


def _change(document: Any, path: tuple[Any, ...], chance: random.Random) -> str:
    container = document
    for name in path[:-1]:
        container = container[name]
    last = path[-1]
    change = chance.choices(["replaced", "left out", "twice", "wrapped", "renamed"], [12, 3, 1, 2, 1])[0]
    if change == "left out":
        del container[last]
    elif change == "wrapped":
        container[last] = chance.choice([lambda value: [value], lambda value: {"a": value}, str])(container[last])
    elif change == "twice" and isinstance(container, list):
        container.insert(last, copy.deepcopy(container[last]))
    elif change == "renamed" and isinstance(container, dict):
        container[f"{last}X"] = container.pop(last)
    else:
        change = "replaced"
        container[last] = copy.deepcopy(chance.choice(REPLACEMENTS))
    return change
