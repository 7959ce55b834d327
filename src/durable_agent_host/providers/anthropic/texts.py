"""Adjacent text blocks as one text with its citations, and back.

The service starts a new block where a citation starts, in the middle of a sentence. One content has the full text, so
it reads as the model wrote it; the metadata records where it was cut, and each citation its region.
"""

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any, Final, cast

from agent_framework import Annotation, Content

from durable_agent_host.providers.anthropic.assembly import Block

_NAMES: Final[dict[str, dict[str, str]]] = {
    "web_search_result_location": {"title": "title", "url": "url", "cited_text": "snippet"},
    "search_result_location": {"title": "title", "source": "url", "cited_text": "snippet"},
}
_OTHER_NAMES: Final = {"document_title": "title", "file_id": "file_id", "cited_text": "snippet"}
"""Type of citation → its fields in a neutral annotation, with their names there. Others are additional properties."""


def merge_text(blocks: Sequence[Block]) -> Content:
    """Make one text of text blocks. Guarantee: pure."""
    content = Content("text", text="".join(_block_text(block) for block in blocks))
    annotations = [
        _annotation(cast("Block", citation), start, end)
        for block, (start, end) in zip(blocks, _regions(_lengths(blocks)), strict=True)
        for citation in cast("list[Any]", block.get("citations") or [])
        if isinstance(citation, dict)
    ]
    content.annotations = annotations or None
    return content


def missing_fields(blocks: Sequence[Block], content: Content) -> Block:
    """Return the fields of blocks that a text lacks: where it was cut, or the blocks if they have other fields.

    Guarantee: pure.

    Args:
        blocks: from the service.
        content: the result of `merge_text` for them.
    """
    cuts = {"cuts": _lengths(blocks)} if len(blocks) > 1 else {}
    return cuts if split_text(content, cuts) == list(blocks) else {"blocks": list(blocks)}


def split_text(content: Content, metadata: Mapping[str, Any]) -> list[Block]:
    """Cut a text into its blocks again, the inverse of `merge_text`.

    Guarantee: pure.

    Args:
        content: of type text.
        metadata: of the content.
    """
    if (stored_blocks := metadata.get("blocks")) is not None:
        return cast("list[Block]", stored_blocks)
    text = content.text or ""
    blocks: list[Block] = []
    citations = [_citation(cast("Mapping[str, Any]", annotation)) for annotation in content.annotations or ()]
    for start, end in _regions(cast("list[int]", metadata.get("cuts")) or [len(text)]):
        block_citations = [annotation for region, annotation in citations if region == (start, end)]
        blocks.append(
            {"type": "text", "text": text[start:end]} | ({"citations": block_citations} if block_citations else {})
        )
    return blocks


def streamed_annotations(citation: Any) -> list[Annotation]:
    """Make annotations of a citation that has just streamed. Guarantee: pure."""
    return [_annotation(cast("Block", citation), None, None)] if isinstance(citation, dict) else []


def _block_text(block: Block) -> str:
    return str(block.get("text") or "")


def _lengths(blocks: Sequence[Block]) -> list[int]:
    return [len(_block_text(block)) for block in blocks]


def _regions(lengths: Sequence[int]) -> list[tuple[int, int]]:
    return list(pairwise(accumulate(lengths, initial=0)))


def _annotation(citation: Block, start: int | None, end: int | None) -> Annotation:
    names = _NAMES.get(str(citation.get("type")), _OTHER_NAMES)
    neutral_fields = {
        names[name]: value for name, value in citation.items() if name in names and isinstance(value, str)
    }
    other_fields = {name: value for name, value in citation.items() if name not in names or not isinstance(value, str)}
    annotation: dict[str, Any] = {"type": "citation", **neutral_fields, "additional_properties": other_fields}
    if start is not None:
        annotation["annotated_regions"] = [{"type": "text_span", "start_index": start, "end_index": end}]
    return cast("Annotation", cast("object", annotation))


def _citation(annotation: Mapping[str, Any]) -> tuple[tuple[Any, Any], Block]:
    other_fields = cast("Block", annotation.get("additional_properties") or {})
    names = {
        neutral_name: service_name
        for service_name, neutral_name in _NAMES.get(str(other_fields.get("type")), _OTHER_NAMES).items()
    }
    region = cast("list[Block]", annotation.get("annotated_regions") or [{}])[0]
    service_fields = {names[name]: value for name, value in annotation.items() if name in names}
    return (region.get("start_index"), region.get("end_index")), {**other_fields, **service_fields}
