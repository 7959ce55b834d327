"""Blocks of a message in neutral contents. Does not use the SDK.

The first content of a block has item metadata, see `providers.item_metadata`. A container that no call names has an
empty text with metadata of the type ``container``, which is not a block.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, cast

from agent_framework import Annotation, Content

from durable_agent_host.model.provider_item import ITEM, STAMP
from durable_agent_host.providers.anthropic.block_types import PROVIDER, block_contents
from durable_agent_host.providers.anthropic.message_accumulator import Block
from durable_agent_host.providers.item_metadata import ItemMetadata
from durable_agent_host.providers.neutral_contents import text_span

# Adjacent text blocks as one text with its citations.
#
# The service starts a new block where a citation starts, in the middle of a sentence. One content has the full text,
# so it reads as the model wrote it, and each citation its region.

_NAMES: Final[dict[str, dict[str, str]]] = {
    "web_search_result_location": {"title": "title", "url": "url", "cited_text": "snippet"},
    "search_result_location": {"title": "title", "source": "url", "cited_text": "snippet"},
}
_OTHER_NAMES: Final = {"document_title": "title", "file_id": "file_id", "cited_text": "snippet"}
"""Type of citation → its fields in a neutral annotation, with their names there. Others are additional properties."""


def merge_text(blocks: Sequence[Block]) -> Content:
    """Make one text of text blocks."""
    texts = [str(block.get("text") or "") for block in blocks]
    content = Content("text", text="".join(texts))
    annotations = [
        _annotation(cast("Block", citation), start, end)
        for block, (start, end) in zip(blocks, pairwise(accumulate(map(len, texts), initial=0)), strict=True)
        for citation in cast("list[Any]", block.get("citations") or [])
        if isinstance(citation, dict)
    ]
    content.annotations = annotations or None
    return content


def streamed_annotations(citation: Any) -> list[Annotation]:
    """Make annotations of a citation that has just streamed."""
    return [_annotation(cast("Block", citation), None, None)] if isinstance(citation, dict) else []


def _annotation(citation: Block, start: int | None, end: int | None) -> Annotation:
    names = _NAMES.get(str(citation.get("type")), _OTHER_NAMES)
    neutral_fields = {
        names[name]: value for name, value in citation.items() if name in names and isinstance(value, str)
    }
    other_fields = {name: value for name, value in citation.items() if name not in names or not isinstance(value, str)}
    annotation = {"type": "citation", **neutral_fields, "additional_properties": other_fields, **text_span(start, end)}
    return cast("Annotation", cast("object", annotation))


CONTAINER: Final = "container"
_METADATA: Final = ItemMetadata(PROVIDER)

find_item_metadata: Final = _METADATA.find
split_by_item: Final = _METADATA.runs


def complete_item(contents: list[Content], item: Mapping[str, Any] | None) -> list[Content]:
    """Make the contents of one position of the output, from its finished blocks."""
    if item is None or "blocks" not in item:
        return contents
    blocks = cast("list[Block]", item["blocks"])
    container = cast("Mapping[str, Any] | None", item.get(CONTAINER))
    if not blocks:
        return [_container_carrier(container)] if container else contents
    if blocks[0].get("type") == "text":
        return [_text([*blocks, *_unfinished_text_blocks(contents[len(blocks) :])])]
    group = _to_contents(blocks[0], contents)
    if container:
        group[0].additional_properties |= _container_properties(container)
    return group


def item_blocks(group: Sequence[Content]) -> list[Block]:
    """Return the blocks of a group with metadata: none for a container, several for a text that was cut."""
    metadata = cast("Block", group[0].additional_properties[STAMP])
    block = cast("Block", metadata[ITEM])
    if metadata["type"] == CONTAINER:
        return []
    if metadata["type"] == "text":
        return block["blocks"]
    if metadata["type"] == "tool_use" and not block.get("id"):
        block = {**block, "id": group[0].call_id}  # from the framework, for a call that the service never announced
    return [block]


def find_container(contents: Iterable[Content]) -> Mapping[str, Any] | None:
    """Return the container that contents name last, from their properties."""
    properties = None
    for content in contents:
        if find_item_metadata(content) is not None and content.additional_properties.get("container_id"):
            properties = content.additional_properties
    return properties


def _to_contents(block: Block, streamed_contents: Sequence[Content]) -> list[Content]:
    if block.get("type") == "tool_use" and streamed_contents and streamed_contents[0].type == "function_call":
        group = list(streamed_contents)  # the framework renames some tools and does not change the arguments
    else:
        group = block_contents(block)
    _METADATA.attach(group, {"type": "None", **block})
    return group


def _text(blocks: Sequence[Block]) -> Content:
    content = merge_text(blocks)
    _METADATA.attach([content], {"type": "text", "blocks": list(blocks)})
    return content


def _unfinished_text_blocks(contents: Sequence[Content]) -> list[Block]:
    return [{"type": "text", "text": content.text} for content in contents if content.type == "text" and content.text]


def _container_properties(container: Mapping[str, Any]) -> dict[str, Any]:
    expires = {"container_expires_at": container["expires_at"]} if container.get("expires_at") else {}
    other_fields = {
        name: value for name, value in container.items() if name not in {"id", "expires_at"} and value is not None
    }
    return {
        "container_id": container.get("id"),
        **expires,
        **({"container_details": other_fields} if other_fields else {}),
    }


def _container_carrier(container: Mapping[str, Any]) -> Content:
    carrier = Content("text", text="", additional_properties=_container_properties(container))
    _METADATA.attach([carrier], {"type": CONTAINER, "id": container.get("id")})
    return carrier
