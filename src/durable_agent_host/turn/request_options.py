"""The options of its agent that a client may set for a turn."""

import json
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final, cast

from durable_agent_host.errors import RegistrationError, RequestError

AllowedOptions = Mapping[str, bool | Sequence[Any]]
"""Name of an option → True for any value, or the allowed values."""

_RESERVED: Final = frozenset({"response_format", "tools", "tool_choice", "conversation_id", "instructions"})
"""Options that a request sets in other ways, or that only the app may set."""

_MAX_BYTES: Final = 4096
"""Of all options of a request, as JSON."""
_MAX_NUMBER: Final = 2**31 - 1
"""The largest number of an option; the services take smaller ones."""


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and -_MAX_NUMBER <= value <= _MAX_NUMBER


def _is_integer(value: Any, minimum: int, maximum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= maximum


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_NUMBER: Final = (_is_number, f"a number from {-_MAX_NUMBER} to {_MAX_NUMBER}")
_FLAG: Final = (_is_flag, "true or false")
_TEXT: Final = (_is_text, "a text")
_COMMON: Final[Mapping[str, tuple[Callable[[Any], bool], str]]] = {
    "model": _TEXT,
    "temperature": _NUMBER,
    "top_p": _NUMBER,
    "max_tokens": (lambda value: _is_integer(value, 1, _MAX_NUMBER), f"a whole number from 1 to {_MAX_NUMBER}"),
    "stop": (
        lambda value: _is_text(value) or (isinstance(value, list) and all(map(_is_text, cast("list[Any]", value)))),
        "a text, or a list of texts",
    ),
    "seed": (lambda value: _is_integer(value, -(2**63), 2**63 - 1), "a whole number of at most 64 bits"),
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
        RequestError: it is not an object, or has an option or a value that is not allowed, or a value that the option
            does not take; names it.
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
            raise _unfit(name, value, f"allowed are {allowed_text}")
        if value is not None and name in _COMMON:
            fits, expectation = _COMMON[name]
            if not fits(value):
                raise _unfit(name, value, f"give {expectation}")
    return named_options


def _unfit(name: str, value: Any, hint: str) -> RequestError:
    return RequestError(f"the option {name!r} is {json.dumps(value)[:200]}: {hint}")


def _is_same(value: Any, allowed_value: Any) -> bool:
    """Compare as JSON does, where true is not 1."""
    return type(value) is type(allowed_value) and value == allowed_value
