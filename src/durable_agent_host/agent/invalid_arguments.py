"""Tool calls with unreadable arguments: not JSON, not an object, too deep, with numbers that are too long or classes.

The framework parses arguments before any middleware runs. For some it fails the run; for others it substitutes
arguments, with which a tool that needs none would run. Here such a call reaches the framework without arguments, and
the model is told of the error instead of running the tool.
"""

import json
from collections.abc import Iterator
from typing import Any, Final

from agent_framework import ChatResponse, Content

from durable_agent_host.codec.schema_validation import find_limit_violations
from durable_agent_host.codec.strict_json import MAX_LEVELS, has_python_class, is_nested_too_deeply

_PARSING_FAILED: Final = "Error: Argument parsing failed."
"""The framework's own words; a reason follows where the framework would have failed the run."""


_TOO_DEEP: Final = f"{_PARSING_FAILED} They are nested more than {MAX_LEVELS} levels deep: make them flatter."
_NAMES_CLASS: Final = (
    f"{_PARSING_FAILED} An object has '__class__', '__module__' and '__data__': give the fields other names."
)


class _UnreadableCall(Content):
    """A call that keeps its raw arguments and parses them as none."""

    def parse_arguments(self) -> dict[str, Any | None] | None:
        """Return no arguments."""
        return {}


def extract_invalid_calls(response: ChatResponse[Any]) -> Iterator[tuple[str, str]]:
    """Find the calls of a response whose arguments cannot be read, and keep the framework from parsing them.

    Yields:
        The id of each such call, and the result for the model.
    """
    for message in response.messages:
        for content in message.contents:
            if content.type == "function_call" and (result_text := _find_argument_error(content.arguments)) is not None:
                content.__class__ = _UnreadableCall
                yield str(content.call_id), result_text


def _find_argument_error(arguments: Any) -> str | None:
    if isinstance(arguments, dict):  # some services send no text; `encode_answer` checks the numbers
        return _find_limit(arguments)
    if not isinstance(arguments, str) or not arguments:
        return None
    try:
        value = json.loads(arguments)
    except RecursionError:
        return _TOO_DEEP
    except json.JSONDecodeError:
        return _PARSING_FAILED
    except ValueError as error:  # a number with more digits than Python reads
        return f"{_PARSING_FAILED} {error}."
    if not isinstance(value, dict):
        return _PARSING_FAILED
    if (limit := _find_limit(value)) is not None:
        return limit
    violation = next(find_limit_violations(value), None)
    return f"{_PARSING_FAILED} {violation.location} {violation.problem}." if violation is not None else None


def _find_limit(arguments: Any) -> str | None:
    if is_nested_too_deeply(arguments):
        return _TOO_DEEP
    return _NAMES_CLASS if has_python_class(arguments) else None
