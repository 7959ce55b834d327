"""Where a stored document of a session differs from its schema: `durable_agent_host.codec.wire_types`.

The schema requires what readers rely on, and ignores what this version does not know: other fields, and contents,
entries and extensions of other types.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final, NotRequired, TypedDict, cast

from agent_framework import AgentSession
from pydantic import TypeAdapter, ValidationError

from durable_agent_host.codec.content import decode_agent_session
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import decode_messages, decode_response
from durable_agent_host.codec.strict_json import JsonViolation, Path, find_limit_violations
from durable_agent_host.codec.wire_types import EXTENSION, REQUEST, RESPONSE, SessionDocumentWire, SessionFieldsWire
from durable_agent_host.errors import CorruptStateError


class _OutlineEntryWire(TypedDict):
    correlationId: NotRequired[str | None]


class _OutlineReceiptWire(TypedDict):
    turnId: str


class _OutlineExtensionWire(SessionFieldsWire, total=False):
    receipts: list[_OutlineReceiptWire] | None


class _OutlineExtensionsWire(TypedDict, total=False):
    durableAgentHost: _OutlineExtensionWire | None


class _OutlineDataWire(TypedDict):
    conversationHistory: list[_OutlineEntryWire]
    extensionData: NotRequired[_OutlineExtensionsWire | None]


class _OutlineWire(TypedDict):
    schemaVersion: str
    data: _OutlineDataWire


_DOCUMENT: Final = TypeAdapter(SessionDocumentWire)
_OUTLINE: Final = TypeAdapter(_OutlineWire)
_HISTORY: Final[Path] = ("data", "conversationHistory")
_MAX_VIOLATIONS: Final = 5
_RECEIPTS: Final[Path] = ("data", "extensionData", EXTENSION, "receipts")


def find_outline_violation(document: Any) -> JsonViolation | None:
    """Find where a document lacks the shape that admission and commit rely on, which read no message."""
    try:
        _OUTLINE.validate_python(document, strict=True)
    except ValidationError as error:
        return _violations_of(error, document)[0]
    return None


def find_schema_violations(document: Any) -> list[JsonViolation]:
    """List everything that makes a document unreadable, one by one where it lacks the shape of a session.

    Returns:
        The faults; none for a readable document, whatever unknown values it contains.
    """
    if limit_violations := [*find_limit_violations(document)]:
        return limit_violations
    try:
        _DOCUMENT.validate_python(document, strict=True)
    except ValidationError as error:
        return _violations_of(error, document)
    return [*_find_unreadable_parts(cast("dict[str, Any]", document))]


def unit_of(path: Path) -> Path:
    """Return the smallest part of a document that can be left out to remove a violation; empty for all of it."""
    if path[:2] == _HISTORY:
        return path[:3] if len(path) > len(_HISTORY) else ()
    if path[:2] != _RECEIPTS[:2]:
        return ()
    return path[:5] if path[:4] == _RECEIPTS else path[:4]


def _violations_of(error: ValidationError, document: Any) -> list[JsonViolation]:
    """List the violations of an error, each location once: an alternative of a type has its own."""
    violations: dict[Path, JsonViolation] = {}
    for details in error.errors(include_url=False, include_context=False, include_input=False):
        path = details["loc"] if details["type"] == "missing" else _path_within(document, details["loc"])
        violations.setdefault(path, JsonViolation(path, f"is not valid: {details['msg']}"))
    return [*violations.values()]


def _path_within(document: Any, location: Path) -> Path:
    """Return a location without the names that alternatives of a type add at its end."""
    value = document
    for index, segment in enumerate(location):
        try:
            value = value[segment]
        except (LookupError, TypeError):
            return location[:index]
    return location


def find_entry_violation(entry: Any) -> str | None:
    """Return why an entry of a known type cannot be read, by reading it.

    Returns:
        The reason; None when it can be read.
    """
    try:
        decode_messages([entry])
        if entry.get("$type") == RESPONSE:
            decode_response(entry).to_dict()
    except Exception as error:  # noqa: BLE001 - any error of a reader means unreadable
        return f"cannot be read: {_reason(error)}"
    return None


def _find_unreadable_parts(document: dict[str, Any]) -> Iterator[JsonViolation]:
    """Read what the schema leaves to its readers."""
    data = cast("dict[str, Any]", document["data"])
    for index, entry in enumerate(cast("list[Any]", data["conversationHistory"])):
        is_known_type = entry.get("$type") in (REQUEST, RESPONSE)
        if is_known_type and (reason := find_entry_violation(entry)) is not None:
            path = (*_HISTORY, index)
            yield JsonViolation(path, reason)
    agent_session = extension_of(data).get("agentSession")
    if agent_session is not None:
        path = (*_RECEIPTS[:3], "agentSession")
        try:
            decode_agent_session(copy.deepcopy(agent_session), AgentSession)
        except CorruptStateError as error:
            yield JsonViolation(path, str(error))


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CorruptStateError) else f"{type(error).__name__}: {error}"


def format_violations(violations: list[JsonViolation]) -> str:
    """Format faults as one sentence.

    Returns:
        The places and their problems.
    """
    more = f"; and {len(violations) - _MAX_VIOLATIONS} more" if len(violations) > _MAX_VIOLATIONS else ""
    return "; ".join(f"{violation.location} {violation.problem}" for violation in violations[:_MAX_VIOLATIONS]) + more
