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
    places = list(_places(document, ()))
    order: list[tuple[Any, ...]] = []
    while len(order) < count:
        order += chance.sample(places, len(places))
    for path in order[:count]:
        changed = copy.deepcopy(document)
        yield f"{_change(changed, path, chance)} {'.'.join(map(str, path))}", changed


def _places(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*path, name)
        yield from _places(inner, (*path, name))


def _change(document: Any, path: tuple[Any, ...], chance: random.Random) -> str:
    holder = document
    for name in path[:-1]:
        holder = holder[name]
    last = path[-1]
    what = chance.choices(["replaced", "left out", "twice", "wrapped", "renamed"], [12, 3, 1, 2, 1])[0]
    if what == "left out":
        del holder[last]
    elif what == "wrapped":
        holder[last] = chance.choice([lambda one: [one], lambda one: {"a": one}, str])(holder[last])
    elif what == "twice" and isinstance(holder, list):
        holder.insert(last, copy.deepcopy(holder[last]))
    elif what == "renamed" and isinstance(holder, dict):
        holder[f"{last}X"] = holder.pop(last)
    else:
        what = "replaced"
        holder[last] = copy.deepcopy(chance.choice(REPLACEMENTS))
    return what
