"""The options of its agent that a client may set for a turn."""

import json
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from durable_agent_host.errors import RegistrationError, RequestError

AllowedOptions = Mapping[str, bool | Sequence[Any]]
"""Name of an option → True for any value, or the allowed values."""

_RESERVED: Final = frozenset({"response_format", "tools", "tool_choice", "conversation_id"})
"""Options that a request sets in other ways, or that only the app may set."""

_MAX_BYTES: Final = 4096
"""Of all options of a request, as JSON."""


def check_allowed(allowed_options: AllowedOptions) -> AllowedOptions:
    """Check an app's list of options.

    Raises:
        RegistrationError: it allows an option that clients may not set, or has neither True nor a list of values.
    """
    untyped_options: Any = allowed_options
    if not isinstance(untyped_options, Mapping):
        raise RegistrationError(
            f"allowed_options is {untyped_options!r}: give a mapping, such as {{'temperature': True}}"
        )
    for name, values in allowed_options.items():
        if name in _RESERVED:
            raise RegistrationError(f"allowed_options has {name!r}, which is no option for clients: take it out")
        if values is not True and (isinstance(values, str | bool) or not isinstance(cast("Any", values), Sequence)):
            raise RegistrationError(f"allowed_options[{name!r}] is {values!r}: give True, or a list of values")
    return allowed_options


def check_options(options: Any, allowed_options: AllowedOptions) -> dict[str, Any]:
    """Check a client's options.

    Returns:
        The options; empty when there are none.

    Raises:
        RequestError: it is not an object, or has an option or a value that is not allowed; names it.
    """
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise RequestError("'options' has to be an object with names and values")
    named_options = cast("dict[str, Any]", options)
    try:
        size = len(json.dumps(named_options, ensure_ascii=False, allow_nan=False).encode())
    except ValueError:
        raise RequestError("'options' has a number that is not finite, or half of a surrogate pair") from None
    if size > _MAX_BYTES:
        raise RequestError(f"'options' has more than {_MAX_BYTES} bytes as JSON: send less")
    for name, value in named_options.items():
        if name not in allowed_options:
            allowed_text = (
                f"allowed are {', '.join(sorted(allowed_options))}" if allowed_options else "this agent allows none"
            )
            similar_names = get_close_matches(name, allowed_options, n=1)
            suggestion = f"did you mean {similar_names[0]!r}? " if similar_names else ""
            raise RequestError(f"the option {name!r} is not allowed: {suggestion}{allowed_text}")
        values = allowed_options[name]
        if not isinstance(values, bool) and not any(_is_same(value, allowed_value) for allowed_value in values):
            allowed_text = ", ".join(json.dumps(allowed_value, default=str) for allowed_value in values)
            raise RequestError(f"the option {name!r} is {json.dumps(value)[:200]}: allowed are {allowed_text}")
    return named_options


def _is_same(value: Any, allowed_value: Any) -> bool:
    """Compare as JSON does, where true is not 1."""
    return type(value) is type(allowed_value) and value == allowed_value
