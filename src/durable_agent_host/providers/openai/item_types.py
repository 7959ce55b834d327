"""One row for each type of output item of the Responses API: all its handling.

A new hosted item is a new row in `ITEM_TYPES`. Without a row, an item is stored in full on an empty text, sent back
whole, and told as a call by its type.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.codec.tool_result_text import search_text
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.journal_entry import ToolOutcome
from durable_agent_host.model.provider_item import HostedCall
from durable_agent_host.providers.neutral_contents import approval_request
from durable_agent_host.providers.openai import content_completion

Item = dict[str, Any]

Complete = Callable[[Mapping[str, Any], list[Content]], list[Content]]
"""A finished item and the framework's contents of it → the complete contents."""


@dataclass(frozen=True, kw_only=True)
class ItemType:
    """The handling of one type of item.

    Attributes:
        streams: field of an event that numbers a part of the item → the events with it; the empty name for events about
            the item as a whole.
        complete: adds what the framework's stream parser omits; None leaves the contents unchanged.
        output_only: fields that the API does not accept back. Source: openai-python 3.52, the ``Param`` types. Others
            are known once the API refuses them (`lost_state.find_refusal`).
        may_be_null: fields that are sent even when null.
        trim: removes from the item what is not valid as input.
        is_id_optional: whether the API accepts it without its id.
        id_prefix: required prefix of its id.
        needs_result: whether it needs a result from the app.
        is_encrypted: whether its payload is encrypted.
        hosted_call: what the finished item says of a call that the service runs; None for other items.
    """

    streams: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    complete: Complete | None = None
    output_only: frozenset[str] = frozenset({"created_by"})
    may_be_null: frozenset[str] = frozenset()
    trim: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    is_id_optional: bool = False
    id_prefix: str = ""
    needs_result: bool = False
    is_encrypted: bool = False
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


def _without_outputs(item: Mapping[str, Any]) -> Item:
    """Null the outputs: no accepted recorded request had any."""
    return {**item, "outputs": None}


def _without_empty_content(item: Mapping[str, Any]) -> Item:
    """Remove the empty ``content`` of OpenAI's reasoning, as in the accepted recorded requests."""
    return {name: value for name, value in item.items() if name != "content" or value or "response_id" in item}


def _with_safety_checks(item: Mapping[str, Any]) -> Item:
    """Add the list that the API requires."""
    return {**item, "pending_safety_checks": item.get("pending_safety_checks") or []}


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
    return _call(item, str(item.get("name")), {"input": item.get("input")}, id_field="call_id")


def _unknown_call(item: Item) -> HostedCall:
    """Return an item of unknown type as a call: told by its type, with all that it has, or as the output of one."""
    kind = str(item["type"])
    id_field = "call_id" if item.get("call_id") else "id"
    if kind.endswith("_output"):
        return _call(item, "", None, id_field=id_field, result=str(item.get("output") or item.get("result") or ""))
    arguments = {
        name: value for name, value in item.items() if name not in {"type", "id", "call_id", "status", "fingerprint"}
    }
    has_output = id_field == "id" or any(item.get(name) is not None for name in ("output", "result", "results"))
    known_item = {"id": f"{kind}_{derived_id(str(item))}", **item}
    return _call(known_item, kind, item.get("arguments") or arguments, id_field=id_field, has_output=has_output)


ITEM_TYPES: Final[dict[str, ItemType]] = {
    "message": ItemType(
        streams={
            "content_index": (
                *("output_text.delta", "output_text.done", "output_text.annotation.added"),
                *("content_part.added", "content_part.done", "refusal.delta", "refusal.done"),
            )
        },
        complete=content_completion.complete_message,
        is_id_optional=True,
    ),
    "reasoning": ItemType(
        streams={
            "content_index": ("reasoning_text.delta", "reasoning_text.done"),
            "summary_index": ("reasoning_summary_text.delta", "reasoning_summary_text.done"),
        },
        complete=content_completion.complete_reasoning,
        trim=_without_empty_content,
        is_encrypted=True,
    ),
    "function_call": ItemType(
        streams=_events("function_call_arguments"),
        complete=content_completion.complete_function_call,
        is_id_optional=True,
        id_prefix="fc_",
        needs_result=True,
    ),
    "code_interpreter_call": ItemType(
        streams=_events("code_interpreter_call_code"),
        complete=content_completion.complete_code,
        may_be_null=_fields("outputs code"),
        trim=_without_outputs,
        hosted_call=_call_of("code_interpreter", "code"),
    ),
    "web_search_call": ItemType(
        complete=content_completion.complete_search,
        may_be_null=_fields("action"),
        trim=_without_foreign_sources,
        hosted_call=_web_search,
    ),
    "file_search_call": ItemType(
        complete=content_completion.complete_search,
        hosted_call=_call_of("file_search", "queries"),
    ),
    "mcp_call": ItemType(
        streams=_events("mcp_call_arguments"),
        complete=content_completion.complete_mcp,
        hosted_call=_mcp_call,
    ),
    "mcp_list_tools": ItemType(),
    "mcp_approval_request": ItemType(
        complete=lambda item, contents: contents or [approval_request(item)],
    ),
    "image_generation_call": ItemType(
        complete=content_completion.complete_image,
        hosted_call=_call_of("image_generation", "action", "prompt", "revised_prompt", "size", "quality", "background"),
    ),
    "shell_call": ItemType(
        complete=content_completion.complete_call,
        hosted_call=_shell_call,
        is_id_optional=True,
        needs_result=True,
    ),
    "shell_call_output": ItemType(
        complete=content_completion.complete_shell_output,
        hosted_call=lambda item: _call(item, "", None, id_field="call_id"),
    ),
    "local_shell_call": ItemType(
        complete=content_completion.complete_call,
        needs_result=True,
    ),
    "apply_patch_call": ItemType(
        complete=content_completion.complete_patch,
        is_id_optional=True,
        needs_result=True,
    ),
    "custom_tool_call": ItemType(
        streams=_events("custom_tool_call_input"),
        complete=content_completion.complete_custom_call,
        output_only=_fields("created_by status"),
        is_id_optional=True,
        needs_result=True,
        hosted_call=_custom_call,
    ),
    "computer_call": ItemType(
        complete=content_completion.complete_call,
        trim=_with_safety_checks,
        needs_result=True,
    ),
    "tool_search_call": ItemType(
        complete=lambda item, contents: contents[:1] if item.get("execution") == "client" else [],
        needs_result=True,
        hosted_call=lambda item: None if item.get("execution") == "client" else _call(item, "tool_search", None),
    ),
    "tool_search_output": ItemType(),
    "compaction": ItemType(
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
