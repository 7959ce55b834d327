"""The schema of a session's document: upstream's shape with our parts in it.

It requires what readers rely on, and ignores what this version does not know: other fields, and contents, entries and
extensions of other types. `durable_agent_host.codec.wire_types` has the same shapes as types.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final, cast, get_args

from agent_framework import AgentSession

from durable_agent_host.codec.content import CONTENT_CODECS, MAPPED, decode_agent_session
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import REQUEST, RESPONSE, decode_messages, decode_response
from durable_agent_host.codec.schema_validation import (
    ANYTHING,
    Path,
    Schema,
    SchemaViolation,
    find_limit_violations,
    find_violations,
    format_json_path,
)
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import ITEM, STAMP
from durable_agent_host.model.turn import TurnStatus

SOURCE: Final = "durable_agent_host"
"""Key in the state of the framework's session: what a model's service has lost."""

_NONE: Final = type(None)
_TEXT: Final = Schema((str,))
_TEXT_OR_NULL: Final = Schema((str, _NONE))
_SCALAR: Final = Schema((str, int, float, bool, _NONE))
_NUMBER: Final = Schema((int, float))
_NUMBER_OR_NULL: Final = Schema((int, float, _NONE))
_FLAG: Final = Schema((bool, _NONE))
_OBJECT: Final = Schema((dict, _NONE))
_LIST: Final = Schema((list, _NONE))

_OBJECTS: Final = Schema((list, _NONE), each=Schema((dict,)))
_ITEM: Final = Schema((dict,), {"provider": _TEXT_OR_NULL, "type": _TEXT_OR_NULL, "id": _TEXT_OR_NULL, ITEM: _OBJECT})
_PROPERTIES: Final = Schema((dict, _NONE), {STAMP: _ITEM})
CONTENT_FIELDS: Final[dict[str, Schema]] = {
    **dict.fromkeys(("text", "protected_data", "uri", "media_type", "message", "call_id", "name"), _TEXT_OR_NULL),
    **dict.fromkeys(("exception", "file_id", "vector_store_id", "id"), _TEXT_OR_NULL),
    **dict.fromkeys(("error_code", "error_details", "image_id", "status", "stdout", "stderr"), _SCALAR),
    **dict.fromkeys(("tool_name", "server_name", "consent_link", "merge_mode"), _SCALAR),
    **dict.fromkeys(("timeout_ms", "max_output_length", "exit_code"), _SCALAR),
    **dict.fromkeys(("informational_only", "timed_out", "hosted", "user_input_request", "approved"), _FLAG),
    **dict.fromkeys(("usage_details", "screenshot", "function_call"), _OBJECT),
    **dict.fromkeys(("items", "inputs"), Schema((list, _NONE), each=Schema((dict,), {"type": _TEXT}, ("type",)))),
    **dict.fromkeys(("annotations", "actions", "pending_safety_checks", "acknowledged_safety_checks"), _OBJECTS),
    "additional_properties": _PROPERTIES,
    "commands": _LIST,
    "arguments": Schema((str, dict, _NONE)),
    **dict.fromkeys(("result", "output", "outputs"), ANYTHING),
}
"""The values of the fields of the framework's contents, by name."""

_CONTENT_EXTENSION: Final = Schema(
    (dict,), CONTENT_FIELDS | {"argumentsForm": _TEXT_OR_NULL, "argumentsText": _TEXT_OR_NULL}
)
_MESSAGE_EXTENSION: Final = Schema((dict,), {"messageId": _TEXT_OR_NULL, "additionalProperties": _OBJECT})


def _extension_schema(host_schema: Schema) -> Schema:
    """Return the shape of an ``extensionData`` in which our part has a shape."""
    return Schema((dict, _NONE), {EXTENSION: host_schema})


_COUNTS: Final = dict.fromkeys(("inputTokenCount", "outputTokenCount", "totalTokenCount"), _NUMBER_OR_NULL)
_USAGE: Final = Schema((dict, _NONE), _COUNTS | {"extensionData": _OBJECT})
_UPSTREAMS: Final[dict[str, dict[str, Schema]]] = {
    **{wire_type: {wire: CONTENT_FIELDS[name] for name, wire in row.items()} for wire_type, row in MAPPED.values()},
    "functionCall": {"callId": _TEXT_OR_NULL, "name": _TEXT_OR_NULL, "arguments": CONTENT_FIELDS["arguments"]},
    "usage": {"usage": _USAGE},
}
_CONTENT_OBJECT: Final = Schema((dict,), CONTENT_FIELDS)


_CONTENT_EXTENSION_DATA: Final = {"extensionData": _extension_schema(_CONTENT_EXTENSION)}
_CONTENTS: Final = {
    codec.wire_type: Schema((dict,), _UPSTREAMS[codec.wire_type] | _CONTENT_EXTENSION_DATA)
    if codec.wire_type in _UPSTREAMS
    else Schema((dict,), {"content": _CONTENT_OBJECT}, ("content",))
    for codec in CONTENT_CODECS.values()
}


def _content_of_type(content: Any) -> Schema | None:
    kind: Any = content.get("$type")
    return _CONTENTS.get(kind) if isinstance(kind, str) else None


_CONTENT: Final = Schema((dict,), {"$type": _TEXT}, ("$type",), further=_content_of_type)
_MESSAGE: Final = Schema(
    (dict,),
    {
        "role": _TEXT,
        "contents": Schema((list,), each=_CONTENT),
        "authorName": _TEXT_OR_NULL,
        "createdAt": _TEXT_OR_NULL,
        "extensionData": _extension_schema(_MESSAGE_EXTENSION),
    },
    ("role", "contents"),
)
_ENTRY_EXTENSION: Final = Schema(
    (dict,),
    {
        "additionalProperties": _OBJECT,
        "responseId": _TEXT_OR_NULL,
        "agentId": _TEXT_OR_NULL,
        "finishReason": _TEXT_OR_NULL,
    },
)
_KNOWN_ENTRY: Final = Schema(
    (dict,),
    {
        "createdAt": _TEXT_OR_NULL,
        "messages": Schema((list, _NONE), each=_MESSAGE),
        "responseType": _TEXT_OR_NULL,
        "responseSchema": _OBJECT,
        "orchestrationId": _TEXT_OR_NULL,
        "usage": _USAGE,
        "extensionData": _extension_schema(_ENTRY_EXTENSION),
    },
)


def _entry_of_type(entry: Any) -> Schema | None:
    return _KNOWN_ENTRY if entry.get("$type") in (REQUEST, RESPONSE) else None


_ENTRY: Final = Schema((dict,), {"$type": _TEXT, "correlationId": _TEXT_OR_NULL}, ("$type",), further=_entry_of_type)
_STATS: Final = Schema((list, _NONE), each=_NUMBER)
_ERROR: Final = Schema(
    (dict, _NONE),
    {"retryable": Schema((bool,)), "retry_after_seconds": _NUMBER_OR_NULL, "running_turn_id": _TEXT_OR_NULL}
    | dict.fromkeys(("type", "message", "category"), _TEXT),
    ("type", "message"),
)
_RECEIPT: Final = Schema(
    (dict,),
    {"turnId": _TEXT, "endedAt": _TEXT, "requestHash": _TEXT, "error": _ERROR, "stats": _STATS}
    | {"status": Schema((str,), choices=get_args(TurnStatus))}
    | {"spent": Schema((list, _NONE), each=Schema((int, float, _NONE))), "joinedTurnId": _TEXT},
    ("turnId",),
)
_REQUEST: Final = Schema(
    (dict,),
    {
        **dict.fromkeys(("agent", "session_id", "turn_id", "message", "role", "policy", "created_at"), _TEXT),
        **dict.fromkeys(("response_format", "options"), _OBJECT),
        "request_hash": _TEXT,
        **dict.fromkeys(("orchestration_id", "principal", "tenant", "traceparent"), _TEXT_OR_NULL),
        "enable_tool_calls": _FLAG,
        "owner": _OBJECT,
    },
)
_AGENT_SESSION: Final = Schema(
    (dict, _NONE),
    {
        "session_id": _TEXT,
        "service_session_id": Schema((str, dict, _NONE)),
        "state": Schema((dict, _NONE), {SOURCE: _OBJECT}),
    },
    ("session_id",),
)
_HOST_FIELDS: Final = {
    "agentSession": _AGENT_SESSION,
    "owner": Schema((dict, _NONE), {"principal": _TEXT, "tenant": _TEXT}, ("principal",)),
    "running": _TEXT_OR_NULL,
    "queue": Schema((list, _NONE), each=_TEXT),
    "interrupting": _TEXT_OR_NULL,
    "refused": Schema((list, _NONE), each=_TEXT),
    "erasing": _TEXT_OR_NULL,
    "usedAt": _TEXT_OR_NULL,
    "requests": Schema((dict, _NONE), each=_REQUEST),
    "spent": Schema((dict, _NONE), dict.fromkeys(("tokens", "cost", "model_calls", "tool_calls", "seconds"), _NUMBER)),
    "appState": _OBJECT,
}


def _document(entry: Schema, receipt: Schema) -> Schema:
    host_schema = Schema((dict, _NONE), _HOST_FIELDS | {"receipts": Schema((list, _NONE), each=receipt)})
    history = Schema((list,), each=entry)
    data = {"conversationHistory": history, "extensionData": Schema((dict, _NONE), {EXTENSION: host_schema})}
    required = ("schemaVersion", "data")
    return Schema((dict,), {"data": Schema((dict,), data, ("conversationHistory",))}, required)


_DOCUMENT: Final = _document(_ENTRY, _RECEIPT)
_OUTLINE: Final = _document(
    Schema((dict,), {"correlationId": _TEXT_OR_NULL}), Schema((dict,), {"turnId": _TEXT}, ("turnId",))
)


def find_outline_violations(document: Any) -> Iterator[SchemaViolation]:
    """Find where a document lacks the shape that admission and commit rely on, which read no message.

    Yields:
        The faults, the first one first.
    """
    return find_violations(document, _OUTLINE)


def find_schema_violations(document: Any) -> list[SchemaViolation]:
    """List everything that makes a document unreadable, one by one where it lacks the shape of a session.

    Returns:
        The faults; none for a readable document, whatever unknown values it contains.
    """
    violations = [*find_limit_violations(document)] or [*find_violations(document, _DOCUMENT)]
    return violations or [*_find_unreadable_parts(cast("dict[str, Any]", document))]


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


def _find_unreadable_parts(document: dict[str, Any]) -> Iterator[SchemaViolation]:
    """Read what the schema leaves to its readers."""
    data = cast("dict[str, Any]", document["data"])
    for index, entry in enumerate(cast("list[Any]", data["conversationHistory"])):
        is_known_type = entry.get("$type") in (REQUEST, RESPONSE)
        if is_known_type and (reason := find_entry_violation(entry)) is not None:
            path = ("data", "conversationHistory", index)
            yield SchemaViolation(path, reason, path)
    agent_session = extension_of(data).get("agentSession")
    if agent_session is not None:
        path = ("data", "extensionData", EXTENSION, "agentSession")
        try:
            decode_agent_session(copy.deepcopy(agent_session), AgentSession)
        except CorruptStateError as error:
            yield SchemaViolation(path, str(error), path)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CorruptStateError) else f"{type(error).__name__}: {error}"


def shift_list_index(path: Path, first: int, list_path: Path = ("data", "conversationHistory")) -> Path:
    """Shift the index of a list in a path, for a part of a document."""
    index = path[len(list_path)] if len(path) > len(list_path) and path[: len(list_path)] == list_path else None
    return (*list_path, first + index, *path[len(list_path) + 1 :]) if isinstance(index, int) else path


def format_violations(violations: list[SchemaViolation], max_violations: int = 5) -> str:
    """Format faults as one sentence.

    Returns:
        The places and their problems.
    """
    more = f"; and {len(violations) - max_violations} more" if len(violations) > max_violations else ""
    return (
        "; ".join(
            f"{format_json_path(violation.path)} {violation.problem}" for violation in violations[:max_violations]
        )
        + more
    )
