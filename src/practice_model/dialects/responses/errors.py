"""Errors of the Responses API."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from practice_model.dialects.responses.items import Json


@dataclass(frozen=True)
class HttpError:
    """An HTTP error instead of a response; `retry_after` is in seconds."""

    status: int
    message: str
    code: str | None = None
    param: str | None = None
    kind: str = "invalid_request_error"
    retry_after: float | None = None

    @property
    def body(self) -> Json:
        """The error body of the API."""
        error_fields = {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}
        return {"error": error_fields}


def missing_parameter_error(path: str) -> HttpError:
    return HttpError(400, f"Missing required parameter: '{path}'.", "missing_required_parameter", path)


_JSON_TYPES: dict[type, str] = {
    dict: "an object",
    list: "an array",
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
}


def wrong_type_error(path: str, types: Sequence[type], value: Any) -> HttpError:
    """Return the error for a value of the wrong JSON type."""
    expected_types = " or ".join(
        _JSON_TYPES[expected_type].split()[-1] if len(types) > 1 else _JSON_TYPES[expected_type]
        for expected_type in types
    )
    expected_types = f"one of {expected_types}" if len(types) > 1 else expected_types
    actual_type = next((name for json_type, name in _JSON_TYPES.items() if type(value) is json_type), "null")
    return HttpError(
        400,
        f"Invalid type for '{path}': expected {expected_types}, but got {actual_type} instead.",
        "invalid_type",
        path,
    )


def invalid_value_error(value: str, values: Sequence[str], path: str) -> HttpError:
    """Return the error for a value outside a closed set."""
    supported_values = ", ".join(f"'{name}'" for name in values[:-1]) + f", and '{values[-1]}'"
    return HttpError(400, f"Invalid value: '{value}'. Supported values are: {supported_values}.", "invalid_value", path)


def pattern_error(path: str) -> HttpError:
    """Return the error for a function name with other characters than the API allows."""
    reason = "string does not match pattern. Expected a string that matches the pattern '^[a-zA-Z0-9_-]+$'."
    return HttpError(400, f"Invalid '{path}': {reason}", "invalid_value", path)


def length_error(path: str, value: str, maximum: int) -> HttpError:
    """Return the error for a string that is too long."""
    reason = (
        f"string too long. Expected a string with maximum length {maximum}, "
        f"but got a string with length {len(value)} instead."
    )
    return HttpError(400, f"Invalid '{path}': {reason}", "string_above_max_length", path)
