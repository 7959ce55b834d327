"""Imports: the parts taken over from an exported document, and those that cannot be verified."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, replace
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.message import decode_messages
from durable_agent_host.codec.offloaded_text import STORED, with_placeholders, with_text_list
from durable_agent_host.codec.schema_validation import format_json_path
from durable_agent_host.codec.session_document_reader import HISTORY, RECEIPTS, ReadEntry, ReadReceipt
from durable_agent_host.codec.session_schema import SOURCE, find_schema_violations, format_violations, shift_list_index
from durable_agent_host.codec.strict_json import object_at
from durable_agent_host.codec.wire_types import EXTENSION
from durable_agent_host.errors import CorruptStateError, RequestError, StateError
from durable_agent_host.model.budget import MAX_USAGE
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.provider_item import OWNER, STAMP
from durable_agent_host.model.segment_refs import SegmentList
from durable_agent_host.model.session import Session, without_workflow_state

MAX_REPORTED_ENTRIES: Final = 100
"""Maximum sentences about entries in the answer to an import."""
_ROLES_OF_CONVERSATIONS: Final = frozenset({"user", "assistant", "tool"})
_NO_SESSION: Final = "the body is not a valid session"


def entries_to_import(read: Sequence[ReadEntry]) -> list[Mapping[str, Any]]:
    """Check the entries of an exported document, and record in them which of their texts are stored outside.

    Raises:
        RequestError: one is invalid, or has references, which lead to parts of another session; says where.
    """
    if not read:
        return []
    for read_entry in read:
        if STORED in extension_of(object_at(read_entry.entry)):
            json_path = (*HISTORY, read_entry.number, "extensionData", EXTENSION, STORED)
            raise RequestError(_reference_error_text(format_json_path(json_path)))
    entries: list[Any] = []
    for read_entry in read:
        entry: Any = read_entry.entry
        if read_entry.texts and isinstance(entry, dict) and not _has_odd_extension(cast("dict[str, Any]", entry)):
            entry = with_placeholders(with_text_list(cast("dict[str, Any]", entry), read_entry.texts))
        entries.append(entry)
    if violations := find_schema_violations({"schemaVersion": Session.schema_version, "data": {HISTORY[1]: entries}}):
        first = read[0].number
        shifted_violations = [
            violation._replace(path=shift_list_index(violation.path, first)) for violation in violations
        ]
        raise RequestError(f"{_NO_SESSION}: {format_violations(shifted_violations)}")
    return [with_text_list(read_entry.entry, read_entry.texts) for read_entry in read]


def receipts_to_import(read: Sequence[ReadReceipt]) -> list[Mapping[str, Any]]:
    """Check receipts of an exported document.

    Raises:
        RequestError: one is invalid; says where.
    """
    if not read:
        return []
    extension = {"receipts": [read_receipt.receipt for read_receipt in read]}
    data: dict[str, Any] = {HISTORY[1]: [], "extensionData": {EXTENSION: extension}}
    if violations := find_schema_violations({"schemaVersion": Session.schema_version, "data": data}):
        first = read[0].number
        shifted_violations = [
            violation._replace(path=shift_list_index(violation.path, first, RECEIPTS)) for violation in violations
        ]
        raise RequestError(f"{_NO_SESSION}: {format_violations(shifted_violations)}")
    return extension["receipts"]


def session_to_import(document: Any, owner: Owner | None = None) -> Session:
    """Check an exported document apart from its entries.

    Returns:
        The session without the turns that ran or waited when it was exported: they belong to that host. What a
        workflow keeps is left out, too: it holds objects of Python, and those are read from our own commits alone.
        Where the session gets an owner, it continues no conversation of the model's service, has no overlay of the
        document, and providers do not know it by the document's id: the caller may have found those names in somebody
        else's session.

    Raises:
        RequestError: it is not a session, or has references, which lead to parts of another one.
    """
    if document and (not isinstance(document, dict) or "schemaVersion" not in document):
        raise RequestError(f"{_NO_SESSION}: it has no 'schemaVersion': send what 'export' returned")
    try:
        session = decode_session(document)
    except StateError as error:
        raise RequestError(f"{_NO_SESSION}: {error}") from None
    if not session.document:
        raise RequestError(f"{_NO_SESSION}: send what 'export' returned")
    if violations := find_schema_violations(document):
        raise RequestError(f"{_NO_SESSION}: {format_violations(violations)}")
    if session.sealed != SegmentList():
        raise RequestError(_reference_error_text(format_json_path(("data", "extensionData", EXTENSION, "sealed"))))
    if session.budget_usage is not None and not all(
        0 <= (figure or 0) <= MAX_USAGE for figure in astuple(session.budget_usage)
    ):
        path_text = format_json_path(("data", "extensionData", EXTENSION, "spent"))
        raise RequestError(f"{_NO_SESSION}: {path_text} has a figure below 0, or above all that can be spent")
    agent_session = without_workflow_state(session.agent_session)
    if owner is not None and agent_session is not None:
        agent_session = {**agent_session, "service_session_id": None} if _states_of_app(agent_session) else None
    return replace(
        session,
        owner=owner,
        running=None,
        queue=(),
        interrupting=None,
        requests={},
        erasing="",
        agent_session=agent_session,
        overlay=None if owner is not None else session.overlay,
    )


def messages_on_trust(number: int, entry: Mapping[str, Any], *, is_owned: bool) -> list[str]:
    """List what an entry says to the model in the name of the app, a tool, a person or the service."""
    try:
        messages = decode_messages([with_placeholders(entry)])
    except CorruptStateError:
        return [f"entry {number} cannot be read by this program, which cannot say what the model would get of it"]
    contents = [content for message in messages for content in message.contents]
    types = {content.type for content in contents}
    roles = dict.fromkeys(message.role for message in messages)
    trusted_parts = [
        f"a message of role {role!r}, which the model takes for instructions of the app"
        for role in roles
        if role not in _ROLES_OF_CONVERSATIONS
    ]
    if "tool" in roles or any(content_type.endswith("_result") for content_type in types):
        trusted_parts.append("results of tools, which the model takes for what the tools returned")
    if "function_approval_response" in types:
        trusted_parts.append("answers to approvals, which the agent takes for those of a person")
    if not is_owned and any(_is_of_the_service(content) for content in contents):
        trusted_parts.append("reasoning or other items of the model's service, which are sent back to it unchanged")
    return [f"entry {number} has {trusted_part}" for trusted_part in trusted_parts]


def _is_of_the_service(content: Content) -> bool:
    return content.type == "text_reasoning" or not content.additional_properties.keys().isdisjoint((STAMP, OWNER))


def session_on_trust(session: Session) -> list[str]:
    """List unverifiable effects of an imported session on agent and model, besides its messages.

    Returns:
        Sentences: a conversation that the model's service would continue, a context, and data of the app.
    """
    sentences: list[str] = []
    service = (session.agent_session or {}).get("service_session_id")
    if service:
        sentences.append(
            f"the session continues {service!r} of the model's service, whose conversation may be a different one"
        )
    if session.overlay is not None:
        sentences.append(
            "the session itself says what the model gets of its conversation, and what stands for the rest"
        )
    if session.app_state:
        sentences.append("the session has data of the app, which the app's own operations trust")
    if of_app := _states_of_app(session.agent_session or {}):
        sentences.append(f"the session has state of {', '.join(map(repr, of_app))}, which the agent's providers trust")
    return sentences


def _states_of_app(agent_session: Mapping[str, Any]) -> list[str]:
    """Return the names under which the agent's providers have state; the framework leaves empty states, too."""
    state = object_at(agent_session.get("state"))
    return sorted(name for name, value in state.items() if value and not name.startswith(SOURCE))


def _reference_error_text(path_text: str) -> str:
    return (
        f"{path_text} refers to parts of another session, which are not in the body: send what 'export' returned, and "
        "not what the entity holds"
    )


def _has_odd_extension(entry: dict[str, Any]) -> bool:
    return not isinstance(entry.get("extensionData") or {}, dict)
