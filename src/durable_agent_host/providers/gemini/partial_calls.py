"""Accumulates function calls with arguments that the service streams in fragments.

A call starts with its name and ``willContinue``; deltas follow with ``partialArgs``, each a value at a JSON path, texts
in several fragments; a delta without ``willContinue`` ends it. Deltas name their call only where calls are interleaved.

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
_MAX_INDEX: Final = 10_000


class PartialCalls:
    """The calls of one response with incomplete arguments."""

    def __init__(self) -> None:
        self._open: list[dict[str, Any]] = []

    @property
    def are_open(self) -> bool:
        """Whether a call waits for more arguments."""
        return bool(self._open)

    def feed(self, part: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read a part with a function call.

        Args:
            part: from the service.

        Returns:
            The complete part: the same part if complete, or the part that it completes; otherwise None.

        Raises:
            ProviderError: the arguments cannot be assembled.
        """
        call_delta: Mapping[str, Any] = part["functionCall"]
        will_continue = call_delta.get("willContinue") is True
        open_part = self._find_open_part(call_delta)
        if open_part is None and not will_continue and "partialArgs" not in call_delta:
            return dict(part)
        part_in_progress: dict[str, Any] = {**part, "functionCall": {}} if open_part is None else open_part
        if open_part is None:
            self._open.append(part_in_progress)
        else:
            part_in_progress.update({name: value for name, value in part.items() if name != "functionCall"})
        call = cast("dict[str, Any]", part_in_progress["functionCall"])
        call.update(
            {name: call_delta[name] for name in call_delta if name not in {"args", "partialArgs", "willContinue"}}
        )
        args = call.setdefault("args", {})
        args.update(call_delta.get("args") or {})
        for partial_arg in call_delta.get("partialArgs") or ():
            _put(args, partial_arg)
        if will_continue:
            return None
        self._open.remove(part_in_progress)
        return part_in_progress

    def _find_open_part(self, call_delta: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the open call of a delta; a delta with another name or id starts a call."""
        for open_part in reversed(self._open):
            call = open_part["functionCall"]
            if all(call_delta.get(name) in {None, call.get(name)} for name in ("id", "name")):
                return open_part
        return None


def _put(args: dict[str, Any], partial_arg: Mapping[str, Any]) -> None:
    path = str(partial_arg.get("jsonPath") or "")
    steps = _steps(path)
    value: Any = next((partial_arg[name] for name in _VALUES if name in partial_arg), None)
    parent: Any = args
    try:
        for step, next_step in pairwise(steps):
            parent = _get_or_create(parent, step, [] if isinstance(next_step, int) else {})
        last = steps[-1]
        current_value = _at(parent, last)
        # A text is streamed in fragments; any other value is sent once.
        _set(
            parent, last, current_value + value if isinstance(current_value, str) and isinstance(value, str) else value
        )
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise _invalid_path_error(path) from error


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 1 if path.startswith("$") else -1
    while 0 < position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            break
        index = match["index"]
        steps.append(int(index) if index is not None else match["name"] or match["quoted"] or "")
        position = match.end()
    if position != len(path) or not steps or any(isinstance(step, int) and step > _MAX_INDEX for step in steps):
        raise _invalid_path_error(path)
    return steps


def _at(parent: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return parent[step] if step < len(parent) else None
    return parent.get(step)


def _set(parent: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        parent.extend([None] * (step + 1 - len(parent)))
    parent[step] = value


def _get_or_create(parent: Any, step: str | int, empty: Any) -> Any:
    if (child := _at(parent, step)) is None:
        _set(parent, step, child := empty)
    return child


def _invalid_path_error(path: str) -> ProviderError:
    return ProviderError(
        f"the model's service streamed an argument for the path {path!r}, which cannot be read: turn off "
        "stream_function_call_arguments",
        retryable=False,
    )
