"""What of a conversation the Responses API takes back: pure changes to messages and input items before a request.

The API checks by id. A stored item that followed reasoning has to come with that reasoning; reasoning has to come with
its encrypted payload, and with the item that followed it. Where a part of such a group cannot be sent, the group is
sent without ids, as plain text and calls, which the API takes.

Source: recorded requests (`multiturn/ci-replay-store-default`, `reasoning-modified-history-400`, `fn-*`).
"""

import copy
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.openai.items import Item, groups_of, item_of, stamp_of

MAX_ID_CHARACTERS: Final = 64
_GOOD_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ID_IS_OPTIONAL: Final = frozenset({"message", "function_call"})
_NEEDS_ANSWER: Final = frozenset(
    {"function_call", "custom_tool_call", "apply_patch_call", "local_shell_call", "shell_call"}
)
_GONE: Final = "gone"


def replayable_messages(
    messages: Sequence[Message], *, stored: bool, keeps_reasoning: Callable[[Content], bool]
) -> list[Message]:
    """Leave out the reasoning that cannot be replayed, and the ids that would ask for it.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: what is to be sent, history first.
        stored: whether the service stores what it is sent, and so knows the ids.
        keeps_reasoning: whether the client can send reasoning that has no encrypted payload.

    Returns:
        The same messages, or copies where something was left out.
    """
    messages = _without_open_calls(messages)
    return [
        _replayable(message, stored=stored, keeps_reasoning=keeps_reasoning) if message.role == "assistant" else message
        for message in messages
    ]


def _without_open_calls(messages: Sequence[Message]) -> list[Message]:
    """Mark the calls that nobody answered: the API takes no call of an app's tool without its output."""
    answered = {content.call_id for message in messages for content in message.contents if _is_answer(content)}

    def marked(content: Content) -> Content:
        mark = stamp_of(content)
        if mark is None or mark["type"] not in _NEEDS_ANSWER or mark.get("call_id", content.call_id) in answered:
            return content
        changed = copy.copy(content)
        changed.additional_properties = content.additional_properties | {STAMP: {**mark, _GONE: True}}
        return changed

    return [
        message if contents == list(message.contents) else _with_contents(message, contents)
        for message in messages
        for contents in [[marked(content) for content in message.contents]]
    ]


def _is_answer(content: Content) -> bool:
    return content.type in {"function_result", "shell_tool_result", "computer_tool_result"}


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
    return message if kept == list(message.contents) else _with_contents(message, kept)


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
    # An answer without its id after stored reasoning is the recorded rejection.
    return not (stored and following[0].type == "text" and stamp_of(following[0]) is None)


def _is_gone(group: Sequence[Content]) -> bool:
    return bool((stamp_of(group[0]) or {}).get(_GONE))


def _without_id(group: list[Content], *, stored: bool) -> list[Content]:
    """Send a group so that it does not ask for the reasoning before it."""
    mark = stamp_of(group[0])
    if mark is None:
        return group
    if mark["type"] in _NEEDS_ANSWER and mark.get(_GONE):
        return []
    if mark["type"] in _ID_IS_OPTIONAL:
        first = copy.copy(group[0])
        first.additional_properties = first.additional_properties | {STAMP: {**mark, "id": None}}
        return [first, *group[1:]]
    if not stored and not mark.get(_GONE):
        return group
    return [Content("text", text=_told(item_of(group)))] if mark["type"] == "code_interpreter_call" else []


def _told(item: Item) -> str:
    """Tell of a code run in words, when the run itself can no longer be sent."""
    logs = "".join(str(output.get("logs") or "") for output in cast("list[Item]", item.get("outputs") or []))
    return f"I ran this code:\n```python\n{item.get('code') or ''}\n```" + (f"\nIt printed:\n{logs}" if logs else "")


def _with_contents(message: Message, contents: list[Content]) -> Message:
    changed = copy.copy(message)
    changed.contents = contents
    return changed


def without_containers(messages: Iterable[Message], container_ids: Iterable[str]) -> list[Message]:
    """Mark the code runs of containers that have expired: they are told in words.

    Guarantee: pure; the messages given are not changed.

    Args:
        messages: the stored conversation.
        container_ids: which containers are gone.

    Returns:
        The messages, with copies of the contents that changed.
    """
    gone = set(container_ids)

    def marked(content: Content) -> Content:
        if stamp_of(content) is None or content.additional_properties.get("container_id") not in gone:
            return content
        changed = copy.copy(content)
        mark = {**cast("Mapping[str, Any]", stamp_of(content)), _GONE: True}
        changed.additional_properties = content.additional_properties | {STAMP: mark}
        return changed

    return [_with_contents(message, [marked(content) for content in message.contents]) for message in messages]


def containers_of(messages: Iterable[Message]) -> list[str]:
    """List the containers of the code runs that would be replayed. Guarantee: pure.

    Args:
        messages: the stored conversation.

    Returns:
        Container ids in order of first use.
    """
    found = [
        content.additional_properties.get("container_id")
        for message in messages
        for content in message.contents
        if (mark := stamp_of(content)) is not None and not mark.get(_GONE)
    ]
    return list(dict.fromkeys(str(name) for name in found if name))


def with_valid_ids(items: Iterable[Mapping[str, Any]]) -> list[Item]:
    """Give every function call ids that the API takes.

    Call ids over 64 characters come from other providers, item ids that come twice or have other characters from
    histories that lost their own. The new ids follow from the old ones, so they are the same on every turn.

    Guarantee: pure.

    Args:
        items: of a request's input.

    Returns:
        New items where something changed.
    """
    valid: list[Item] = []
    seen: dict[str, int] = {}
    for item in items:
        changed = dict(item)
        call_id = changed.get("call_id")
        if isinstance(call_id, str) and len(call_id) > MAX_ID_CHARACTERS:
            changed["call_id"] = "call_" + derived_id(call_id)
        item_id = changed.get("id")
        if changed.get("type") == "function_call" and item_id is not None:
            if not _GOOD_ID.fullmatch(str(item_id)) or not str(item_id).startswith("fc_") or item_id in seen:
                changed["id"] = "fc_" + derived_id(str(item_id), str(call_id), str(seen.get(str(item_id), 0)))
            seen[str(item_id)] = seen.get(str(item_id), 0) + 1
        valid.append(changed)
    return valid
