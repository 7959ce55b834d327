"""One row for each type of output item of the Responses API: all its handling.

A new hosted item is a new row in `ITEM_TYPES`. Without a row, an item is stored in full on an empty text, sent back
whole, and told as a call by its type. A row with only `input_fields` also knows which fields may be sent back.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.content import CONTENT_CODECS
from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.codec.tool_result_text import search_text
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.provider_item import HostedCall
from durable_agent_host.model.repair_rules import RepairRules, StoredItem
from durable_agent_host.providers.openai import content_completion, item_rebuild
from durable_agent_host.providers.openai.item_rebuild import Item
from durable_agent_host.providers.services import UNKNOWN

Complete = Callable[[Mapping[str, Any], list[Content]], list[Content]]
"""A finished item and the framework's contents of it → the complete contents."""

Rebuild = Callable[[Sequence[Content], Mapping[str, Content]], Item]
"""An item's contents, in order and by their type → the fields of the item that they hold."""


_NO_REPAIR: Final = StoredItem()


@dataclass(frozen=True, kw_only=True)
class ItemType:
    """The handling of one type of item.

    Attributes:
        streams: field of an event that numbers a part of the item → the events with it; the empty name for events about
            the item as a whole.
        complete: adds what the framework's stream parser omits; None leaves the contents unchanged.
        matching_content_types: the types of its contents, for items that share a call id with another item; empty for
            any.
        input_fields: accepted back by the API. Source: openai-python 3.52, the ``Param`` types. Empty for items that
            the framework sends back itself.
        may_be_null: input fields that are sent even when null.
        trim: removes from the item what is not valid as input.
        rebuild: reads fields of the item from its contents, so that they are stored once.
        required_fields: fields without which the API rejects the item.
        always_null: fields that are sent as null, whatever their value: no accepted recorded request had a value.
        contents: the types of the contents that the item needs, unless its metadata has `content_field`.
        content_field: see `contents`.
        repair: further data for `session.repair`; see `StoredItem`.
        unsent: types of its contents that the framework's client omits when they represent no item.
        is_id_optional: whether the API accepts it without its id.
        id_prefix: required prefix of its id.
        needs_result: whether it needs a result from the app.
        is_encrypted: whether its payload is encrypted.
        describe: describes the item as text, for when it can no longer be sent.
        hosted_call: what the finished item says of a call that the service runs; None for other items.
    """

    streams: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    complete: Complete | None = None
    matching_content_types: frozenset[str] = frozenset()
    input_fields: frozenset[str] = frozenset()
    may_be_null: frozenset[str] = frozenset()
    trim: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    rebuild: Rebuild | None = None
    required_fields: tuple[str, ...] = ()
    always_null: tuple[str, ...] = ()
    contents: tuple[str, ...] = ()
    content_field: str = ""
    repair: StoredItem = _NO_REPAIR
    unsent: frozenset[str] = frozenset()
    is_id_optional: bool = False
    id_prefix: str = ""
    needs_result: bool = False
    is_encrypted: bool = False
    describe: Callable[[Item], str] | None = None
    hosted_call: Callable[[Item], HostedCall | None] | None = None


def _fields(names: str) -> frozenset[str]:
    return frozenset(names.split())


def _events(stem: str) -> dict[str, tuple[str, ...]]:
    return {"": (f"{stem}.delta", f"{stem}.done")}


def _without_foreign_sources(item: Mapping[str, Any]) -> Item:
    """Remove the sources of a search if they are not valid as input: the API returns some without a URL.

    An item without an action gets null: the API requires the field.
    """
    action = dict(cast("Item", item.get("action") or {}))
    sources = cast("list[Item]", action.get("sources") or [])
    if all(source.get("type") == "url" for source in sources):
        return {"action": None, **item}
    del action["sources"]
    return {**item, "action": action}


def _without_empty_content(item: Mapping[str, Any]) -> Item:
    """Remove the empty ``content`` of OpenAI's reasoning, as in the accepted recorded requests."""
    return {name: value for name, value in item.items() if name != "content" or value or "response_id" in item}


def _with_safety_checks(item: Mapping[str, Any]) -> Item:
    """Add the list that the API requires."""
    return {**item, "pending_safety_checks": item.get("pending_safety_checks") or []}


def _describe_code_run(item: Item) -> str:
    logs = "".join(str(output.get("logs") or "") for output in cast("list[Item]", item.get("outputs") or []))
    return f"I ran this code:\n```python\n{item.get('code') or ''}\n```" + (f"\nIt printed:\n{logs}" if logs else "")


def _call(item: Item, name: str, arguments: Any, *, id_field: str = "id", **details: Any) -> HostedCall:
    """Return a call that has ended, unless an outcome is among the details; xAI sends ``arguments`` of all calls."""
    has_failed = bool(item.get("error")) or item.get("status") == "failed"
    outcome: ToolOutcome = "error" if has_failed else "not_run" if item.get("status") == "incomplete" else "success"
    arguments = arguments or item.get("arguments")
    found = search_text(item.get("results") or value_at(item, "action", "sources"))
    result = found or str(value_at(item, "error", "message") or "")
    return HostedCall(str(item.get(id_field) or ""), name, arguments, outcome, result)._replace(**details)


def _call_of(name: str, *fields: str) -> Callable[[Item], HostedCall]:
    """Return what reads a call with these fields as its arguments."""
    return lambda item: _call(item, name, {name: item[name] for name in fields if item.get(name) is not None})


def _web_search(item: Item) -> HostedCall:
    arguments = {name: value for name, value in object_at(item, "action").items() if name != "sources"}
    return _call(item, "web_search", arguments)


def _mcp_call(item: Item) -> HostedCall:
    request_id = item.get("approval_request_id")
    return _call(item, str(item.get("name") or "mcp"), None, approval_request_id=request_id)


def _shell_call(item: Item) -> HostedCall | None:
    """Return a call in a container of the service; otherwise the client runs it."""
    if not str(value_at(item, "environment", "type") or "").startswith("container"):
        return None
    return _call(item, "shell", item.get("action"), id_field="call_id", outcome=None)


SERVICE_CALL: Final = "xs_call"
"""Prefix of the call ids of custom tools that the service runs: xAI's searches on X."""


def _custom_call(item: Item) -> HostedCall | None:
    if not str(item.get("call_id")).startswith(SERVICE_CALL):
        return None
    return _call(item, str(item.get("name")), item.get("input"), id_field="call_id")


def _tool_search(item: Item) -> HostedCall | None:
    return None if item.get("execution") == "client" else _call(item, "tool_search", None)


def _program(item: Item) -> HostedCall:
    return _call(item, "program", {"code": item.get("code")}, id_field="call_id", outcome=None)


def _program_output(item: Item) -> HostedCall:
    return _call(item, "", None, id_field="call_id", result=str(item.get("result") or ""))


def _unknown_call(item: Item) -> HostedCall:
    """Return an item of unknown type as a call: told by its type, with all that it has, or as the output of one."""
    kind = str(item["type"])
    id_field = "call_id" if item.get("call_id") else "id"
    if kind.endswith("_output"):
        return _call(item, "", None, id_field=id_field, result=str(item.get("output") or ""))
    arguments = {name: value for name, value in item.items() if name not in {"type", "id", "call_id", "status"}}
    has_output = id_field == "id" or any(item.get(name) is not None for name in ("output", "result", "results"))
    known_item = {"id": f"{kind}_{derived_id(str(item))}", **item}
    return _call(known_item, kind, item.get("arguments") or arguments, id_field=id_field, has_output=has_output)


_SERVICES_FIELDS: Final = _fields("signature format response_id")
"""Of reasoning: the first two of OpenRouter, the last of Foundry."""

_SEARCHES: Final = _fields("search_tool_call search_tool_result")

ITEM_TYPES: Final[dict[str, ItemType]] = {
    "message": ItemType(
        streams={
            "content_index": (
                *("output_text.delta", "output_text.done", "output_text.annotation.added"),
                *("content_part.added", "content_part.done", "refusal.delta", "refusal.done"),
            )
        },
        complete=content_completion.complete_message,
        input_fields=_fields("id role status phase content"),
        rebuild=item_rebuild.message_fields,
        required_fields=("content", "role"),
        contents=("text",),
        content_field="content",
        repair=StoredItem(is_null_valid=False),
        is_id_optional=True,
    ),
    "reasoning": ItemType(
        streams={
            "content_index": ("reasoning_text.delta", "reasoning_text.done"),
            "summary_index": ("reasoning_summary_text.delta", "reasoning_summary_text.done"),
        },
        complete=content_completion.complete_reasoning,
        input_fields=_fields("id summary content encrypted_content status") | _SERVICES_FIELDS,
        trim=_without_empty_content,
        rebuild=item_rebuild.reasoning_fields,
        contents=("text_reasoning",),
        content_field="summary",
        is_encrypted=True,
    ),
    "function_call": ItemType(
        streams=_events("function_call_arguments"),
        complete=content_completion.complete_function_call,
        matching_content_types=frozenset({"function_call"}),
        input_fields=_fields("id call_id name arguments status namespace caller async"),
        rebuild=item_rebuild.function_call_fields,
        required_fields=("call_id", "name", "arguments"),
        contents=("function_call",),
        content_field="arguments",
        is_id_optional=True,
        id_prefix="fc_",
        needs_result=True,
    ),
    "code_interpreter_call": ItemType(
        streams=_events("code_interpreter_call_code"),
        complete=content_completion.complete_code,
        input_fields=_fields("id code container_id outputs status"),
        may_be_null=_fields("outputs code"),
        rebuild=item_rebuild.code_fields,
        required_fields=("id", "code", "container_id"),
        always_null=("outputs",),
        contents=("code_interpreter_tool_call", "code_interpreter_tool_result"),
        content_field="code",
        repair=StoredItem(
            call_name="code run",
            empty_result={"type": "code_interpreter_tool_result", "outputs": []},
            owner=("container_id", "container"),
        ),
        unsent=_fields("code_interpreter_tool_call code_interpreter_tool_result"),
        describe=_describe_code_run,
        hosted_call=_call_of("code_interpreter", "code"),
    ),
    "web_search_call": ItemType(
        complete=content_completion.complete_search,
        input_fields=_fields("id action status name arguments call_id"),  # xAI: arguments instead of an action
        may_be_null=_fields("action"),
        trim=_without_foreign_sources,
        rebuild=item_rebuild.web_search_fields,
        required_fields=("id", "action"),
        contents=("search_tool_result",),
        content_field="action",
        unsent=_SEARCHES,
        hosted_call=_web_search,
    ),
    "file_search_call": ItemType(
        complete=content_completion.complete_search,
        input_fields=_fields("id queries results status"),
        rebuild=item_rebuild.file_search_fields,
        required_fields=("id", "queries"),
        contents=("search_tool_call", "search_tool_result"),
        content_field="queries",
        unsent=_SEARCHES,
        hosted_call=_call_of("file_search", "queries"),
    ),
    "mcp_call": ItemType(
        streams=_events("mcp_call_arguments"),
        complete=content_completion.complete_mcp,
        input_fields=_fields("id name server_label arguments output error approval_request_id status"),
        rebuild=item_rebuild.mcp_fields,
        required_fields=("id", "name", "server_label", "arguments"),
        contents=("mcp_server_tool_call",),
        content_field="arguments",
        hosted_call=_mcp_call,
    ),
    "mcp_list_tools": ItemType(
        input_fields=_fields("id server_label tools error"),
        required_fields=("id", "server_label", "tools"),
    ),
    "mcp_approval_request": ItemType(
        complete=content_completion.complete_approval,
        input_fields=_fields("id name server_label arguments"),
        rebuild=item_rebuild.approval_fields,
        required_fields=("id", "name", "server_label", "arguments"),
        contents=("function_approval_request",),
        content_field="arguments",
    ),
    "image_generation_call": ItemType(
        complete=content_completion.complete_image,
        input_fields=_fields("id result status action background output_format quality revised_prompt size"),
        rebuild=item_rebuild.image_fields,
        required_fields=("id", "result"),
        contents=("image_generation_tool_result",),
        content_field="result",
        unsent=_fields("image_generation_tool_call image_generation_tool_result"),
        hosted_call=_call_of("image_generation", "action", "revised_prompt", "size", "quality", "background"),
    ),
    "shell_call": ItemType(
        complete=content_completion.complete_call,
        matching_content_types=frozenset({"shell_tool_call", "function_call"}),
        input_fields=_fields("id call_id action environment status caller"),
        hosted_call=_shell_call,
        required_fields=("call_id", "action"),
        is_id_optional=True,
        needs_result=True,
    ),
    "shell_call_output": ItemType(
        complete=content_completion.complete_shell_output,
        matching_content_types=frozenset({"shell_tool_result"}),
        input_fields=_fields("id call_id output max_output_length status caller"),
        rebuild=item_rebuild.shell_output_fields,
        required_fields=("call_id", "output"),
        contents=("shell_tool_result",),
        content_field="output",
        hosted_call=lambda item: _call(item, "", None, id_field="call_id"),
    ),
    "local_shell_call": ItemType(
        complete=content_completion.complete_call,
        input_fields=_fields("id call_id action status"),
        needs_result=True,
    ),
    "apply_patch_call": ItemType(
        complete=content_completion.complete_patch,
        input_fields=_fields("id call_id operation status caller"),
        rebuild=item_rebuild.patch_fields,
        required_fields=("call_id", "operation"),
        is_id_optional=True,
        needs_result=True,
    ),
    "custom_tool_call": ItemType(
        streams=_events("custom_tool_call_input"),
        complete=content_completion.complete_custom_call,
        input_fields=_fields("id call_id name input namespace caller async"),
        required_fields=("call_id", "name", "input"),
        is_id_optional=True,
        needs_result=True,
        hosted_call=_custom_call,
    ),
    "computer_call": ItemType(
        complete=content_completion.complete_call,
        input_fields=_fields("id call_id action actions pending_safety_checks status"),
        trim=_with_safety_checks,
        required_fields=("id", "call_id"),
        needs_result=True,
    ),
    "tool_search_call": ItemType(
        complete=lambda item, contents: contents[:1] if item.get("execution") == "client" else [],
        input_fields=_fields("id call_id arguments execution status"),
        needs_result=True,
        hosted_call=_tool_search,
    ),
    "tool_search_output": ItemType(input_fields=_fields("id call_id tools execution status")),
    "program": ItemType(input_fields=_fields("id call_id code fingerprint"), hosted_call=_program),
    "program_output": ItemType(input_fields=_fields("id call_id result status"), hosted_call=_program_output),
    "compaction": ItemType(
        input_fields=_fields("id encrypted_content"),
        required_fields=("encrypted_content",),
        is_encrypted=True,
        is_id_optional=True,
    ),
}
"""Type of output item → its row."""

_UNKNOWN: Final = ItemType(hosted_call=_unknown_call)


def item_type(kind: Any) -> ItemType:
    """Return the row for a type of item.

    Returns:
        The row; for types that have none, one by which the item is stored and sent back whole.
    """
    return ITEM_TYPES.get(kind, _UNKNOWN) if isinstance(kind, str) else _UNKNOWN


def repair_rules(provider: str) -> RepairRules:
    """Return the rows' data on stored conversations as rules for `session.repair`.

    Args:
        provider: its name in the metadata of items.

    Returns:
        The rules of the Responses API.
    """
    return RepairRules(
        provider=provider,
        knows_items=True,
        items={kind: _repair_rule(row) for kind, row in ITEM_TYPES.items()},
        item_id_paths=(("fc_id",), ("openai", "item_id")),
        max_id_characters=UNKNOWN.max_id_characters,
        # The framework's client makes the item id of a call without one from this prefix and the call id.
        max_bare_call_id_characters=UNKNOWN.max_id_characters - len(ITEM_TYPES["function_call"].id_prefix),
        never_sent=frozenset(_wire_type(content_type) for row in ITEM_TYPES.values() for content_type in row.unsent),
    )


def _repair_rule(row: ItemType) -> StoredItem:
    contents = tuple(map(_wire_type, row.contents))
    return replace(row.repair, field=row.content_field, contents=contents, is_id_optional=row.is_id_optional)


def _wire_type(content_type: str) -> str:
    return CONTENT_CODECS[content_type].wire_type
