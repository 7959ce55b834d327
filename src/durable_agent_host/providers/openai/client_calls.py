"""Items of the Responses API that the client runs, and the outputs that the API expects of them.

A call is found in a response; its result is one of the framework's contents, stored like any other. The framework sends
a function's result as a ``function_call_output``, from which `prepare_output` makes the output of the call's own type.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.agent.provider import ClientCall
from durable_agent_host.codec.strict_json import object_at, read_json, value_at
from durable_agent_host.model.provider_item import ITEM, HostedCall
from durable_agent_host.providers.neutral_contents import as_objects
from durable_agent_host.providers.openai.item_mapping import find_item_metadata, input_item
from durable_agent_host.providers.openai.item_types import SERVICE_CALL, Item

_COMPUTER: Final = "computer_call"


_REQUESTED: Final = ("action", "actions", "pending_safety_checks")
_ARGUMENTS: Final[dict[str, Callable[[Item], Item]]] = {
    "custom_tool_call": lambda item: {"input": item.get("input")},
    "apply_patch_call": lambda item: object_at(item, "operation"),
    _COMPUTER: lambda item: {name: item[name] for name in _REQUESTED if item.get(name)},
    "local_shell_call": lambda item: object_at(item, "action"),
    "shell_call": lambda item: object_at(item, "action"),
    "tool_search_call": lambda item: object_at(item, "arguments"),
}
"""Type of item → what the client is asked to do."""


def find_client_calls(messages: Sequence[Message]) -> list[ClientCall]:
    """List the calls without a result that the client runs."""
    contents = [content for message in messages for content in message.contents]
    call_ids = {content.call_id for content in contents if content.type.endswith("_result")}
    items = [input_item([content]) for content in contents if _is_client_item(content)]
    return [
        ClientCall(
            call.call_id,
            call.name,
            call.arguments,
            partial(_build_result, item),
        )
        for item in items
        if (call := read_client_call(item)) and call.call_id not in call_ids
    ]


def read_client_call(item: Item) -> HostedCall | None:
    """Return the call of an item that the client runs; None of any other item, and of one that was cut off."""
    arguments = _ARGUMENTS.get(str(item.get("type")))
    if arguments is None or item.get("status") == "incomplete":
        return None
    name = item.get("name") or item["type"].removesuffix("_call")
    return HostedCall(str(item.get("call_id")), name, arguments(item))


def _is_client_item(content: Content) -> bool:
    item = object_at(find_item_metadata(content), ITEM)
    if str(content.call_id).startswith(SERVICE_CALL):
        return False
    if item.get("type") not in _ARGUMENTS or (content.type == "function_call" and not content.informational_only):
        return False  # the app's tool has a function for it
    return {value_at(item, "environment", "type"), item.get("execution")} <= {None, "local", "client"}


def _build_result(item: Item, contents: Sequence[Content], error: str | None) -> list[Content]:
    if item["type"] == _COMPUTER:
        return _screenshot(item, contents)
    return [
        Content.from_function_result(
            item["call_id"],
            result=list(contents),
            exception=error,
            additional_properties={"openai": {_OUTPUT_TYPE: f"{item['type']}_output"}},
        )
    ]


_OUTPUT_TYPE: Final = "output_item_type"
_BLANK: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)
"""One pixel: the API accepts nothing but a screenshot."""


def _screenshot(item: Item, contents: Sequence[Content]) -> list[Content]:
    """Return the last image of a reply as the screenshot, and its texts; a reply acknowledges the safety checks."""
    images = [content for content in contents if (content.media_type or "").startswith("image/")]
    screenshot = Content.from_computer_tool_result(
        call_id=item["call_id"],
        screenshot=images[-1] if images else Content.from_uri(_BLANK, media_type="image/png"),
        acknowledged_safety_checks=item.get("pending_safety_checks") or None,
    )
    return [screenshot, *(content for content in contents if content.type == "text" and content.text)]


def prepare_output(content: Content, item: Item) -> Item:
    """Return the output of a client's call in its own type; of other contents, the framework's item."""
    output_type = value_at(content.additional_properties, "openai", _OUTPUT_TYPE)
    if content.type != "function_result" or not output_type:
        return item
    output = {**item, "type": output_type}
    if output_type == "apply_patch_call_output":
        return {**output, "status": "failed" if content.exception else "completed", "output": content.result or None}
    if output_type == "shell_call_output":
        return {**output, "output": _shell_outputs(content)}
    if output_type == "tool_search_call_output":
        tools = as_objects(read_json(content.result))
        return {"type": "tool_search_output", "call_id": item["call_id"], "execution": "client", "tools": tools}
    return output


def _shell_outputs(content: Content) -> list[Item]:
    """Return a result in the API's form, as its list or its item, or any other text as what a command has printed."""
    text = str(content.result or "")
    value = read_json(text)
    value = value_at(value, "output") or value
    outputs = cast("list[Any]", value if isinstance(value, list) else [value])
    fields: Item = {"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 1 if content.exception else 0}}
    if not all(any(value_at(output, name) is not None for name in fields) for output in outputs):
        outputs = [{"stdout": text}]
    return [{name: output.get(name, value) for name, value in fields.items()} for output in outputs]
