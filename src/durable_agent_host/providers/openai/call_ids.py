"""The item ids of function calls: found where they are stored, derived where a history has lost them. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import STAMP

_GOOD_ID: Final = re.compile(r"fc_[A-Za-z0-9_-]{1,61}")


def item_id_of(call: Content) -> str | None:
    """Return the item id of a function call, from its stamp or from where this or an older client put it.

    Guarantee: pure.

    Returns:
        The id, or None when the history has lost it.
    """
    properties = call.additional_properties
    openai, stamp = (cast("Any", properties.get(name)) for name in ("openai", STAMP))
    for holder, name in ((stamp, "id"), (openai, "item_id"), (properties, "fc_id")):
        found: Any = cast("Mapping[str, Any]", holder).get(name) if isinstance(holder, Mapping) else None
        if isinstance(found, str) and found:
            return found
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
    seen: Counter[str] = Counter()
    contents = (content for message in resting(messages) for content in message.contents)
    for call in (content for content in contents if content.type == "function_call"):
        if not call.call_id or call.informational_only:
            continue
        seen[call.call_id] += 1
        item_id = item_id_of(call)
        if item_id is None or not _GOOD_ID.fullmatch(item_id):
            item_id = "fc_" + derived_id(session_id, call.call_id, str(seen[call.call_id]))
        openai = cast("dict[str, Any]", call.additional_properties.get("openai") or {})
        call.additional_properties |= {"fc_id": item_id, "openai": openai | {"item_id": item_id}}
