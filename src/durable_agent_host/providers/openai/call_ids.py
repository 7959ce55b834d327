"""The item ids of function calls: read from the contents, or derived where a history has lost them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import STAMP

_VALID_ID: Final = re.compile(r"fc_[A-Za-z0-9_-]{1,61}")


def find_item_id(call: Content) -> str | None:
    """Return the item id of a function call, from its metadata or where this or an older client stored it.

    Guarantee: pure.

    Returns:
        The id, or None when the history has lost it.
    """
    properties = call.additional_properties
    openai, metadata = (cast("Any", properties.get(name)) for name in ("openai", STAMP))
    for holder, name in ((metadata, "id"), (openai, "item_id"), (properties, "fc_id")):
        item_id: Any = cast("Mapping[str, Any]", holder).get(name) if isinstance(holder, Mapping) else None
        if isinstance(item_id, str) and item_id:
            return item_id
    return None


def identify_calls(messages: Iterable[Message], *, session_id: str) -> None:
    """Put item ids on the function calls of a rehydrated conversation, where every client looks for them.

    Older clients look up ``fc_id`` in a map by call id, the current one reads ``openai.item_id``.

    Guarantee: pure except for its argument; the ids derive from the session, the call and its position among the calls
    with that id, so they are the same on every replay, and differ when a call id recurs.

    Args:
        messages: freshly decoded, the conversation from its start; their contents are changed in place.
        session_id: of the conversation.
    """
    occurrence_counts: Counter[str] = Counter()
    contents = (content for message in resting(messages) for content in message.contents)
    for call in (content for content in contents if content.type == "function_call"):
        if not call.call_id or call.informational_only:
            continue
        occurrence_counts[call.call_id] += 1
        item_id = find_item_id(call)
        if item_id is None or not _VALID_ID.fullmatch(item_id):
            item_id = "fc_" + derived_id(session_id, call.call_id, str(occurrence_counts[call.call_id]))
        openai = cast("dict[str, Any]", call.additional_properties.get("openai") or {})
        call.additional_properties |= {"fc_id": item_id, "openai": openai | {"item_id": item_id}}
