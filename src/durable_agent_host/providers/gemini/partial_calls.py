"""Assembles a function call whose arguments the service streams in pieces. Pure.

A call begins with its name and ``willContinue``; pieces follow with ``partialArgs``, each a value at a JSON path, texts
in several pieces; a piece without ``willContinue`` ends it. Pieces name their call only where calls are interleaved.

Source: `FunctionCall` and `PartialArg` of https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1, and
the recording `fn-streamed-arguments`.
"""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Final, cast

from durable_agent_host.errors import ProviderError

_STEP: Final = re.compile(r"""\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]""")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_MOST_PLACES: Final = 10_000


class PartialCalls:
    """The calls of one response with incomplete arguments."""

    def __init__(self) -> None:
        self._open: list[dict[str, Any]] = []

    @property
    def are_open(self) -> bool:
        """Whether a call waits for more arguments."""
        return bool(self._open)

    def take(self, part: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read a part with a function call.

        Args:
            part: from the service.

        Returns:
            The complete part: the given one when it is complete, or the one just completed; otherwise None.

        Raises:
            ProviderError: the arguments cannot be assembled.
        """
        said: Mapping[str, Any] = part["functionCall"]
        goes_on = said.get("willContinue") is True
        found = self._known(said)
        if found is None and not goes_on and "partialArgs" not in said:
            return dict(part)
        known: dict[str, Any] = {**part, "functionCall": {}} if found is None else found
        if found is None:
            self._open.append(known)
        else:
            known.update({name: value for name, value in part.items() if name != "functionCall"})
        call = cast("dict[str, Any]", known["functionCall"])
        call.update({name: said[name] for name in said if name not in {"args", "partialArgs", "willContinue"}})
        args = call.setdefault("args", {})
        args.update(said.get("args") or {})
        for piece in said.get("partialArgs") or ():
            _put(args, piece)
        if goes_on:
            return None
        self._open.remove(known)
        return known

    def _known(self, said: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the open call of a piece; a piece with another name or id begins a call."""
        for known in reversed(self._open):
            call = known["functionCall"]
            if all(said.get(name) in {None, call.get(name)} for name in ("id", "name")):
                return known
        return None


def _put(args: dict[str, Any], piece: Mapping[str, Any]) -> None:
    path = str(piece.get("jsonPath") or "")
    steps = _steps(path)
    value: Any = next((piece[name] for name in _VALUES if name in piece), None)
    place: Any = args
    try:
        for step, following in pairwise(steps):
            place = _entered(place, step, [] if isinstance(following, int) else {})
        last = steps[-1]
        before = _at(place, last)
        # A text streamed in pieces grows; any other value is sent once.
        _set(place, last, before + value if isinstance(before, str) and isinstance(value, str) else value)
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise _unreadable(path) from error


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 1 if path.startswith("$") else -1
    while 0 < position < len(path):
        found = _STEP.match(path, position)
        if found is None:
            break
        index = found["index"]
        steps.append(int(index) if index is not None else found["name"] or found["quoted"] or "")
        position = found.end()
    if position != len(path) or not steps or any(isinstance(one, int) and one > _MOST_PLACES for one in steps):
        raise _unreadable(path)
    return steps


def _at(place: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return place[step] if step < len(place) else None
    return place.get(step)


def _set(place: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        place.extend([None] * (step + 1 - len(place)))
    place[step] = value


def _entered(place: Any, step: str | int, empty: Any) -> Any:
    if (found := _at(place, step)) is None:
        _set(place, step, found := empty)
    return found


def _unreadable(path: str) -> ProviderError:
    return ProviderError(
        f"the model's service streamed an argument for the path {path!r}, which cannot be read: turn off "
        "stream_function_call_arguments",
        retryable=False,
    )
