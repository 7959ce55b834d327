"""Finds what cannot be read in a stored conversation, and calls and results that do not belong together.

A repair leaves out what cannot be read, whole entries of the conversation, and pairs calls with results: a call without
a result gets one that says that it is not known, and a result without a call is left out. It changes nothing else
within an entry, and needs no rules of a service: requests are written by the rules of the service that receives them.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.offloaded_text import with_placeholders
from durable_agent_host.codec.session_schema import find_schema_violations, format_violations, unit_of
from durable_agent_host.codec.strict_json import Path, object_at, value_at
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.provider_item import LOST_RESULT
from durable_agent_host.model.session import Session

Json = dict[str, Any]

LEFT_OUT: Final = "left out"
_HISTORY: Final = ("data", "conversationHistory")


@dataclass(frozen=True)
class RepairChange:
    """A problem in the conversation, and its repair.

    Attributes:
        location: the path in the document, or the turn, message and content, counted from 1.
        problem: what is wrong.
        repair: what makes it acceptable.
    """

    location: str
    problem: str
    repair: str


def make_readable(state: Any) -> tuple[Json, list[RepairChange]]:
    """Leave out what cannot be read in the stored state of a session: whole entries, and single values elsewhere.

    Large texts of entries may be stored outside of them.

    Returns:
        The readable state, the same object where there was no problem, and the changes.

    Raises:
        UnknownSchemaVersionError: a newer or unknown program wrote it, so this version cannot judge it.
        CorruptStateError: nothing in it can be a conversation.
    """
    data = value_at(state, "data")
    if not isinstance(data, dict):
        decode_session(state)  # reports what is wrong with a value that is not a document
        return state, []
    entries = cast("Json", data).get("conversationHistory")
    readable_entries: Any = entries
    changes: list[RepairChange] = []
    if isinstance(entries, list):
        readable, changes = readable_entries_of(cast("list[Any]", entries))
        readable_entries = [*readable.values()]
    document: Json = {**state, "data": {**data, "conversationHistory": [] if isinstance(entries, list) else entries}}
    while violations := find_schema_violations(document):
        units = {unit_of(violation.path) for violation in violations}
        if () in units:
            raise CorruptStateError(f"the stored session is none: {format_violations(violations)}; nothing was changed")
        changes += [RepairChange(violation.location, f"it {violation.problem}", LEFT_OUT) for violation in violations]
        document = _without(document, units)
    document["data"]["conversationHistory"] = readable_entries
    decode_session(document)  # refuses an unknown version of our part
    return (document if changes else state), changes


def _without(document: Json, units: Iterable[Path]) -> Json:
    """Remove parts, the last ones first, so that the positions of the others stay."""
    shorter_document: Any = json.loads(json.dumps(document))  # copies nesting too deep for other ways
    for unit in sorted(units, key=lambda path: [(isinstance(segment, str), segment) for segment in path], reverse=True):
        parent: Any = shorter_document
        for segment in unit[:-1]:
            parent = parent[segment]
        del parent[unit[-1]]
    return cast("Json", shorter_document)


def readable_entries_of(entries: Sequence[Any], *, first: int = 0) -> tuple[dict[int, Json], list[RepairChange]]:
    """Select the entries that can be read.

    Args:
        entries: of a conversation or a part of it; their large texts may be stored outside of them.
        first: the position of the first one in the conversation.

    Returns:
        The readable entries by position, and a change for each other one.
    """
    short_entries: dict[int, Any] = {}
    changes: list[RepairChange] = []
    for position, entry in enumerate(entries, first):
        try:
            is_object = isinstance(entry, dict)
            short_entries[position] = with_placeholders(cast("Json", entry)) if is_object else entry
        except CorruptStateError as error:
            changes.append(RepairChange(f"entry {position + 1}", str(error), LEFT_OUT))
    while violations := find_schema_violations(_document_of(short_entries.values())):
        positions = [*short_entries]
        for violation in violations:
            _, _, index, *path = violation.path
            position = positions[cast("int", index)]
            location = violation._replace(path=(*_HISTORY, position, *path)).location
            changes.append(RepairChange(location, f"it {violation.problem}", LEFT_OUT))
            short_entries.pop(position, None)
    return {position: entries[position - first] for position in short_entries}, changes


def _document_of(entries: Iterable[Any]) -> Json:
    return {"schemaVersion": Session.schema_version, "data": {"conversationHistory": [*entries]}}


class UnpairedContent(NamedTuple):
    """A call without a result, or a result without a call.

    Attributes:
        position: of its entry in the conversation, from 0.
        message: the index of its message in the entry.
        content: its index in the message.
        turn_id: of its entry.
        call_id: of the call.
        is_result: it is a result.
    """

    position: int
    message: int
    content: int
    turn_id: Any
    call_id: Any
    is_result: bool

    @property
    def change(self) -> RepairChange:
        """The problem, and its repair."""
        location = f"turn {self.turn_id}, message {self.message + 1}, content {self.content + 1}"
        if self.is_result:
            return RepairChange(location, f"the result of {self.call_id!r} has no call before it", LEFT_OUT)
        return RepairChange(location, f"call {self.call_id} has no result", "added a result that says it is not known")


class CallPairing:
    """Pairs the calls of the app's tools with their results, entry by entry, oldest first."""

    def __init__(self) -> None:
        self._open_calls: dict[Any, list[UnpairedContent]] = {}
        self._results: list[UnpairedContent] = []
        self._unanswered_call_ids: set[Any] = set()

    def add(self, position: int, entry: Mapping[str, Any]) -> None:
        """Read the next entry, whose large texts may be stored outside of it."""
        for message_index, message in enumerate(cast("list[Json]", entry.get("messages") or [])):
            for content_index, content in enumerate(cast("list[Json]", message["contents"])):
                call_id = content.get("callId")
                here = UnpairedContent(
                    position, message_index, content_index, entry.get("correlationId"), call_id, is_result=False
                )
                match content.get("$type"):
                    case "functionCall":
                        self._open_calls.setdefault(call_id, []).append(here)
                        if _runs_outside_host(content) or _is_question(content):
                            self._unanswered_call_ids.add(call_id)
                    case "shellToolCall":
                        call_id = value_at(content, "content", "call_id")
                        self._open_calls.setdefault(call_id, []).append(here)
                        self._unanswered_call_ids.add(call_id)
                    case "functionApprovalRequest":
                        self._unanswered_call_ids.add(value_at(content, "content", "function_call", "call_id"))
                    case "functionResult" if self._open_calls.get(call_id):
                        self._open_calls[call_id].pop()
                    case "functionResult":
                        self._results.append(here._replace(is_result=True))
                    case _:
                        pass

    def find_unpaired(self) -> list[UnpairedContent]:
        """Return what has no counterpart, oldest first.

        A call of which a person is asked, or which runs at the provider, needs no result.
        """
        open_calls = [
            call
            for call_id, calls in self._open_calls.items()
            if call_id not in self._unanswered_call_ids
            for call in calls
        ]
        return sorted([*open_calls, *self._results], key=lambda content: content[:3])


def _runs_outside_host(content: Json) -> bool:
    extension = extension_of(content)
    return bool(extension.get("hosted") or extension.get("informational_only"))


def _is_question(content: Json) -> bool:
    """Return whether a call is the question of a workflow, as its agent has it."""
    request_id = object_at(content.get("arguments")).get("request_id")
    return request_id is not None and request_id == content.get("callId")


def pair_calls(entry: Mapping[str, Any], unpaired_contents: Iterable[UnpairedContent]) -> Json:
    """Return an entry, complete with its large texts, in which every call has a result and every result a call."""
    messages: list[Json] = [{**message, "contents": [*message["contents"]]} for message in entry["messages"]]
    for content in sorted(unpaired_contents, key=lambda content: content[:3], reverse=True):
        message = messages[content.message]
        if content.is_result:
            del message["contents"][content.content]
            continue
        result: Json = {"$type": "functionResult", "callId": content.call_id, "result": LOST_RESULT}
        following = messages[content.message + 1] if content.message + 1 < len(messages) else None
        if following is not None and following["role"] == "tool":
            following["contents"].insert(0, result)
        else:
            created_at = {"createdAt": message["createdAt"]} if "createdAt" in message else {}
            messages.insert(content.message + 1, {"role": "tool", "contents": [result], **created_at})
    return {**entry, "messages": [message for message in messages if message["contents"]]}
