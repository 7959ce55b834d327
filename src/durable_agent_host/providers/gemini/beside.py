"""The fields of a Gemini response outside of its parts: sources, citations, ratings.

Sources and citations become annotations of their text, a web search a call and its result. All of the service's data is
stored verbatim: in the result of the search, or on an empty text.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Annotation, Content, TextSpanRegion

from durable_agent_host.providers.gemini.parts import METADATA, metadata_content

Json = dict[str, Any]

_CANDIDATE_FIELDS: Final = frozenset({"content", "finishReason", "index"})
_RESPONSE_FIELDS: Final = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime"})
_QUERIES: Final = {
    "webSearchQueries": "web_search",
    "retrievalQueries": "file_search",
    "imageSearchQueries": "image_search",
}
_SOURCES: Final = frozenset({"groundingMetadata", "citationMetadata"})
_LATEST: Final = frozenset({"safetyRatings", "avgLogprobs", "tokenCount"})
"""Fields that every chunk repeats with other values; the last value is stored."""


class ResponseMetadata:
    """Collects the fields of one response's chunks outside of their parts."""

    def __init__(self) -> None:
        self._fields: Json = {}
        self._earlier: list[Json] = []
        self._citation_keys: list[Any] = []
        self._other_candidates: dict[str, Json] = {}

    def read_other(self, candidate: Mapping[str, Any]) -> None:
        """Record a candidate that is not the response: it is stored, and not emitted.

        Args:
            candidate: of a chunk.
        """
        other_candidate = self._other_candidates.setdefault(str(candidate.get("index")), {"content": {"parts": []}})
        parts: list[Any] = other_candidate["content"]["parts"]
        content: Any = candidate.get("content")
        raw_parts: Any = cast("Json", content).get("parts") if isinstance(content, dict) else None
        for part in cast("list[Any]", raw_parts) if isinstance(raw_parts, list) else ():
            if parts and _is_plain_text(part) and _is_plain_text(parts[-1]):
                parts[-1] = {"text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        other_candidate.update({name: value for name, value in candidate.items() if name != "content"})

    def read(self, response: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
        """Record a chunk's data.

        Args:
            response: the chunk.
            candidate: its first candidate; may be empty.
        """
        fields = {name: value for name, value in response.items() if name not in _RESPONSE_FIELDS}
        fields |= {name: value for name, value in candidate.items() if name not in _CANDIDATE_FIELDS}
        for name, value in fields.items():
            earlier_value = self._fields.get(name)
            if value in (None, {}, []) or earlier_value == value:
                continue
            if earlier_value is not None and name not in _LATEST:
                self._earlier.append({name: earlier_value})
            self._fields[name] = value

    def new_annotations(self, candidate: Mapping[str, Any], fragments: Sequence[str]) -> list[Annotation]:
        """List the citations that a chunk adds.

        Args:
            candidate: of the chunk.
            fragments: of the response text so far that citations can refer to.

        Returns:
            Those not listed before.
        """
        if not _SOURCES & candidate.keys():
            return []
        text = "".join(fragments)
        new_citations: list[Annotation] = []
        for key, annotation in (
            *_grounding_annotations(candidate.get("groundingMetadata"), text),
            *_citation_annotations(candidate, text),
        ):
            if key not in self._citation_keys:
                self._citation_keys.append(key)
                new_citations.append(annotation)
        return new_citations

    def to_contents(self, call_id: str, *, includes_searches: bool) -> list[Content]:
        """Return contents with the fields that were collected since the last call.

        Args:
            call_id: for a search that the service has only reported.
            includes_searches: whether to emit such a search; not where the service has its calls as parts.
        """
        fields = self._fields
        earlier = self._earlier
        other_candidates = [*self._other_candidates.values()]
        self._fields = {}
        self._earlier = []
        self._other_candidates = {}
        contents: list[Content] = []
        grounding: Json = fields.get("groundingMetadata") or {}
        name = next((name for name in _QUERIES if grounding.get(name)), None)
        if includes_searches and name is not None:
            del fields["groundingMetadata"]
            contents += _search(call_id, name, grounding)
        fields |= ({"earlier": earlier} if earlier else {}) | (
            {"candidates": other_candidates} if other_candidates else {}
        )
        if fields:
            contents.append(metadata_content(fields))
        return contents


def _is_plain_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"text"} and isinstance(cast("Json", part)["text"], str)


def _search(call_id: str, name: str, grounding: Json) -> list[Content]:
    tool = _QUERIES[name]
    call = Content.from_search_tool_call(
        call_id, tool_name=tool, arguments={"queries": grounding[name]}, status="completed"
    )
    other_fields = {key: value for key, value in grounding.items() if key != name}
    result = Content.from_search_tool_result(call_id, tool_name=tool, result=other_fields, status="completed")
    for content in (call, result):
        METADATA.attach([content], {"type": "candidate"}, {})
    return [call, result]


def _grounding_annotations(grounding: Any, text: str) -> Iterator[tuple[Any, Annotation]]:
    """Read the sources of a response: each with the text that it supports, or alone."""
    if not isinstance(grounding, dict):
        return
    grounding_fields = cast("Json", grounding)
    chunks = cast("list[Any]", grounding_fields.get("groundingChunks") or [])
    supports = cast("list[Json]", grounding_fields.get("groundingSupports") or [])
    used: set[int] = set()
    for support in supports:
        segment: Json = support.get("segment") or {}
        for index in cast("list[Any]", support.get("groundingChunkIndices") or []):
            if isinstance(index, int) and 0 <= index < len(chunks):
                used.add(index)
                yield [_source(chunks[index]), segment], _build_annotation(_source(chunks[index]), segment, text)
    for index, chunk in enumerate(chunks):
        if index not in used:
            yield [_source(chunk), None], _build_annotation(_source(chunk), {}, text)


def _citation_annotations(candidate: Mapping[str, Any], text: str) -> Iterator[tuple[Any, Annotation]]:
    metadata: Json = candidate.get("citationMetadata") or {}
    for source in cast("list[Json]", metadata.get("citationSources") or metadata.get("citations") or []):
        yield source, _build_annotation(source, source, text)


def _source(chunk: Any) -> Json:
    """Return the source in a chunk, of any kind."""
    kinds = cast("Json", chunk).values() if isinstance(chunk, dict) else ()
    sources = (cast("Json", value) for value in kinds if isinstance(value, dict))
    return next(sources, Json())


def _build_annotation(source: Json, segment: Json, text: str) -> Annotation:
    annotation = Annotation(type="citation")
    if url := source.get("uri"):
        annotation["url"] = url
    if title := source.get("title"):
        annotation["title"] = title
    if snippet := segment.get("text"):
        annotation["snippet"] = snippet
    if (region := _region(segment, text)) is not None:
        annotation["annotated_regions"] = [region]
    return annotation


def _region(segment: Json, text: str) -> TextSpanRegion | None:
    """Convert the service's byte offsets to characters."""
    start = segment.get("startIndex") or 0
    end = segment.get("endIndex")
    segment_text = segment.get("text")
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    data = text.encode("utf-8", "surrogatepass")
    before = data[:start].decode("utf-8", "ignore")
    span_text = data[start:end].decode("utf-8", "ignore")
    if segment_text is not None and span_text != segment_text:
        start_index = text.find(segment_text) if isinstance(segment_text, str) else -1
        return (
            None
            if start_index < 0
            else TextSpanRegion(type="text_span", start_index=start_index, end_index=start_index + len(segment_text))
        )
    return TextSpanRegion(type="text_span", start_index=len(before), end_index=len(before) + len(span_text))
