"""Blocks of a message in neutral contents, and back. Pure; needs no SDK.

The first content of a block has a stamp, see `providers.stamps`. A container that no call names has an empty text with
its own stamp, of the type ``container``, which is not a block.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content

from durable_agent_host.model.provider_item import STAMP
from durable_agent_host.providers.anthropic.assembly import Block
from durable_agent_host.providers.anthropic.block_types import PROVIDER, block_type
from durable_agent_host.providers.anthropic.texts import blocks_of, stamp_fields, text_of
from durable_agent_host.providers.stamps import Stamps, stamped_item

CONTAINER: Final = "container"
_STAMPS: Final = Stamps(PROVIDER)

stamp_of: Final = _STAMPS.of
groups_of: Final = _STAMPS.groups


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Make the contents of one place of the output, from its finished blocks.

    Guarantee: pure.

    Args:
        contents: as streamed; kept where the stream ended before the block did.
        item: see `assembly`; None also for items of others.
    """
    if item is None or "blocks" not in item:
        return contents
    blocks = cast("list[Block]", item["blocks"])
    container = cast("Mapping[str, Any] | None", item.get(CONTAINER))
    if not blocks:
        return [_container_carrier(container)] if container else contents
    if blocks[0].get("type") == "text":
        return [_text([*blocks, *_unfinished(contents[len(blocks) :])])]
    group = _contents_of(blocks[0], contents)
    if container:
        group[0].additional_properties |= _container_properties(container)
    return group


def sent_blocks(group: Sequence[Content]) -> list[Block]:
    """Rebuild the blocks of a stamped group for sending: none for a container, several for a text that was cut.

    Guarantee: pure; the blocks share values with the contents, and must not be changed.
    """
    mark = cast("Block", group[0].additional_properties[STAMP])
    if mark["type"] == CONTAINER:
        return []
    if mark["type"] == "text":
        return blocks_of(group[0], mark)
    block = stamped_item(mark, _rebuilt(mark["type"], group))
    if mark["type"] == "tool_use" and not block.get("id"):
        block["id"] = group[0].call_id  # from the framework, for a call that the service never announced
    return [block]


def container_of(contents: Iterable[Content]) -> Mapping[str, Any] | None:
    """Return the container that contents name last, from their properties. Guarantee: pure."""
    found = None
    for content in contents:
        if stamp_of(content) is not None and content.additional_properties.get("container_id"):
            found = content.additional_properties
    return found


def _contents_of(block: Block, streamed: Sequence[Content]) -> list[Content]:
    kind = str(block.get("type"))
    if kind == "tool_use" and streamed and streamed[0].type == "function_call":
        group = list(streamed)  # the framework renames some tools, and the arguments are kept as written
    else:
        group = block_type(kind).contents(block)
    _STAMPS.put(group, {"type": kind, **block}, _rebuilt(kind, group))
    return group


def _rebuilt(kind: str, group: Sequence[Content]) -> Block:
    """Return a block's fields from its contents; only its type when they are malformed."""
    try:
        return {"type": kind, **block_type(kind).rebuild(group)}
    except (AttributeError, IndexError, KeyError, RecursionError, TypeError, ValueError):
        return {"type": kind}


def _text(blocks: Sequence[Block]) -> Content:
    content = text_of(blocks)
    item = {"type": "text"}
    _STAMPS.put([content], item, item, stamp_fields(blocks, content))
    return content


def _unfinished(contents: Sequence[Content]) -> list[Block]:
    return [{"type": "text", "text": content.text} for content in contents if content.type == "text" and content.text]


def _container_properties(container: Mapping[str, Any]) -> dict[str, Any]:
    expires = {"container_expires_at": container["expires_at"]} if container.get("expires_at") else {}
    rest = {name: value for name, value in container.items() if name not in {"id", "expires_at"} and value is not None}
    return {"container_id": container.get("id"), **expires, **({"container_details": rest} if rest else {})}


def _container_carrier(container: Mapping[str, Any]) -> Content:
    carrier = Content("text", text="", additional_properties=_container_properties(container))
    _STAMPS.put([carrier], {"type": CONTAINER, "id": container.get("id")}, {"type": CONTAINER})
    return carrier
