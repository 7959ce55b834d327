"""Prepares a conversation for the Responses API: changes to messages and input items before a request.

The API checks by id. A stored item that followed reasoning must come with that reasoning; reasoning must come with its
encrypted payload, and with the item that followed it. If a part of such a group cannot be sent, the group is sent
without ids, as plain text and calls, which the API accepts.

Source: recorded requests (`multiturn/ci-replay-store-default`, `reasoning-modified-history-400`, `fn-*`).
"""

import copy
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from mimetypes import guess_type
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.provider_item import ITEM, LOST_RESULT, PART_OF, STAMP
from durable_agent_host.providers.call_pairing import accepted_name, object_arguments, unique_id
from durable_agent_host.providers.cross_provider_history import SERVICE_CONTENTS, as_neutral, describe_content
from durable_agent_host.providers.item_metadata import is_edited
from durable_agent_host.providers.lost_state import LossRules, with_contents
from durable_agent_host.providers.openai.item_mapping import (
    approval_request_id,
    approval_response_id,
    find_item_metadata,
    group_by_item,
)
from durable_agent_host.providers.openai.item_types import SERVICE_CALL, Item, item_type
from durable_agent_host.providers.result_files import with_items
from durable_agent_host.providers.services import Service

# Marks the items that the service has lost or can no longer read; see `providers.lost_state`.

LOST: Final = "gone"
"""Key in item metadata: the item can no longer be sent. Only on copies for one request; never stored."""


def _mark_content(content: Content, is_unreadable: bool) -> Content:
    metadata = find_item_metadata(content)
    clone = copy.copy(content)
    properties = {name: value for name, value in content.additional_properties.items() if name != "encrypted_content"}
    clone.additional_properties = properties | ({STAMP: {**metadata, LOST: True}} if metadata else {})
    if is_unreadable:
        clone.protected_data = None
    return clone


def _encrypted_item_ids(content: Content) -> list[str]:
    """Return the id of the item with an encrypted payload that a content is or belongs to."""
    metadata = find_item_metadata(content) or {}
    is_encrypted = content.type == "text_reasoning" or item_type(metadata.get("type")).is_encrypted
    item_id = cast("str | None", content.id or metadata.get("id"))
    return [item_id] if is_encrypted and item_id else []


def _list_containers(contents: Sequence[Content]) -> list[str]:
    """List the containers of the code runs that would be replayed."""
    container_ids = (
        content.additional_properties.get("container_id") for content in contents if find_item_metadata(content)
    )
    return [str(name) for name in container_ids if name]


LOSS_RULES: Final = LossRules(_encrypted_item_ids, _list_containers, _mark_content)
"""Items that can no longer be sent are marked as lost."""


# Closes open calls in a transcript that is sent in full: the API rejects a call without its result.
#
# A turn can end with an open call: of a tool that the app only declares, of a turn that was cancelled, or an approval
# without a decision. The stored conversation does not change; the sent one is closed.

_RESULT_TYPES: Final = frozenset({"function_result", "shell_tool_result", "computer_tool_result"})


def with_closed_calls(messages: Sequence[Message]) -> list[Message]:
    """Close open calls, and remove results without their call.

    Returns:
        The messages. A function call without a result gets one that reports it as unknown; other calls of the app's
        tools, and open approvals, are marked, so that they are omitted with everything that depends on them.
    """
    open_calls, orphan_results = _find_unpaired_calls(messages)
    open_approvals, orphan_approvals = _find_unpaired_approvals(messages)
    orphan_ids = orphan_results | orphan_approvals
    open_ids = open_calls | open_approvals
    if not orphan_ids and not open_ids:
        return list(messages)
    messages_to_send: list[Message] = []
    for message in messages:
        paired_contents = [content for content in message.contents if id(content) not in orphan_ids]
        open_functions = [content for content in paired_contents if id(content) in open_calls and _is_function(content)]
        contents = [
            _mark_content(content, is_unreadable=False)
            if id(content) in open_ids and not _is_function(content)
            else content
            for content in paired_contents
        ]
        if contents or not message.contents:
            messages_to_send.append(message if contents == list(message.contents) else with_contents(message, contents))
        if open_functions:
            results = [Content("function_result", call_id=call.call_id, result=LOST_RESULT) for call in open_functions]
            messages_to_send.append(Message("tool", results))
    return messages_to_send


def _find_unpaired_calls(messages: Sequence[Message]) -> tuple[set[int], set[int]]:
    """Find calls without a result and function results without a call, by object identity.

    A result belongs to the nearest open call of its id before it, since ids may recur in a later turn.
    """
    pending_calls: dict[str, list[Content]] = {}
    orphan_results: set[int] = set()
    for content in (content for message in messages for content in message.contents):
        metadata = find_item_metadata(content) or {}
        call_id = str(value_at(metadata, ITEM, "call_id") or content.call_id or SERVICE_CALL)
        if call_id.startswith(SERVICE_CALL):
            continue
        if _is_function(content) or item_type(metadata.get("type")).needs_result:
            pending_calls.setdefault(call_id, []).append(content)
        elif content.type in _RESULT_TYPES:
            if calls := pending_calls.get(str(content.call_id)):
                calls.pop()
            elif content.type != "shell_tool_result":
                orphan_results.add(id(content))
    return {id(content) for calls in pending_calls.values() for content in calls}, orphan_results


def _find_unpaired_approvals(messages: Sequence[Message]) -> tuple[set[int], set[int]]:
    """Find approval items without a response, and other approval contents without a counterpart."""
    contents = [content for message in messages for content in message.contents]
    requests = {id(content): request for content in contents if (request := approval_request_id(content))}
    responses = {id(content): request for content in contents if (request := approval_response_id(content))}
    requested, responded = {*requests.values()}, {*responses.values()}
    open_ids = {key for key, request in requests.items() if request not in responded}
    orphan_ids = {key for key, request in responses.items() if request not in requested}
    item_ids = {id(content) for content in contents if id(content) in open_ids and find_item_metadata(content)}
    return item_ids, (open_ids | orphan_ids) - item_ids


def _is_function(content: Content) -> bool:
    """Return whether a content is sent as a call of a function tool."""
    metadata = find_item_metadata(content)
    return content.type == "function_call" and (metadata is None or metadata.get("type") == "function_call")


_NO_ID: Final = re.compile(r"(?!)")
_VALID_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_MAX_ID_CHARACTERS: Final = 64
_CALL_ID: Final = re.compile(rf".{{1,{_MAX_ID_CHARACTERS}}}", re.DOTALL)

_KIND_PROPERTIES: Final = frozenset({"openai", "openai_content_type"})
"""Keys of ``additional_properties`` by which the client recognizes the kind of a link."""
_DATA_KIND: Final = re.compile(r"data:([^;,]*)")


def replayable_messages(
    messages: Sequence[Message],
    service: Service,
    *,
    uses_service_storage: bool,
    can_send_reasoning: Callable[[Sequence[Content]], bool],
) -> list[Message]:
    """Remove the reasoning that cannot be replayed, and the ids that would require it.

    Returns:
        The same messages, or copies where something was removed.
    """
    sendable_messages = [_with_media_types(_without_edited_items(message)) for message in messages]
    return [
        _make_replayable(
            message, service, uses_service_storage=uses_service_storage, can_send_reasoning=can_send_reasoning
        )
        if message.role == "assistant"
        else message
        for message in sendable_messages
    ]


def _without_edited_items(message: Message) -> Message:
    """Remove the item of contents that no longer say what it says, and items that are damaged."""
    contents: list[Content] = []
    for group in group_by_item(message.contents):
        was_item = not group[0].additional_properties.keys().isdisjoint((STAMP, PART_OF))
        if was_item and (find_item_metadata(group[0]) is None or is_edited(group)):
            # Reasoning is encrypted as it was, and has to be followed by its item.
            contents += [as_neutral(content) for content in group if content.type != "text_reasoning"]
        else:
            contents += group
    return message if contents == list(message.contents) else with_contents(message, contents)


def _with_media_types(message: Message) -> Message:
    """Set the media type of every link, or convert it to text: the client rejects links without a media type."""
    contents = [_with_media_type(content) for content in message.contents]
    return message if contents == list(message.contents) else with_contents(message, contents)


def _with_media_type(content: Content) -> Content:
    if content.type == "function_result" and content.items:
        items = [_with_media_type(item) for item in content.items]
        if items == list(content.items):
            return content
        return with_items(content, items)
    if content.type not in {"data", "uri"} or content.media_type or not content.uri:
        return content
    if content.additional_properties.keys() & _KIND_PROPERTIES:
        return content
    kind = _DATA_KIND.match(content.uri)
    media_type = (kind[1] or "text/plain") if kind else guess_type(content.uri)[0] or ""
    if not kind and not media_type.startswith("image/"):
        return Content.from_text(content.uri)
    clone = copy.copy(content)
    clone.media_type = media_type
    return clone


def _make_replayable(
    message: Message,
    service: Service,
    *,
    uses_service_storage: bool,
    can_send_reasoning: Callable[[Sequence[Content]], bool],
) -> Message:
    groups = _merge_reasoning(group_by_item(message.contents))
    contents: list[Content] = []
    is_plain = False
    for index, group in enumerate(groups):
        next_group = groups[index + 1] if index + 1 < len(groups) else None
        is_sent = group[0].type != "text_reasoning" or (can_send_reasoning(group) and not _is_lost(group))
        if not is_sent and not _can_precede(group, next_group, service, uses_service_storage=uses_service_storage):
            is_plain = True
        elif is_plain or _is_lost(group):
            is_plain = True
            contents += _without_id(group, uses_service_storage=uses_service_storage)
        else:
            contents += group
    return message if contents == list(message.contents) else with_contents(message, contents)


def _merge_reasoning(groups: Iterable[list[Content]]) -> list[list[Content]]:
    """Merge adjacent contents of one reasoning item that have no metadata."""
    merged_groups: list[list[Content]] = []
    for group in groups:
        last_content = merged_groups[-1][-1] if merged_groups else None
        if (
            last_content is not None
            and last_content.id
            and last_content.type == group[0].type == "text_reasoning"
            and last_content.id == group[0].id
            and not (find_item_metadata(group[0]) or find_item_metadata(last_content))
        ):
            merged_groups[-1] += group
        else:
            merged_groups.append(group)
    return merged_groups


def _can_precede(
    group: Sequence[Content], next_group: Sequence[Content] | None, service: Service, *, uses_service_storage: bool
) -> bool:
    is_encrypted = any(
        content.protected_data or content.additional_properties.get("encrypted_content") for content in group
    )
    if not is_encrypted or not group[0].id:
        return False
    if next_group is None:
        return not service.checks_items
    if _is_lost(next_group):
        return False
    if next_group[0].type in SERVICE_CONTENTS and find_item_metadata(next_group[0]) is None:
        return False
    # The API rejects a text without an id after stored reasoning (recorded). A text without metadata after an item of
    # the API was interrupted or changed, and is not the result of that reasoning.
    needs_id = uses_service_storage or find_item_metadata(group[0]) is not None
    return not (needs_id and next_group[0].type == "text" and find_item_metadata(next_group[0]) is None)


def _is_lost(group: Sequence[Content]) -> bool:
    return bool((find_item_metadata(group[0]) or {}).get(LOST))


def _without_id(group: list[Content], *, uses_service_storage: bool) -> list[Content]:
    """Send a group so that it does not require the reasoning before it."""
    metadata = find_item_metadata(group[0])
    if metadata is None:
        return group
    row = item_type(metadata["type"])
    if (row.needs_result or row.is_encrypted) and metadata.get(LOST):
        return []
    if row.is_id_optional:
        first = copy.copy(group[0])
        first.additional_properties = first.additional_properties | {STAMP: {**metadata, "id": None}}
        return [first, *group[1:]]
    if not uses_service_storage and not metadata.get(LOST):
        return group
    return [Content("text", text=text) for content in group if (text := describe_content(content))]


def with_valid_ids(items: Iterable[Mapping[str, Any]], service: Service) -> list[Item]:
    """Give every item ids that the service accepts.

    Call ids over 64 characters come from other providers, repeated ones from services whose ids are unique only within
    a response, repeated or malformed item ids from histories that lost their own. The new ids derive from the old ones,
    so they are the same on every turn. An item that comes again unchanged is omitted, unless its id is optional.

    Returns:
        New items where something changed.
    """
    valid_items: list[Item] = []
    items_by_id: dict[str, list[Mapping[str, Any]]] = {}
    call_counts = Counter[str]()
    open_call_ids: dict[str, list[str]] = {}
    for item in items:
        valid_item = dict(item)
        call_id = valid_item.get("call_id")
        item_id = valid_item.get("id")
        kind = valid_item.get("type")
        if isinstance(call_id, str) and str(kind).endswith("_output"):
            sent_ids = open_call_ids.get(call_id) or [unique_id(call_id, Counter(), _CALL_ID, "call_")]
            valid_item["call_id"] = sent_ids.pop(0)
        elif isinstance(call_id, str) and call_id:
            valid_ids = service.call_ids if len(call_id) <= _MAX_ID_CHARACTERS else _NO_ID
            valid_item["call_id"] = unique_id(call_id, call_counts, valid_ids, "call_")
            open_call_ids.setdefault(call_id, []).append(valid_item["call_id"])
        if item_id is not None and kind != "item_reference":
            earlier_items = items_by_id.setdefault(str(item_id), [])
            row = item_type(kind)
            is_valid = _VALID_ID.fullmatch(str(item_id)) is not None and not earlier_items
            if row.id_prefix and not (is_valid and str(item_id).startswith(row.id_prefix)):
                valid_item["id"] = row.id_prefix + derived_id(str(item_id), str(call_id), str(len(earlier_items)))
            elif not is_valid and not row.id_prefix:
                is_new = item not in earlier_items
                if row.is_id_optional or (row.is_encrypted and service.checks_items and is_new):
                    del valid_item["id"]
                elif service.checks_items or not is_new:
                    continue
            earlier_items.append(item)
        valid_items.append(valid_item)
    return valid_items


_FULL_MESSAGE: Final = {"type": "message", "status": "completed"}
_PROTECTED_FIELDS: Final = frozenset(
    {"type", "id", "call_id", "arguments", "output", "content", "role", "text", "annotations"}
)


def items_for(items: Iterable[Item], service: Service) -> list[Item]:
    """Bring items into the form that a service takes; see `services.Service`."""
    return [_accepted_item(item, service, position) for position, item in enumerate(items)]


def _accepted_item(item: Item, service: Service, position: int) -> Item:
    accepted_fields = item
    kind = item.get("type", "message")
    if service.rejected_fields:
        rejected_fields = service.rejected_fields - _PROTECTED_FIELDS - (frozenset() if kind == "message" else {"name"})
        accepted_fields = _without_fields(item, rejected_fields)
    if kind == "function_call" and not service.accepts_any_arguments:
        accepted_fields = {**accepted_fields, "arguments": object_arguments(item.get("arguments"))}
    if kind == "message" and item.get("role") == "developer" and not service.has_developer_role:
        accepted_fields = {**accepted_fields, "role": "system"}
    if kind == "message" and item.get("role") == "assistant" and service.needs_message_ids:
        accepted_fields = {**_FULL_MESSAGE, "id": f"msg_{derived_id(str(position))}", **accepted_fields}
    return accepted_fields


def _without_fields(item: Item, rejected_fields: AbstractSet[str]) -> Item:
    fields: Item = {name: value for name, value in item.items() if name not in rejected_fields}
    parts = fields.get("content")
    if isinstance(parts, list):
        fields["content"] = [
            _without_fields(cast("Item", part), rejected_fields) if isinstance(part, dict) else part
            for part in cast("list[Any]", parts)
        ]
    return fields


def with_valid_names(items: Iterable[Item], tool_names: Collection[str]) -> list[Item]:
    """Give function calls names that the API accepts: it rejects others, also of calls that it returned itself.

    Returns:
        The items, copies where the name changed.
    """
    return [
        {**item, "name": name}
        if item.get("type") == "function_call"
        and (name := accepted_name(item.get("name"), tool_names)) != item.get("name")
        else item
        for item in items
    ]
