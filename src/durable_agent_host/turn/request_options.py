"""The options of its agent that a client may set for a turn. Pure."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from durable_agent_host.errors import RegistrationError, RequestError

AllowedOptions = Mapping[str, bool | Sequence[Any]]
"""Name of an option → True for any value, or the allowed values."""

_OURS: Final = frozenset({"response_format", "tools", "tool_choice", "conversation_id", "instructions"})
"""Options that a request sets in other ways, or that only the app may set."""

_MAX_BYTES: Final = 4096


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
        RequestError: it is not an object, or has an option or a value that is not allowed; names it.
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
            raise RequestError(f"the option {name!r} is {json.dumps(value)[:200]}: allowed are {listed}")
    return given


def _is_same(value: Any, allowed: Any) -> bool:
    """Compare as JSON does, where true is not 1."""
    return type(value) is type(allowed) and value == allowed
