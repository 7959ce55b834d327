"""A Gemini response's data besides its parts: sources, citations, ratings. Pure; needs no SDK.

Sources and citations become annotations of their text, a web search a call and its result. All of the service's data is
kept verbatim: in the result of the search, or on an empty text.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Annotation, Content, TextSpanRegion

from durable_agent_host.providers.gemini.parts import METADATA, said_beside

Json = dict[str, Any]

_OWN_PLACE: Final = frozenset({"content", "finishReason", "index"})
_OWN_PLACE_OF_RESPONSE: Final = frozenset({"candidates", "usageMetadata", "modelVersion", "responseId", "createTime"})
_QUERIES: Final = {
    "webSearchQueries": "web_search",
    "retrievalQueries": "file_search",
    "imageSearchQueries": "image_search",
}
_SOURCES: Final = frozenset({"groundingMetadata", "citationMetadata"})
_LATEST: Final = frozenset({"safetyRatings", "avgLogprobs", "tokenCount"})
"""Fields that every chunk repeats with other values; the last one counts."""


class SaidBeside:
    """Collects the data of one response's chunks besides their parts."""

    def __init__(self) -> None:
        self._fields: Json = {}
        self._earlier: list[Json] = []
        self._cited: list[Any] = []
        self._others: dict[str, Json] = {}

    def read_other(self, candidate: Mapping[str, Any]) -> None:
        """Record a candidate's data that is not the answer: it is kept, and not emitted.

        Args:
            candidate: of a chunk.
        """
        told = self._others.setdefault(str(candidate.get("index")), {"content": {"parts": []}})
        parts: list[Any] = told["content"]["parts"]
        content: Any = candidate.get("content")
        given: Any = cast("Json", content).get("parts") if isinstance(content, dict) else None
        for part in cast("list[Any]", given) if isinstance(given, list) else ():
            if parts and _is_plain_text(part) and _is_plain_text(parts[-1]):
                parts[-1] = {"text": parts[-1]["text"] + part["text"]}
            else:
                parts.append(part)
        told.update({name: value for name, value in candidate.items() if name != "content"})

    def read(self, response: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
        """Record a chunk's data.

        Args:
            response: the chunk.
            candidate: its first candidate; may be empty.
        """
        said = {name: value for name, value in response.items() if name not in _OWN_PLACE_OF_RESPONSE}
        said |= {name: value for name, value in candidate.items() if name not in _OWN_PLACE}
        for name, value in said.items():
            before = self._fields.get(name)
            if value in (None, {}, []) or before == value:
                continue
            if before is not None and name not in _LATEST:
                self._earlier.append({name: before})
            self._fields[name] = value

    def annotations(self, candidate: Mapping[str, Any], pieces: Sequence[str]) -> list[Annotation]:
        """List the citations that a chunk adds.

        Args:
            candidate: of the chunk.
            pieces: of the answer's text so far that citations can refer to.

        Returns:
            Those not listed before.
        """
        if not _SOURCES & candidate.keys():
            return []
        text = "".join(pieces)
        notes: list[Annotation] = []
        for key, note in (*_grounded(candidate.get("groundingMetadata"), text), *_cited(candidate, text)):
            if key not in self._cited:
                self._cited.append(key)
                notes.append(note)
        return notes

    def contents(self, call_id: str, *, tells_searches: bool) -> list[Content]:
        """Return the contents that keep what was collected since the last call.

        Args:
            call_id: for a search that the service has only reported.
            tells_searches: whether to emit such a search; not where the service has its calls as parts.
        """
        fields, earlier, others = self._fields, self._earlier, [*self._others.values()]
        self._fields, self._earlier, self._others = {}, [], {}
        found: list[Content] = []
        grounding: Json = fields.get("groundingMetadata") or {}
        name = next((name for name in _QUERIES if grounding.get(name)), None)
        if tells_searches and name is not None:
            del fields["groundingMetadata"]
            found += _search(call_id, name, grounding)
        fields |= ({"earlier": earlier} if earlier else {}) | ({"candidates": others} if others else {})
        if fields:
            found.append(said_beside(fields))
        return found


def _is_plain_text(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"text"} and isinstance(cast("Json", part)["text"], str)


def _search(call_id: str, name: str, grounding: Json) -> list[Content]:
    tool = _QUERIES[name]
    asked = Content.from_search_tool_call(
        call_id, tool_name=tool, arguments={"queries": grounding[name]}, status="completed"
    )
    rest = {key: value for key, value in grounding.items() if key != name}
    found = Content.from_search_tool_result(call_id, tool_name=tool, result=rest, status="completed")
    for content in (asked, found):
        METADATA.attach([content], {"type": "candidate"}, {})
    return [asked, found]


def _grounded(grounding: Any, text: str) -> Iterator[tuple[Any, Annotation]]:
    """Read the sources of an answer: each with the pieces of text that it supports, or alone."""
    if not isinstance(grounding, dict):
        return
    known = cast("Json", grounding)
    chunks = cast("list[Any]", known.get("groundingChunks") or [])
    supports = cast("list[Json]", known.get("groundingSupports") or [])
    used: set[int] = set()
    for support in supports:
        segment: Json = support.get("segment") or {}
        for index in cast("list[Any]", support.get("groundingChunkIndices") or []):
            if isinstance(index, int) and 0 <= index < len(chunks):
                used.add(index)
                yield [_source(chunks[index]), segment], _note(_source(chunks[index]), segment, text)
    for index, chunk in enumerate(chunks):
        if index not in used:
            yield [_source(chunk), None], _note(_source(chunk), {}, text)


def _cited(candidate: Mapping[str, Any], text: str) -> Iterator[tuple[Any, Annotation]]:
    metadata: Json = candidate.get("citationMetadata") or {}
    for source in cast("list[Json]", metadata.get("citationSources") or metadata.get("citations") or []):
        yield source, _note(source, source, text)


def _source(chunk: Any) -> Json:
    """Return the source in a chunk, whatever its kind."""
    kinds = cast("Json", chunk).values() if isinstance(chunk, dict) else ()
    found = (cast("Json", one) for one in kinds if isinstance(one, dict))
    return next(found, Json())


def _note(source: Json, segment: Json, text: str) -> Annotation:
    note = Annotation(type="citation")
    if url := source.get("uri"):
        note["url"] = url
    if title := source.get("title"):
        note["title"] = title
    if snippet := segment.get("text"):
        note["snippet"] = snippet
    if (region := _region(segment, text)) is not None:
        note["annotated_regions"] = [region]
    return note


def _region(segment: Json, text: str) -> TextSpanRegion | None:
    """Convert the service's byte offsets to characters."""
    start, end, said = segment.get("startIndex") or 0, segment.get("endIndex"), segment.get("text")
    if not isinstance(start, int) or not isinstance(end, int):
        return None
    data = text.encode("utf-8", "surrogatepass")
    before, piece = data[:start].decode("utf-8", "ignore"), data[start:end].decode("utf-8", "ignore")
    if said is not None and piece != said:
        place = text.find(said) if isinstance(said, str) else -1
        return None if place < 0 else TextSpanRegion(type="text_span", start_index=place, end_index=place + len(said))
    return TextSpanRegion(type="text_span", start_index=len(before), end_index=len(before) + len(piece))
