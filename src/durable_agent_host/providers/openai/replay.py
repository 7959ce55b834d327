"""Prepares a conversation for the Responses API: changes to messages and input items before a request. Pure.

The API checks by id. A stored item that followed reasoning must come with that reasoning; reasoning must come with its
encrypted payload, and with the item that followed it. Where a part of such a group cannot be sent, the group is sent
without ids, as plain text and calls, which the API accepts.

Source: recorded requests (`multiturn/ci-replay-store-default`, `reasoning-modified-history-400`, `fn-*`).
"""

import copy
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from mimetypes import guess_type
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.loops.giving_way import resting
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.providers.call_names import accepted_name
from durable_agent_host.providers.openai.forgotten import GONE, with_contents
from durable_agent_host.providers.openai.item_types import ITEM_TYPES, MAX_ID_CHARACTERS, item_type
from durable_agent_host.providers.openai.items import groups_of, item_of, stamp_of
from durable_agent_host.providers.openai.rebuild import Item

_GOOD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,128}")

_SAYS_KIND: Final = frozenset({"openai", "openai_content_type"})
"""Keys of ``additional_properties`` by which the client recognizes the kind of a link."""
_DATA_KIND: Final = re.compile(r"data:([^;,]*)")


def replayable_messages(
    messages: Sequence[Message], *, stored: bool, keeps_reasoning: Callable[[Content], bool]
) -> list[Message]:
    """Leave out the reasoning that cannot be replayed, and the ids that would require it.

    Guarantee: pure; the given messages are not changed.

    Args:
        messages: to be sent, history first.
        stored: whether the service stores what it is sent, and so knows the ids.
        keeps_reasoning: whether the client can send reasoning that has no encrypted payload.

    Returns:
        The same messages, or copies where something was left out.
    """
    shaped = _without_foreign_media([_with_known_media(_with_whole_items(message)) for message in resting(messages)])
    return [
        _replayable(message, stored=stored, keeps_reasoning=keeps_reasoning) if message.role == "assistant" else message
        for message in resting(shaped)
    ]


def _with_whole_items(message: Message) -> Message:
    """Remove the stamp from malformed contents: the item that they represented cannot be sent."""
    changed: list[Content] = []
    for group in groups_of(message.contents):
        changed += group if stamp_of(group[0]) is None or _is_whole(group) else [_unstamped(one) for one in group]
    return message if changed == list(message.contents) else with_contents(message, changed)


def _is_whole(group: Sequence[Content]) -> bool:
    try:
        item = item_of(group)
    except (AttributeError, KeyError, TypeError):
        return False
    row = item_type(item["type"])
    return all(name in item and (item[name] is not None or name in row.may_be_null) for name in row.required)


def _unstamped(content: Content) -> Content:
    changed = copy.copy(content)
    marks = {STAMP, PART_OF}
    changed.additional_properties = {name: v for name, v in content.additional_properties.items() if name not in marks}
    return changed


def _with_known_media(message: Message) -> Message:
    """Give every link a kind, or show it as a text: the client rejects a link without one, and the whole turn."""
    changed = [_known_media(content) for content in message.contents]
    return message if changed == list(message.contents) else with_contents(message, changed)


def _known_media(content: Content) -> Content:
    if content.type == "function_result" and content.items:
        items = [_known_media(one) for one in content.items]
        if items == list(content.items):
            return content
        changed = copy.copy(content)
        changed.items = items
        changed.result = "\n".join(one.text for one in items if one.type == "text" and one.text)  # like the framework
        return changed
    if content.type not in {"data", "uri"} or content.media_type or not content.uri:
        return content
    if content.additional_properties.keys() & _SAYS_KIND:
        return content
    kind = _DATA_KIND.match(content.uri)
    media_type = (kind[1] or "text/plain") if kind else guess_type(content.uri)[0] or ""
    if not kind and not media_type.startswith("image/"):
        return Content.from_text(content.uri)
    changed = copy.copy(content)
    changed.media_type = media_type
    return changed


def _without_foreign_media(messages: Sequence[Message]) -> list[Message]:
    """Move images of another provider's assistant to the user: the API accepts no image from an assistant."""
    shown: list[Message] = []
    for message in resting(messages):
        media = [one for one in message.contents if message.role == "assistant" and _is_media(one)]
        if not media:
            shown.append(message)
            continue
        if rest := [content for content in message.contents if not _is_media(content)]:
            shown.append(with_contents(message, rest))
        shown.append(Message("user", media))
    return shown


def _is_media(content: Content) -> bool:
    return (
        content.type in {"data", "uri", "hosted_file"} and not {STAMP, PART_OF} & content.additional_properties.keys()
    )


def _replayable(message: Message, *, stored: bool, keeps_reasoning: Callable[[Content], bool]) -> Message:
    groups = _joined_reasoning(groups_of(message.contents))
    kept: list[Content] = []
    bare = False
    for place, group in enumerate(groups):
        following = groups[place + 1] if place + 1 < len(groups) else None
        if group[0].type == "text_reasoning" and not (
            keeps_reasoning(group[0]) or _goes_with(group, following, stored=stored)
        ):
            bare = True
        elif bare or _is_gone(group):
            bare = True
            kept += _without_id(group, stored=stored)
        else:
            kept += group
    return message if kept == list(message.contents) else with_contents(message, kept)


def _joined_reasoning(groups: Iterable[list[Content]]) -> list[list[Content]]:
    """Join contents of one reasoning item that have no stamp."""
    joined: list[list[Content]] = []
    for group in groups:
        before = joined[-1][-1] if joined else None
        is_more = before is not None and before.type == group[0].type == "text_reasoning" and before.id == group[0].id
        if is_more and before is not None and before.id and not (stamp_of(group[0]) or stamp_of(before)):
            joined[-1] += group
        else:
            joined.append(group)
    return joined


def _goes_with(group: Sequence[Content], following: Sequence[Content] | None, *, stored: bool) -> bool:
    sealed = any(content.protected_data or content.additional_properties.get("encrypted_content") for content in group)
    if not sealed or not group[0].id or following is None or _is_gone(following):
        return False
    if any(following[0].type in row.unsent for row in ITEM_TYPES.values()) and stamp_of(following[0]) is None:
        return False
    # An answer without its id after stored reasoning is the recorded rejection. What follows an item of the API counts
    # as
    # one, too: without its stamp it was cut off or changed, and is not what the reasoning led to.
    needs_id = stored or stamp_of(group[0]) is not None
    return not (needs_id and following[0].type == "text" and stamp_of(following[0]) is None)


def _is_gone(group: Sequence[Content]) -> bool:
    return bool((stamp_of(group[0]) or {}).get(GONE))


def _without_id(group: list[Content], *, stored: bool) -> list[Content]:
    """Send a group so that it does not require the reasoning before it."""
    mark = stamp_of(group[0])
    if mark is None:
        return group
    row = item_type(mark["type"])
    if (row.needs_answer or row.is_sealed) and mark.get(GONE):
        return []
    if row.is_id_optional:
        first = copy.copy(group[0])
        first.additional_properties = first.additional_properties | {STAMP: {**mark, "id": None}}
        return [first, *group[1:]]
    if not stored and not mark.get(GONE):
        return group
    return [Content("text", text=row.tell(item_of(group)))] if row.tell else []


def accepted_item(item: Item) -> Item:
    """Remove from an item what the API is not known to accept back; the store keeps it. Guarantee: pure.

    Args:
        item: rebuilt from its contents.

    Returns:
        The item, or a copy where something was left out.
    """
    nulls = item_type(item["type"]).always_null
    return {**item, **dict.fromkeys(nulls)} if nulls else item


def with_valid_ids(items: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Give every item ids that the API accepts.

    Call ids over 64 characters come from other providers, repeated or malformed item ids from histories that lost their
    own. The new ids derive from the old ones, so they are the same on every turn. A repeated item of another kind is
    the same item, and is left out.

    Guarantee: pure.

    Args:
        items: of a request's input.

    Returns:
        New items where something changed.
    """
    valid: list[Item] = []
    seen: dict[str, int] = {}
    for item in resting(items):
        changed = dict(item)
        call_id, item_id, kind = changed.get("call_id"), changed.get("id"), changed.get("type")
        if isinstance(call_id, str) and len(call_id) > MAX_ID_CHARACTERS:
            changed["call_id"] = "call_" + derived_id(call_id)
        if item_id is not None and kind != "item_reference":
            times = seen.get(str(item_id), 0)
            seen[str(item_id)] = times + 1
            row = item_type(kind)
            is_good = _GOOD_ID.fullmatch(str(item_id)) is not None and not times
            if row.id_prefix and not (is_good and str(item_id).startswith(row.id_prefix)):
                changed["id"] = row.id_prefix + derived_id(str(item_id), str(call_id), str(times))
            elif not is_good and not row.id_prefix:
                if not row.is_id_optional:
                    continue
                del changed["id"]
        valid.append(changed)
    return valid


def with_valid_names(items: Iterable[Item], offered: Collection[str]) -> list[Item]:
    """Give function calls names that the API accepts: it refuses others, also of calls that it made itself.

    Guarantee: pure; the items given are not changed.

    Args:
        items: of a request's input.
        offered: names of the request's tools.

    Returns:
        The items, copies where the name changed.
    """
    return [
        {**item, "name": name}
        if item.get("type") == "function_call"
        and (name := accepted_name(item.get("name"), _NAME, offered)) != item.get("name")
        else item
        for item in resting(items)
    ]
