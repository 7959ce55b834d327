"""The schema of a session's document: upstream's shape with our parts in it. Pure.

It requires what readers rely on, and ignores what this version does not know: other fields, and contents, entries and
extensions of other types. `durable_agent_host.codec.wire_types` has the same shapes as types.
"""

import copy
from collections.abc import Iterator
from typing import Any, Final, cast

from agent_framework import AgentSession

from durable_agent_host.codec.content import CONTENT_CODECS, MAPPED
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import REQUEST, RESPONSE, decode_messages, decode_response
from durable_agent_host.codec.schema_validation import ANYTHING, Fault, Path, Shape, find_faults, find_limits, place_of
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import STAMP

SOURCE: Final = "durable_agent_host"
"""Where the framework's session remembers what a model's service has forgotten."""

_NONE: Final = type(None)
_TEXT: Final = Shape((str,))
_TEXT_OR_NULL: Final = Shape((str, _NONE))
_SCALAR: Final = Shape((str, int, float, bool, _NONE))
_NUMBER: Final = Shape((int, float))
_NUMBER_OR_NULL: Final = Shape((int, float, _NONE))
_FLAG: Final = Shape((bool, _NONE))
_OBJECT: Final = Shape((dict, _NONE))
_LIST: Final = Shape((list, _NONE))

_OBJECTS: Final = Shape((list, _NONE), each=Shape((dict,)))
_STAMP: Final = Shape((dict,), {"provider": _TEXT_OR_NULL, "type": _TEXT_OR_NULL, "id": _TEXT_OR_NULL})
_PROPERTIES: Final = Shape((dict, _NONE), {STAMP: _STAMP})
CONTENT_FIELDS: Final[dict[str, Shape]] = {
    **dict.fromkeys(("text", "protected_data", "uri", "media_type", "message", "call_id", "name"), _TEXT_OR_NULL),
    **dict.fromkeys(("exception", "file_id", "vector_store_id", "id"), _TEXT_OR_NULL),
    **dict.fromkeys(("error_code", "error_details", "image_id", "status", "stdout", "stderr"), _SCALAR),
    **dict.fromkeys(("tool_name", "server_name", "consent_link", "merge_mode"), _SCALAR),
    **dict.fromkeys(("timeout_ms", "max_output_length", "exit_code"), _SCALAR),
    **dict.fromkeys(("informational_only", "timed_out", "hosted", "user_input_request", "approved"), _FLAG),
    **dict.fromkeys(("usage_details", "screenshot", "function_call"), _OBJECT),
    **dict.fromkeys(("items", "inputs", "annotations", "actions"), _OBJECTS),
    **dict.fromkeys(("pending_safety_checks", "acknowledged_safety_checks"), _OBJECTS),
    "additional_properties": _PROPERTIES,
    "commands": _LIST,
    "arguments": Shape((str, dict, _NONE)),
    **dict.fromkeys(("result", "output", "outputs"), ANYTHING),
}
"""The values of the fields of the framework's contents, by name."""

_CONTENT_EXTENSION: Final = Shape(
    (dict,), CONTENT_FIELDS | {"argumentsForm": _TEXT_OR_NULL, "argumentsText": _TEXT_OR_NULL}
)
_MESSAGE_EXTENSION: Final = Shape((dict,), {"messageId": _TEXT_OR_NULL, "additionalProperties": _OBJECT})


def _extended(ours: Shape) -> Shape:
    """Return the shape of an ``extensionData`` in which our part has a shape."""
    return Shape((dict, _NONE), {EXTENSION: ours})


_COUNTS: Final = dict.fromkeys(("inputTokenCount", "outputTokenCount", "totalTokenCount"), _NUMBER_OR_NULL)
_USAGE: Final = Shape((dict, _NONE), _COUNTS | {"extensionData": _OBJECT})
_UPSTREAMS: Final[dict[str, dict[str, Shape]]] = {
    **{wire_type: {wire: CONTENT_FIELDS[name] for name, wire in row.items()} for wire_type, row in MAPPED.values()},
    "functionCall": {"callId": _TEXT_OR_NULL, "name": _TEXT_OR_NULL, "arguments": CONTENT_FIELDS["arguments"]},
    "usage": {"usage": _USAGE},
}
_WHOLE: Final = Shape((dict,), CONTENT_FIELDS)


_BESIDE: Final = {"extensionData": _extended(_CONTENT_EXTENSION)}
_CONTENTS: Final = {
    codec.wire_type: Shape((dict,), _UPSTREAMS[codec.wire_type] | _BESIDE)
    if codec.wire_type in _UPSTREAMS
    else Shape((dict,), {"content": _WHOLE}, ("content",))
    for codec in CONTENT_CODECS.values()
}


def _content_of_type(content: Any) -> Shape | None:
    kind: Any = content.get("$type")
    return _CONTENTS.get(kind) if isinstance(kind, str) else None


_CONTENT: Final = Shape((dict,), {"$type": _TEXT}, ("$type",), further=_content_of_type)
_MESSAGE: Final = Shape(
    (dict,),
    {
        "role": _TEXT,
        "contents": Shape((list,), each=_CONTENT),
        "authorName": _TEXT_OR_NULL,
        "createdAt": _TEXT_OR_NULL,
        "extensionData": _extended(_MESSAGE_EXTENSION),
    },
    ("role", "contents"),
)
_ENTRY_EXTENSION: Final = Shape(
    (dict,),
    {
        "additionalProperties": _OBJECT,
        "responseId": _TEXT_OR_NULL,
        "agentId": _TEXT_OR_NULL,
        "finishReason": _TEXT_OR_NULL,
    },
)
_KNOWN_ENTRY: Final = Shape(
    (dict,),
    {
        "createdAt": _TEXT_OR_NULL,
        "messages": Shape((list, _NONE), each=_MESSAGE),
        "responseType": _TEXT_OR_NULL,
        "responseSchema": _OBJECT,
        "orchestrationId": _TEXT_OR_NULL,
        "usage": _USAGE,
        "extensionData": _extended(_ENTRY_EXTENSION),
    },
)


def _entry_of_type(entry: Any) -> Shape | None:
    return _KNOWN_ENTRY if entry.get("$type") in (REQUEST, RESPONSE) else None


_ENTRY: Final = Shape((dict,), {"$type": _TEXT, "correlationId": _TEXT_OR_NULL}, ("$type",), further=_entry_of_type)
_STATS: Final = Shape((list, _NONE), each=_NUMBER)
_ERROR: Final = Shape((dict, _NONE), {"type": _TEXT_OR_NULL, "message": _TEXT_OR_NULL})
_RECEIPT: Final = Shape(
    (dict,),
    {"turnId": _TEXT, "status": _TEXT, "endedAt": _TEXT, "requestHash": _TEXT, "error": _ERROR, "stats": _STATS}
    | {"spent": Shape((list, _NONE), each=Shape((int, float, _NONE)))},
    ("turnId",),
)
_REQUEST: Final = Shape(
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
_AGENT_SESSION: Final = Shape(
    (dict, _NONE),
    {
        "session_id": _TEXT,
        "service_session_id": Shape((str, dict, _NONE)),
        "state": Shape((dict, _NONE), {SOURCE: _OBJECT}),
    },
    ("session_id",),
)
_OURS: Final = {
    "agentSession": _AGENT_SESSION,
    "owner": Shape((dict, _NONE), {"principal": _TEXT, "tenant": _TEXT}, ("principal",)),
    "running": _TEXT_OR_NULL,
    "queue": Shape((list, _NONE), each=_TEXT),
    "interrupting": _TEXT_OR_NULL,
    "refused": Shape((list, _NONE), each=_TEXT),
    "erasing": _TEXT_OR_NULL,
    "usedAt": _TEXT_OR_NULL,
    "imported": Shape((int, _NONE)),
    "requests": Shape((dict, _NONE), each=_REQUEST),
    "spent": Shape((dict, _NONE), dict.fromkeys(("tokens", "cost", "model_calls", "tool_calls", "seconds"), _NUMBER)),
    "appState": _OBJECT,
}


def _document(entry: Shape, receipt: Shape) -> Shape:
    ours = Shape((dict, _NONE), _OURS | {"receipts": Shape((list, _NONE), each=receipt)})
    history = Shape((list,), each=entry)
    data = {"conversationHistory": history, "extensionData": Shape((dict, _NONE), {EXTENSION: ours})}
    needed = ("schemaVersion", "data")
    return Shape((dict,), {"data": Shape((dict,), data, ("conversationHistory",))}, needed)


_DOCUMENT: Final = _document(_ENTRY, _RECEIPT)
_OUTLINE: Final = _document(
    Shape((dict,), {"correlationId": _TEXT_OR_NULL}), Shape((dict,), {"turnId": _TEXT}, ("turnId",))
)


def outline_faults(document: Any) -> Iterator[Fault]:
    """Find where a document lacks the shape that admission and commit rely on, which read no message.

    Guarantee: pure.

    Args:
        document: the entity's state.

    Yields:
        The faults, the first one first.
    """
    data: Any = cast("dict[str, Any]", document).get("data") if isinstance(document, dict) else None
    entries: Any = cast("dict[str, Any]", data).get("conversationHistory") if isinstance(data, dict) else None
    if isinstance(entries, list) and all(map(_has_outline, cast("list[Any]", entries))):  # a session has many
        outer: dict[str, Any] = {"conversationHistory": []}
        return find_faults(cast("Any", document | {"data": data | outer}), _OUTLINE)
    return find_faults(document, _OUTLINE)


def _has_outline(entry: Any) -> bool:
    return type(entry) is dict and type(cast("dict[str, Any]", entry).get("correlationId")) in (str, _NONE)


def document_faults(document: Any) -> list[Fault]:
    """List everything that makes a document unreadable, one by one where it lacks the shape of a session.

    Guarantee: pure.

    Args:
        document: JSON; its version is not checked.

    Returns:
        The faults; none for a readable document, whatever unknown values it contains.
    """
    faults = [*find_limits(document)] or [*find_faults(document, _DOCUMENT)]
    return faults or [*_unread(cast("dict[str, Any]", document))]


def entry_fault(entry: Any) -> str | None:
    """Return why an entry of a known type cannot be read, by reading it. Guarantee: pure.

    Args:
        entry: of the shape that the schema requires.

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


def _unread(document: dict[str, Any]) -> Iterator[Fault]:
    """Read what the schema leaves to its readers."""
    data = cast("dict[str, Any]", document["data"])
    for number, entry in enumerate(cast("list[Any]", data["conversationHistory"])):
        known = entry.get("$type") in (REQUEST, RESPONSE)
        if known and (reason := entry_fault(entry)) is not None:
            path = ("data", "conversationHistory", number)
            yield Fault(path, reason, path)
    ours = extension_of(data).get("agentSession")
    if ours is not None:
        path = ("data", "extensionData", EXTENSION, "agentSession")
        try:
            AgentSession.from_dict(copy.deepcopy(ours))
        except Exception as error:  # noqa: BLE001 - the framework's readers raise any error
            yield Fault(path, f"cannot be read: {_reason(error)}", path)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, CorruptStateError) else f"{type(error).__name__}: {error}"


def move_entry(path: Path, first: int, listed: Path = ("data", "conversationHistory")) -> Path:
    """Shift the index of a list in a path, for a part of a document. Guarantee: pure.

    Args:
        path: in a document that has a part of the list.
        first: position of the part's first item in the whole list, from 0.
        listed: path of the list.
    """
    number = path[len(listed)] if len(path) > len(listed) and path[: len(listed)] == listed else None
    return (*listed, first + number, *path[len(listed) + 1 :]) if isinstance(number, int) else path


def shape_error(faults: list[Fault], shown: int = 5) -> str:
    """Format faults as one sentence. Guarantee: pure.

    Args:
        faults: at least one.
        shown: maximum faults listed.

    Returns:
        The places and their problems.
    """
    more = f"; and {len(faults) - shown} more" if len(faults) > shown else ""
    return "; ".join(f"{place_of(fault.path)} {fault.problem}" for fault in faults[:shown]) + more
