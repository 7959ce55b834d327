"""The owner of a session in its document. Pure."""

from collections.abc import Mapping
from typing import Any, Final, cast

from durable_agent_host.codec.wire import EXTENSION
from durable_agent_host.model.principal import Owner

UNREADABLE: Final = Owner("", "\0")
"""The owner of a document whose owner field cannot be read: no caller is equal to it."""


def encode_owner(owner: Owner) -> dict[str, str]:
    """Encode an owner. Guarantee: pure.

    Args:
        owner: of a session.

    Returns:
        ``principal``, and ``tenant`` when it has one.
    """
    return {"principal": owner.principal} | ({"tenant": owner.tenant} if owner.tenant else {})


def decode_owner(wire: Any) -> Owner | None:
    """Decode an owner. Guarantee: pure.

    Args:
        wire: from `encode_owner`, or None.

    Returns:
        The owner; None for None; `UNREADABLE` for anything else.
    """
    if wire is None:
        return None
    fields: Mapping[str, Any] = cast("Any", wire) if isinstance(wire, Mapping) else {}
    principal, tenant = fields.get("principal"), fields.get("tenant", "")
    return Owner(principal, tenant) if isinstance(principal, str) and isinstance(tenant, str) else UNREADABLE


def owner_of_document(state: Any) -> Owner | None:
    """Return the owner of a stored session, even if nothing else of it can be read. Guarantee: pure.

    Args:
        state: the entity's state.
    """
    found = state
    for name in ("data", "extensionData", EXTENSION, "owner"):
        found = cast("Mapping[str, Any]", found).get(name) if isinstance(found, Mapping) else None
    return decode_owner(found)
