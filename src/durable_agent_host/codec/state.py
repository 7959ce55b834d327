"""The state of a session's entity: JSON to `Session` and back. Pure."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, cast

from durable_agent_host.codec.wire import EXTENSION, ReceiptWire
from durable_agent_host.errors import CorruptStateError, UnknownSchemaVersionError
from durable_agent_host.model.session import Receipt, Receipts, Session
from durable_agent_host.model.turn import TurnStats

EXTENSION_VERSION: Final = 1
_READABLE: Final = re.compile(r"1\.[0-2](\.\d+)?")
_STATS_FIELDS: Final = tuple(field.name for field in fields(TurnStats))
_STATS_LATER: Final = frozenset({"calls_refused"})
"""Stats that came later: written only when they say something, as documents of before have them."""
_USUAL_STATUS: Final = "completed"
_OURS: Final = ("version", "agentSession", "running", "queue", "interrupting", "requests", "receipts")


def decode_session(state: Any) -> Session:
    """Read an entity's state.

    Guarantee: pure.

    Args:
        state: what the entity holds: None or ``{}`` for a session that has not begun, a document of this program,
            or one of upstream's, schema 1.0 to 1.2.

    Returns:
        The session; its entries are the document's own, not copies.

    Raises:
        UnknownSchemaVersionError: the document is of another version.
        CorruptStateError: there is something, and it has no version or no conversation.
    """
    if state is None or state == {}:
        return Session()
    if not isinstance(state, dict):
        raise CorruptStateError(f"the stored session is {type(state).__name__}, not an object; nothing was changed")
    document = cast("dict[str, Any]", state)
    version = document.get("schemaVersion")
    if version is None:
        raise CorruptStateError(
            "the stored session has no schemaVersion: see what 'durable-agent-host sessions verify' says of it; "
            "nothing was changed"
        )
    if not isinstance(version, str) or not _READABLE.fullmatch(version):
        raise UnknownSchemaVersionError(version)
    data: Any = document.get("data")
    entries: Any = cast("dict[str, Any]", data).get("conversationHistory") if isinstance(data, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in cast("list[Any]", entries)):
        raise CorruptStateError("the stored session has no conversationHistory of entries; nothing was changed")
    try:
        ours = _extension(document)
        if (extension_version := ours.get("version", EXTENSION_VERSION)) != EXTENSION_VERSION:
            raise UnknownSchemaVersionError(f"{version}+{EXTENSION}.{extension_version}")
        return Session(
            entries=tuple(cast("list[dict[str, Any]]", entries)),
            agent_session=ours.get("agentSession"),
            running=ours.get("running"),
            queue=tuple(ours.get("queue") or ()),
            interrupting=ours.get("interrupting"),
            requests=ours.get("requests") or {},
            receipts=_stored_receipts(ours.get("receipts") or []),
            schema_version=version,
            document=document,
        )
    except (AttributeError, KeyError, TypeError) as error:
        raise CorruptStateError(
            f"the stored session's {EXTENSION} has no shape ({error}); nothing was changed"
        ) from None


def encode_session(session: Session) -> dict[str, Any]:
    """Write a session as the entity's state.

    Guarantee: pure; fields of the document that this program does not know are kept in place.

    Args:
        session: with entries as they are stored.

    Returns:
        A dictionary that JSON can hold.
    """
    document, before = session.document, _extension(session.document)
    ours = {name: value for name, value in before.items() if name not in _OURS} | {"version": EXTENSION_VERSION}
    if session.agent_session is not None:
        ours["agentSession"] = session.agent_session
    if session.running is not None:
        ours["running"] = session.running
    if session.queue:
        ours["queue"] = list(session.queue)
    if session.interrupting is not None:
        ours["interrupting"] = session.interrupting
    if session.requests:
        ours["requests"] = dict(session.requests)
    if kept := _kept(session.receipts):
        ours["receipts"] = [_encode_receipt(receipt) for receipt in kept]
    data: dict[str, Any] = {**(document.get("data") or {}), "conversationHistory": list(session.entries)}
    is_of_upstream = bool(document) and not before
    if not is_of_upstream or len(ours) > 1:  # a document of upstream that has nothing of ours stays as it was
        data["extensionData"] = {**(data.get("extensionData") or {}), EXTENSION: ours}
    return {**document, "schemaVersion": session.schema_version, "data": data}


def document_digest(state: Any) -> str:
    """Give a short name for what an entity holds, to see later whether it is still the same. Guarantee: pure.

    Args:
        state: JSON.

    Returns:
        32 hexadecimal digits of the SHA-256 of its canonical text.
    """
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()[:32]


def _extension(document: Mapping[str, Any]) -> dict[str, Any]:
    data = cast("dict[str, Any]", document.get("data") or {})
    all_extensions = cast("dict[str, Any]", data.get("extensionData") or {})
    return cast("dict[str, Any]", all_extensions.get(EXTENSION) or {})


def _stored_receipts(stored: Any) -> Receipts:
    if not isinstance(stored, list) or not all(map(_is_receipt, cast("list[Any]", stored))):
        raise TypeError("receipts without the turn's id")
    return Receipts(cast("list[ReceiptWire]", stored), _decode_receipt)


def _is_receipt(stored: Any) -> bool:
    return isinstance(stored, dict) and isinstance(cast("dict[str, Any]", stored).get("turnId"), str)


def _kept(receipts: Sequence[Receipt]) -> Sequence[Receipt | Mapping[str, Any]]:
    return receipts.kept if isinstance(receipts, Receipts) else receipts


def _encode_receipt(receipt: Receipt | Mapping[str, Any]) -> Mapping[str, Any]:
    """Write a receipt in short form; one that nobody looked at stays as it was found."""
    if not isinstance(receipt, Receipt):
        return receipt
    wire: dict[str, Any] = {
        "turnId": receipt.turn_id,
        "status": receipt.status if receipt.status != _USUAL_STATUS else None,
        "endedAt": receipt.ended_at,
        "requestHash": receipt.request_hash,
        "error": receipt.error,
        "stats": list(encode_stats(receipt.stats).values()) if receipt.stats else None,
    }
    return {name: value for name, value in wire.items() if value or name == "turnId"}


def _decode_receipt(wire: Mapping[str, Any]) -> Receipt:
    stats: Any = wire.get("stats")
    if isinstance(stats, list):  # in the order of the fields, to which later versions only add
        stats = dict(zip(_STATS_FIELDS, cast("list[float]", stats), strict=False))
    return Receipt(
        turn_id=wire["turnId"],
        status=wire.get("status", _USUAL_STATUS),
        ended_at=wire.get("endedAt", ""),
        request_hash=wire.get("requestHash", ""),
        error=wire.get("error"),
        stats=decode_stats(stats) if stats else None,
    )


def encode_stats(stats: TurnStats) -> dict[str, Any]:
    """Write what a turn weighed, by the names of `TurnStats`. Guarantee: pure.

    Args:
        stats: what the turn weighed.

    Returns:
        Field names to numbers.
    """
    wire = {name: getattr(stats, name) for name in _STATS_FIELDS}
    return {name: value for name, value in wire.items() if value or name not in _STATS_LATER}


def decode_stats(wire: Mapping[str, Any]) -> TurnStats:
    """Read what a turn weighed; names that this program does not know are left out. Guarantee: pure.

    Args:
        wire: field names to numbers.

    Returns:
        The stats.
    """
    return TurnStats(**{name: wire[name] for name in _STATS_FIELDS if name in wire})
