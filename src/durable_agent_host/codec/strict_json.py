"""JSON as its standard has it: Python also reads and writes NaN and Infinity, which other readers refuse. Pure."""

import json
from json.encoder import encode_basestring_ascii
from math import isfinite
from typing import Any, Final, cast

_ENCODER: Final = json.JSONEncoder(allow_nan=False)


def parse_strict(text: str | bytes) -> Any:
    """Parse JSON.

    Guarantee: pure.

    Args:
        text: of one value.

    Raises:
        ValueError: it is not JSON, or has NaN, Infinity or a number that is too large to be read.
        RecursionError: it is nested too deeply.
    """
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def encode_strict(value: Any) -> str:
    """Encode a value for a client, as `json.dumps` does, with null for numbers that are not finite.

    Guarantee: pure; only ASCII.

    Args:
        value: JSON, or a value that Python reads as JSON.
    """
    if type(value) is str:
        return encode_basestring_ascii(value)
    try:
        return _ENCODER.encode(value)
    except ValueError:
        return _ENCODER.encode(with_nulls(value))


def with_nulls(value: Any) -> Any:
    """Return a copy of a JSON value with null for numbers that are not finite. Guarantee: pure."""
    if isinstance(value, dict):
        return {name: with_nulls(one) for name, one in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [with_nulls(one) for one in cast("list[Any]", value)]
    return None if isinstance(value, float) and not isfinite(value) else value


def _refuse(word: str) -> Any:
    raise ValueError(f"{word} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number
