"""Output items of the Responses API in the neutral contents of a message, and back. Pure; needs no SDK.

Theory of operation. The provider's finished items (``response.output_item.done``) are matched with the framework's
neutral contents of the same model call. The contents are put into the order of the items, completed where the
framework's stream parser left something out, and the first content of an item gets a *stamp*: the item's type and id,
and those of its fields that cannot be rebuilt from the contents. `item_of` is the way back. An item without any content
(``mcp_list_tools`` and the like) is stamped whole on an empty text, its carrier.

Source: ``_parse_chunk_from_openai`` and ``_prepare_message_for_openai`` of agent-framework-openai 1.17, which lose code
outputs, containers, phases and MCP arguments of a stream and leave hosted calls out of a replay.
"""

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.provider_item import STAMP, is_carrier
from durable_agent_host.providers.openai.complete import tidy_open_item
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, SUMS_UP, item_type
from durable_agent_host.providers.openai.rebuild import Item
from durable_agent_host.providers.stamps import Stamps, lacking_fields, stamped_item

PROVIDER: Final = "openai"
_STAMPS: Final = Stamps(PROVIDER)


def sendable(item: Mapping[str, Any]) -> Item:
    """Reduce an output item to what the API accepts as input.

    Guarantee: pure.

    Args:
        item: from the provider, of a known type.

    Returns:
        The fields of the input form, without null fields that are optional.
    """
    row = ITEM_TYPES[item["type"]]
    kept = {
        name: value
        for name, value in (row.trim(item) if row.trim else item).items()
        if name in row.input_fields and (value is not None or name in row.may_be_null)
    }
    return {"type": item["type"], **kept}


def has_compaction(message: Message) -> bool:
    """Return whether a message has an item that replaces everything before it, which then need not be sent.

    Guarantee: pure.

    Source: https://developers.openai.com/api/docs/guides/compaction, "Latency tip".
    """
    return any((stamp_of(content) or {}).get("type") in SUMS_UP for content in message.contents)


def attach_items(contents: Iterable[Content], items: Iterable[Mapping[str, Any]]) -> list[Content]:
    """Give the contents of one model call the order and identity of the provider's items.

    Guarantee: pure; the returned contents may be the same objects, with a stamp.

    Args:
        contents: the framework's, of the call.
        items: the call's finished items, in order; may be empty.

    Returns:
        The contents in the order of the items, complete, then those that belong to no item.
    """
    left = [content for content in contents if not is_carrier(content)]
    placed: list[Content] = []
    for item in items:
        placed += complete_item(_take(left, item), item)
    return placed + left


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Complete the contents of one item, and give them its identity.

    Guarantee: pure except for the contents, which are changed in place.

    Args:
        contents: the framework's, of the item; may be empty.
        item: as finished by the provider, or None when the stream ended before.

    Returns:
        The item's contents, stamped when it is of a known type; an empty text when nothing else represents the item.
    """
    if item is None:
        return tidy_open_item(contents)
    row = item_type(item.get("type"))
    if row.complete:
        contents = row.complete(item, contents)
    if not row.input_fields:
        return contents
    group = contents or [Content("text", text="")]
    _stamp(group, sendable(item))
    return group


def _take(left: list[Content], item: Mapping[str, Any]) -> list[Content]:
    """Take the contents of an item out of the remaining ones."""
    if item["type"] == "message":
        return _take_texts(left, item)
    ids = {item.get("id"), item.get("call_id")} - {None}
    only = item_type(item["type"]).stands_for
    mine = [
        content
        for content in left
        if {content.id, content.call_id, content.image_id} & ids and (not only or content.type in only)
    ]
    if item["type"] == "function_call":
        mine = mine[:1]  # some services give two calls the same call id
    left[:] = [content for content in left if not any(content is one for one in mine)]
    return [copy.copy(content) for content in mine]


def _take_texts(left: list[Content], item: Mapping[str, Any]) -> list[Content]:
    """Take as many texts as the message has parts."""
    wanted = len(cast("list[Any]", item.get("content") or []))
    mine = [content for content in left if content.type == "text"][:wanted]
    left[:] = [content for content in left if not any(content is one for one in mine)]
    return [copy.copy(content) for content in mine]


def _stamp(group: Sequence[Content], item: Item) -> None:
    """Mark a group as an item, and keep the fields that its contents lack."""
    rebuilt = _rebuilt(item["type"], group)
    lacking = lacking_fields(item, rebuilt)
    if item["type"] == "message" and "content" in lacking:
        lacking |= _annotations_instead_of_content(item, rebuilt)
    _STAMPS.put(group, item, rebuilt, {name: v for name, v in lacking.items() if name != "content" or v is not None})


def _rebuilt(kind: str, group: Sequence[Content]) -> Item:
    """Return an item's fields from its contents; only its type when they are malformed."""
    by_type = {content.type: content for content in reversed(group)}
    rebuild = item_type(kind).rebuild
    try:
        return {"type": kind, **(rebuild(group, by_type) if rebuild else {})}
    except (AttributeError, KeyError, TypeError):
        return {"type": kind}


def _annotations_instead_of_content(item: Item, rebuilt: Item) -> Item:
    """Keep only a message's citations when only they differ, and not the text again."""
    parts, mine = (cast("list[Item]", one["content"]) for one in (item, rebuilt))

    def bare(part: Item) -> Item:
        return {name: value for name, value in part.items() if name not in {"annotations", "logprobs"}}

    if [bare(part) for part in parts] != [bare(part) for part in mine]:
        return {}
    given = [cast("list[Item]", part.get("annotations") or []) for part in parts]
    return {"content": None} | ({} if given == [part.get("annotations", []) for part in mine] else {"cited": given})


def item_of(group: Sequence[Content]) -> Item:
    """Rebuild the provider's item from its contents.

    Guarantee: pure, the inverse of `attach_items` for one item.

    Args:
        group: a stamped content, and the other parts of the same item.

    Returns:
        The item in its input form; without ``id`` when the stamp's id is None. It shares values with the contents, and
        must not be changed.
    """
    mark = cast("dict[str, Any]", group[0].additional_properties[STAMP])
    item = stamped_item(mark, _rebuilt(mark["type"], group))
    if (cited := item.pop("cited", None)) and (parts := item.get("content")):
        changed = [part | {"annotations": one} for part, one in zip(parts, cited, strict=False)]
        item["content"] = [*changed, *parts[len(changed) :]]
    return item


stamp_of: Final = _STAMPS.of
groups_of: Final = _STAMPS.groups
