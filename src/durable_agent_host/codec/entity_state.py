"""The state of a session's entity: JSON to `Session` and back."""

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from datetime import UTC, datetime
from typing import Any, Final, cast

from durable_agent_host.codec.content_fields import dump_value, load_value
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.session_blobs import decode_sealed, encode_sealed
from durable_agent_host.codec.session_schema import find_outline_violation
from durable_agent_host.codec.strict_json import read_json, value_at
from durable_agent_host.codec.wire_types import EXTENSION, SpentWire, StatsWire
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError, UnknownSchemaVersionError
from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.model.turn import TurnStats

_ENCRYPTED: Final = "$encrypted"
_BEGIN: Final = f'{{"{_ENCRYPTED}"'


def last_use_of_document(state: Any) -> str:
    """Return when a session was last used, even if it cannot be read as a whole.

    Returns:
        UTC, ISO-8601, whole seconds; for a session without that time, when its newest message or turn ended; empty when
        unknown.
    """
    return max(_without_fraction(time) for time in _times(state))


def _times(state: Any) -> Iterator[Any]:
    extension = _extension(state)
    yield extension.get("usedAt")
    yield value_at(_last(extension.get("receipts")), "endedAt")
    yield value_at(_last(value_at(state, "data", "conversationHistory")), "createdAt")


def _last(of: Any) -> Any:
    return cast("Sequence[Any]", of)[-1] if isinstance(of, list) and of else None


def _without_fraction(text: Any) -> str:
    if not isinstance(text, str):
        return ""
    try:
        time = datetime.fromisoformat(text)
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return ""
    return time.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


UNREADABLE: Final = Owner("", "\0")
"""The owner of a document whose owner field cannot be read: no caller is equal to it."""


def encode_owner(owner: Owner) -> dict[str, str]:
    """Encode an owner.

    Returns:
        ``principal``, and ``tenant`` when it has one.
    """
    return {"principal": owner.principal} | ({"tenant": owner.tenant} if owner.tenant else {})


def decode_owner(wire: Any) -> Owner | None:
    """Decode an owner.

    Returns:
        The owner; None for None; `UNREADABLE` for anything else.
    """
    if wire is None:
        return None
    fields: Mapping[str, Any] = cast("Any", wire) if isinstance(wire, Mapping) else {}
    principal = fields.get("principal")
    tenant = fields.get("tenant", "")
    return Owner(principal, tenant) if isinstance(principal, str) and isinstance(tenant, str) else UNREADABLE


def owner_of_document(state: Any) -> Owner | None:
    """Return the owner of a stored session, even if nothing else of it can be read."""
    return decode_owner(_extension(state).get("owner"))


EXTENSION_VERSION: Final = 1
"""Of our object in the ``extensionData`` of a session."""
_READABLE: Final = re.compile(r"1\.[0-2](\.\d+)?")
_USAGE_FIELDS: Final = tuple(field.name for field in fields(BudgetUsage))
_STATS_FIELDS: Final = tuple(field.name for field in fields(TurnStats))
_DEFAULT_STATUS: Final = "completed"


def decode_session(state: Any) -> Session:
    """Decode an entity's state.

    Returns:
        The session; its entries are the document's own, not copies.

    Raises:
        UnknownSchemaVersionError: the document is of another version.
        EncryptionKeyError: it is encrypted.
        CorruptStateError: it has no version or no conversation, or a part that turns rely on is malformed; says where.
    """
    if state is None or state == {}:
        return Session()
    if not isinstance(state, dict):
        raise CorruptStateError("the stored session is not a JSON object; nothing was changed")
    document = cast("dict[str, Any]", state)
    version = document.get("schemaVersion")
    raise_if_encrypted(document)
    if version is None:
        raise CorruptStateError(
            "the stored session has no schemaVersion: restore a copy, or delete it; nothing was changed"
        )
    if not isinstance(version, str) or not _READABLE.fullmatch(version):
        raise UnknownSchemaVersionError(version)
    if (violation := find_outline_violation(document)) is not None:
        raise CorruptStateError(
            f"the stored session cannot be used: {violation.location} {violation.problem}; nothing was changed"
        )
    extension = _extension(document)
    if (extension_version := extension.get("version", EXTENSION_VERSION)) != EXTENSION_VERSION:
        raise UnknownSchemaVersionError(f"{version}+{EXTENSION}.{extension_version}")
    return Session(
        entries=tuple(cast("list[dict[str, Any]]", document["data"]["conversationHistory"])),
        agent_session=extension.get("agentSession"),
        owner=decode_owner(extension.get("owner")),
        running=extension.get("running"),
        queue=tuple(extension.get("queue") or ()),
        interrupting=extension.get("interrupting"),
        requests=extension.get("requests") or {},
        rejected_turn_ids=tuple(extension.get("refused") or ()),
        sealed=decode_sealed(extension.get("sealed")),
        overlay=_object_or_none(extension.get("overlay")),
        budget_usage=decode_budget_usage(extension.get("spent")),
        erasing=extension.get("erasing") or "",
        used_at=extension.get("usedAt") or "",
        app_state=load_value(extension.get("appState") or {}),
        receipts=tuple(map(decode_receipt, extension.get("receipts") or ())),
        schema_version=version,
        document=document,
    )


def encode_envelope(text: str) -> dict[str, Any]:
    """Encode an encrypted value, given as base64, as JSON."""
    return {_ENCRYPTED: text}


def read_envelope(value: Any) -> str | None:
    """Return the base64 of an encrypted value.

    Returns:
        None when it is not encrypted.
    """
    if isinstance(value, str) and value.startswith(_BEGIN):
        value = read_json(value)
    match value:
        case {"$encrypted": str(text), **rest} if not rest:
            return text
        case _:
            return None


def raise_if_encrypted(state: Any) -> None:
    """Refuse an encrypted state that was not decrypted, because the app has no keys.

    Raises:
        EncryptionKeyError: it is encrypted.
    """
    if read_envelope(state) is not None:
        raise EncryptionKeyError(
            "the stored session is encrypted, and the app has no keys: set DURABLE_AGENT_HOST_ENCRYPTION_KEYS; "
            "nothing was changed"
        )


def encode_session(session: Session) -> dict[str, Any]:
    """Encode a session as the entity's state."""
    document = session.document
    before = _extension(session.document)
    encoded_fields: dict[str, Any] = {
        "version": EXTENSION_VERSION,
        "agentSession": session.agent_session,
        "owner": encode_owner(session.owner) if session.owner else None,
        "running": session.running,
        "queue": list(session.queue) or None,
        "interrupting": session.interrupting,
        "requests": dict(session.requests) or None,
        "receipts": [encode_receipt(receipt) for receipt in session.receipts] or None,
        "refused": list(session.rejected_turn_ids) or None,
        "overlay": dict(session.overlay) if session.overlay else None,
        "spent": encode_budget_usage(session.budget_usage) if session.budget_usage is not None else None,
        "erasing": session.erasing or None,
        "usedAt": session.used_at or None,
        "sealed": encode_sealed(session.sealed) or None,
        "appState": dump_value(session.app_state, "app_state") or None,
    }
    extension = {name: value for name, value in before.items() if name not in encoded_fields}
    extension |= {name: value for name, value in encoded_fields.items() if value is not None}
    data: dict[str, Any] = {**(document.get("data") or {}), "conversationHistory": list(session.entries)}
    is_of_upstream = bool(document) and not before
    if not is_of_upstream or len(extension) > 1:  # a document of upstream without our data stays unchanged
        data["extensionData"] = {**(data.get("extensionData") or {}), EXTENSION: extension}
    return {**document, "schemaVersion": session.schema_version, "data": data}


def document_digest(state: Any) -> str:
    """Hash an entity's state, to detect changes.

    Returns:
        32 hexadecimal digits of the SHA-256 of its canonical text.
    """
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:32]


def _extension(document: Any) -> dict[str, Any]:
    data = value_at(document, "data")
    return extension_of(cast("Mapping[str, Any]", data)) if isinstance(data, Mapping) else {}


def _object_or_none(value: Any) -> Mapping[str, Any] | None:
    return cast("dict[str, Any]", value) if isinstance(value, dict) and value else None


def encode_receipt(receipt: Receipt) -> Mapping[str, Any]:
    """Encode a receipt compactly; one that was read stays unchanged."""
    if receipt.stored is not None:
        return receipt.stored
    wire: dict[str, Any] = {
        "turnId": receipt.turn_id,
        "status": receipt.status if receipt.status != _DEFAULT_STATUS else None,
        "endedAt": receipt.ended_at,
        "requestHash": receipt.request_hash,
        "error": receipt.error,
        "stats": [*cast("Mapping[str, Any]", encode_stats(receipt.stats)).values()] if receipt.stats else None,
        "spent": [getattr(receipt.budget_usage, name) for name in _USAGE_FIELDS] if receipt.budget_usage else None,
        "joinedTurnId": receipt.joined_turn_id,
        "hasEntries": receipt.has_entries,
    }
    return {name: value for name, value in wire.items() if value or name == "turnId"}


def decode_receipt(wire: Mapping[str, Any]) -> Receipt:
    """Decode a stored receipt."""
    stats: Any = wire.get("stats")
    usage: Any = wire.get("spent")
    return Receipt(
        turn_id=wire["turnId"],
        status=wire.get("status", _DEFAULT_STATUS),
        ended_at=wire.get("endedAt", ""),
        request_hash=wire.get("requestHash", ""),
        error=wire.get("error"),
        stats=TurnStats(*cast("list[Any]", stats)[: len(_STATS_FIELDS)]) if isinstance(stats, list) else None,
        budget_usage=BudgetUsage(*cast("list[Any]", usage)[: len(_USAGE_FIELDS)]) if isinstance(usage, list) else None,
        joined_turn_id=wire.get("joinedTurnId", ""),
        has_entries=wire.get("hasEntries") is True,
        stored=wire,
    )


def encode_budget_usage(usage: BudgetUsage) -> SpentWire:
    """Encode spending by the names of `BudgetUsage`, without an unknown cost."""
    return cast("SpentWire", {name: figure for name, figure in asdict(usage).items() if figure is not None})


def decode_budget_usage(wire: Any) -> BudgetUsage | None:
    """Decode spending."""
    if not isinstance(wire, dict):
        return None
    return BudgetUsage(*field_values(BudgetUsage, cast("dict[str, Any]", wire)))


def encode_stats(stats: TurnStats) -> StatsWire:
    """Encode the stats of a turn by the names of `TurnStats`."""
    return cast("StatsWire", asdict(stats))


def field_values(kind: type[Any], wire: Mapping[str, Any]) -> list[Any]:
    """Read the values of a dataclass from the JSON object with its names, in order.

    Returns:
        The values, with tuples for lists, and defaults for those that are absent or null.

    Raises:
        KeyError: one without a default is absent.
    """
    values: list[Any] = []
    for field in fields(kind):
        is_required = field.default is field.default_factory is MISSING
        value = wire[field.name] if is_required else wire.get(field.name)
        if value is None and not is_required:
            value = field.default if field.default_factory is MISSING else field.default_factory()
        values.append(tuple(cast("list[Any]", value)) if isinstance(value, list) else value)
    return values
