"""The options of its agent that a client may set for a turn. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from durable_agent_host.errors import RegistrationError, RequestError

AllowedOptions = Mapping[str, bool | Sequence[Any]]
"""Name of an option → True for any value, or the allowed values."""

_OURS: Final = frozenset({"response_format", "tools", "tool_choice", "conversation_id", "instructions"})
"""Options that a request sets in other ways, or that only the app may set."""

_MAX_BYTES: Final = 4096
_MOST: Final = 2**31 - 1
"""The largest number of an option; the services take smaller ones."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MOST <= value <= _MOST


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_NUMBER: Final = (_is_number, f"a number from {-_MOST} to {_MOST}")
_FLAG: Final = (_is_flag, "true or false")
_TEXT: Final = (_is_text, "a text")
_COMMON: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "model": _TEXT,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "max_tokens": (lambda value: _is_whole(value, 1, _MOST), f"a whole number from 1 to {_MOST}"),
    "stop": (
        lambda value: _is_text(value) or (isinstance(value, list) and all(map(_is_text, cast("list[Any]", value)))),
        "a text, or a list of texts",
    ),
    "seed": (lambda value: _is_whole(value, -(2**63), 2**63 - 1), "a whole number of at most 64 bits"),
    "logit_bias": (
        lambda value: isinstance(value, dict) and all(map(_is_number, cast("dict[str, Any]", value).values())),
        "an object with numbers",
    ),
    "frequency_penalty": _NUMBER,
    "presence_penalty": _NUMBER,
    "allow_multiple_tool_calls": _FLAG,
    "metadata": (lambda value: isinstance(value, dict), "an object"),
    "user": _TEXT,
    "store": _FLAG,
}
"""An option of the framework's `ChatOptions` → whether a value fits it, and which do; null sets none of them."""


def check_allowed(allowed: AllowedOptions) -> AllowedOptions:
    """Check an app's list of options.

    Guarantee: pure.

    Args:
        allowed: the app's.

    Returns:
        The same.

    Raises:
        RegistrationError: it allows an option that clients may not set, or has neither True nor a list of values.
    """
    given: Any = allowed
    if not isinstance(given, Mapping):
        raise RegistrationError(f"allowed_options is {given!r}: give a mapping, such as {{'temperature': True}}")
    for name, values in allowed.items():
        if name in _OURS:
            raise RegistrationError(f"allowed_options has {name!r}, which is no option for clients: take it out")
        if values is not True and (isinstance(values, str | bool) or not isinstance(cast("Any", values), Sequence)):
            raise RegistrationError(f"allowed_options[{name!r}] is {values!r}: give True, or a list of values")
    return allowed


def check_options(options: Any, allowed: AllowedOptions) -> dict[str, Any]:
    """Check a client's options.

    Guarantee: pure.

    Args:
        options: of the request's body, or None.
        allowed: by the app, for the agent.

    Returns:
        The options; empty when there are none.

    Raises:
        RequestError: it is not an object, or has an option or a value that is not allowed, or a value that the option
            does not take; names it.
    """
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise RequestError("'options' has to be an object with names and values")
    given = cast("dict[str, Any]", options)
    try:
        size = len(json.dumps(given, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        raise RequestError("'options' has a number that is not finite, or half of a surrogate pair") from None
    if size > _MAX_BYTES:
        raise RequestError(f"'options' has more than {_MAX_BYTES} bytes as JSON: send less")
    for name, value in given.items():
        if name not in allowed:
            listed = f"allowed are {', '.join(sorted(allowed))}" if allowed else "this agent allows none"
            near = get_close_matches(name, allowed, n=1)
            meant = f"did you mean {near[0]!r}? " if near else ""
            raise RequestError(f"the option {name!r} is not allowed: {meant}{listed}")
        values = allowed[name]
        if not isinstance(values, bool) and not any(_is_same(value, one) for one in values):
            listed = ", ".join(json.dumps(one, default=str) for one in values)
            raise _unfit(name, value, f"allowed are {listed}")
        if value is not None and name in _COMMON:
            fits, what = _COMMON[name]
            if not fits(value):
                raise _unfit(name, value, f"give {what}")
    return given


def _unfit(name: str, value: Any, advice: str) -> RequestError:
    return RequestError(f"the option {name!r} is {json.dumps(value)[:200]}: {advice}")


def _is_same(value: Any, allowed: Any) -> bool:
    """Compare as JSON does, where true is not 1."""
    return type(value) is type(allowed) and value == allowed
