"""Reads the responses of Gemini into neutral contents: one reader per response.

The contents do not depend on where the service split its stream: texts are joined by the fold, and every other part
arrives complete.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, cast
from uuid import uuid4

from agent_framework import Annotation, Content, TextSpanRegion

from durable_agent_host.codec.strict_json import object_at, value_at
from durable_agent_host.errors import ProviderError, RequestBlockedError
from durable_agent_host.model.budget import is_count
from durable_agent_host.model.ids import derived_id
from durable_agent_host.providers.gemini.part_mapping import (
    METADATA,
    SPANS,
    Part,
    code_result,
    is_text,
    metadata_content,
    to_content,
)
from durable_agent_host.providers.neutral_contents import as_objects, refusal_properties

_AGAIN: Final = "try again", True

_FILTERS: Final[Mapping[str, str]] = {
    "SAFETY": "the service's safety filters have stopped the answer",
    "IMAGE_SAFETY": "the service's safety filters have stopped the image",
    "BLOCKLIST": "the answer has words of a blocklist",
    "PROHIBITED_CONTENT": "the answer may have prohibited content",
    "IMAGE_PROHIBITED_CONTENT": "the image may have prohibited content",
    "SPII": "the answer may have sensitive personal data",
    "LANGUAGE": "the model does not support the language",
    "RECITATION": "the answer repeats material that may be protected",
    "IMAGE_RECITATION": "the image repeats material that may be protected",
    "MODEL_ARMOR": "Model Armor has stopped the answer",
}
"""The service's reason for a filtered answer → its meaning."""

_CUT: Final = _FILTERS.keys() | {"MAX_TOKENS"}
"""The service's reasons for an answer that may end within a call."""

_STOPS: Final[dict[str, tuple[str, str, bool]]] = {
    "NO_IMAGE": ("no image was made", *_AGAIN),
    "IMAGE_OTHER": ("no image was made", *_AGAIN),
    "OTHER": ("it gave no reason", *_AGAIN),
    "MALFORMED_FUNCTION_CALL": ("the model wrote a function call that cannot be read", *_AGAIN),
    "MALFORMED_RESPONSE": ("the model wrote a response that cannot be read", *_AGAIN),
    "UNEXPECTED_TOOL_CALL": ("the model called a tool that the request does not declare", *_AGAIN),
    "TOO_MANY_TOOL_CALLS": ("the model called too many tools one after the other", "ask for less per turn", False),
    "MISSING_THOUGHT_SIGNATURE": ("the conversation lacks a thought signature", "start a new session", False),
}
"""The service's reason for no answer → its meaning, what to do, and whether a retry can succeed."""

_COUNTS: Final = {
    "input_token_count": ("promptTokenCount", "toolUsePromptTokenCount"),
    "output_token_count": ("candidatesTokenCount", "thoughtsTokenCount"),
    "total_token_count": ("totalTokenCount",),
    "cache_read_input_token_count": ("cachedContentTokenCount",),
    "reasoning_output_token_count": ("thoughtsTokenCount",),
}
"""The framework's name of a count → the service's counts that it is the sum of."""


def count_tokens(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the token counts of a response that its service reports."""
    counts = {name: [usage[key] for key in keys if is_count(usage.get(key))] for name, keys in _COUNTS.items()}
    return {name: sum(values) for name, values in counts.items() if values}


def check_stop(response: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
    """Reject a response, or a chunk, that the service ended without an answer.

    Raises:
        RequestBlockedError: the service's policy blocks the prompt.
        ProviderError: says why, quoting the service.
    """
    feedback = object_at(response.get("promptFeedback"))
    if (block_reason := feedback.get("blockReason")) and not candidate:
        category = _blocked_categories(feedback) or str(block_reason)
        raise RequestBlockedError(f"{block_reason}{_format_details(feedback.get('blockReasonMessage'))}", category)
    if (stop := _STOPS.get(reason := str(candidate.get("finishReason")))) is not None:
        meaning, hint, retryable = stop
        details = _format_details(candidate.get("finishMessage"))
        raise ProviderError(
            f"the model's service ended without a response: {meaning} ({reason}){details} - {hint}", retryable=retryable
        )


def read_filter(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the properties of an answer that the service's filters have stopped; none for other answers."""
    candidate = _find_candidate(response)
    reason = str(candidate.get("finishReason"))
    if reason not in _FILTERS:
        return {}
    message = f"{_FILTERS[reason]} ({reason}){_format_details(candidate.get('finishMessage'))}"
    return refusal_properties(message=message, category=_blocked_categories(candidate) or reason)


def count_searches(response: Mapping[str, Any]) -> int:
    """Count the web searches of an answer, in the chunk that ends it."""
    candidate = _find_candidate(response)
    return len(value_at(candidate, "groundingMetadata", "webSearchQueries") or ())


def _blocked_categories(candidate: Mapping[str, Any]) -> str:
    ratings = as_objects(candidate.get("safetyRatings"))
    return ", ".join(str(rating.get("category")) for rating in ratings if rating.get("blocked") is True)


def _format_details(message: Any) -> str:
    return f": {str(message).rstrip('. ')}" if message else ""


# Accumulates function calls with arguments that the service streams in fragments.
#
# A call starts with its name and ``willContinue``; deltas follow with ``partialArgs``, each a value at a JSON path,
# texts in several fragments; a delta without ``willContinue`` ends it. Deltas name their call only where calls are
# interleaved.
#
# Source: `FunctionCall` and `PartialArg` of https://cloud.google.com/vertex-ai/generative-ai/docs/reference/rest/v1,
# and the recording `fn-streamed-arguments`.

_STEP: Final = re.compile(r"""\.(?P<name>[^.\[\]]+)|\[(?P<index>\d+)\]|\[(?P<quote>['"])(?P<quoted>.*?)(?P=quote)\]""")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_MAX_INDEX: Final = 10_000


class PartialCalls:
    """The calls of one response with incomplete arguments."""

    def __init__(self) -> None:
        self._open: list[dict[str, Any]] = []

    def end(self) -> list[dict[str, Any]]:
        """Return the calls that wait for more arguments, as far as they have come."""
        open_parts, self._open = self._open, []
        return open_parts

    def feed(self, part: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read a part with a function call.

        Returns:
            The complete part: the same part if complete, or the part that it completes; otherwise None.

        Raises:
            ProviderError: the arguments cannot be assembled.
        """
        call_delta: Mapping[str, Any] = part["functionCall"]
        will_continue = call_delta.get("willContinue") is True
        open_part = self._find_open_part(call_delta)
        if open_part is None and not will_continue and "partialArgs" not in call_delta:
            return dict(part)
        part_in_progress: dict[str, Any] = {**part, "functionCall": {}} if open_part is None else open_part
        if open_part is None:
            self._open.append(part_in_progress)
        else:
            part_in_progress.update({name: value for name, value in part.items() if name != "functionCall"})
        call = cast("dict[str, Any]", part_in_progress["functionCall"])
        call.update(
            {name: call_delta[name] for name in call_delta if name not in {"args", "partialArgs", "willContinue"}}
        )
        args = call.setdefault("args", {})
        args.update(call_delta.get("args") or {})
        for partial_arg in call_delta.get("partialArgs") or ():
            _put(args, partial_arg)
        if will_continue:
            return None
        self._open.remove(part_in_progress)
        return part_in_progress

    def _find_open_part(self, call_delta: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the open call of a delta; a delta with another name or id starts a call."""
        for open_part in reversed(self._open):
            call = open_part["functionCall"]
            if all(call_delta.get(name) in {None, call.get(name)} for name in ("id", "name")):
                return open_part
        return None


def _put(args: dict[str, Any], partial_arg: Mapping[str, Any]) -> None:
    path = str(partial_arg.get("jsonPath") or "")
    steps = _steps(path)
    value: Any = next((partial_arg[name] for name in _VALUES if name in partial_arg), None)
    parent: Any = args
    try:
        for step, next_step in pairwise(steps):
            parent = _get_or_create(parent, step, [] if isinstance(next_step, int) else {})
        last = steps[-1]
        current_value = _at(parent, last)
        # A text is streamed in fragments; any other value is sent once.
        _set(
            parent, last, current_value + value if isinstance(current_value, str) and isinstance(value, str) else value
        )
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise _invalid_path_error(path) from error


def _steps(path: str) -> list[str | int]:
    steps: list[str | int] = []
    position = 1 if path.startswith("$") else -1
    while 0 < position < len(path):
        match = _STEP.match(path, position)
        if match is None:
            break
        index = match["index"]
        steps.append(int(index) if index is not None else match["name"] or match["quoted"] or "")
        position = match.end()
    if position != len(path) or not steps or any(isinstance(step, int) and step > _MAX_INDEX for step in steps):
        raise _invalid_path_error(path)
    return steps


def _at(parent: Any, step: str | int) -> Any:
    if isinstance(step, int):
        return parent[step] if step < len(parent) else None
    return parent.get(step)


def _set(parent: Any, step: str | int, value: Any) -> None:
    if isinstance(step, int):
        parent.extend([None] * (step + 1 - len(parent)))
    parent[step] = value


def _get_or_create(parent: Any, step: str | int, empty: Any) -> Any:
    if (child := _at(parent, step)) is None:
        _set(parent, step, child := empty)
    return child


def _invalid_path_error(path: str) -> ProviderError:
    return ProviderError(
        f"the model's service streamed an argument for the path {path!r}, which cannot be read: turn off "
        "stream_function_call_arguments",
        retryable=False,
    )


# The fields of a Gemini response outside of its parts: sources, citations, ratings.
#
# Sources and citations become annotations of their text, a web search a call and its result. All of the service's
# data is stored verbatim: in the result of the search, or on an empty text.

Json = dict[str, Any]

_CANDIDATE_FIELDS: Final = frozenset({"content", "continuationToken", "finishReason", "index"})
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

    def read(self, response: Mapping[str, Any], candidate: Mapping[str, Any]) -> None:
        """Record a chunk's data."""
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
        """List the citations that a chunk adds."""
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
        """Return contents with the fields that were collected."""
        fields = dict(self._fields)
        contents: list[Content] = []
        grounding = object_at(fields, "groundingMetadata")
        name = next((name for name in _QUERIES if grounding.get(name)), None)
        if includes_searches and name is not None:
            del fields["groundingMetadata"]
            contents += _search(call_id, name, grounding)
        if self._earlier:
            fields["earlier"] = self._earlier
        if fields:
            contents.append(metadata_content(fields))
        return contents


def _search(call_id: str, name: str, grounding: Json) -> list[Content]:
    tool = _QUERIES[name]
    call = Content.from_search_tool_call(
        call_id, tool_name=tool, arguments={"queries": grounding[name]}, status="completed"
    )
    other_fields = {key: value for key, value in grounding.items() if key != name}
    result = Content.from_search_tool_result(call_id, tool_name=tool, result=other_fields, status="completed")
    for content in (call, result):
        METADATA.attach([content], {"type": "candidate"})
    return [call, result]


def _grounding_annotations(grounding: Any, text: str) -> Iterator[tuple[Any, Annotation]]:
    """Read the sources of a response: each with the text that it supports, or alone."""
    chunks = as_objects(value_at(grounding, "groundingChunks"))
    supports = as_objects(value_at(grounding, "groundingSupports"))
    used: set[int] = set()
    for support in supports:
        segment = object_at(support, "segment")
        for index in cast("list[Any]", support.get("groundingChunkIndices") or []):
            if isinstance(index, int) and 0 <= index < len(chunks):
                used.add(index)
                yield [_source(chunks[index]), segment], _build_annotation(_source(chunks[index]), segment, text)
    for index, chunk in enumerate(chunks):
        if index not in used:
            yield [_source(chunk), None], _build_annotation(_source(chunk), {}, text)


def _citation_annotations(candidate: Mapping[str, Any], text: str) -> Iterator[tuple[Any, Annotation]]:
    metadata = object_at(candidate, "citationMetadata")
    for source in as_objects(metadata.get("citationSources") or metadata.get("citations")):
        yield source, _build_annotation(source, source, text)


def _source(chunk: Any) -> Json:
    """Return the source in a chunk, of any kind."""
    return next(iter(as_objects([*object_at(chunk).values()])), Json())


def _build_annotation(source: Json, segment: Json, text: str) -> Annotation:
    annotation = Annotation(type="citation")
    if url := source.get("uri") or source.get("sourceUri"):
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


_RESULTS_OF: Final = {"codeExecutionResult": "executableCode", "toolResponse": "toolCall"}


class ResponseReader:
    """Reads the chunks of one response."""

    def __init__(self) -> None:
        self._calls = PartialCalls()
        self._metadata = ResponseMetadata()
        self._text: list[str] = []
        self._spans = 0
        self._ids: dict[str, list[str]] = {}
        self._completed_ids: set[str] = set()
        self._code_result: list[Content] = []
        self._count = 0
        self._finish_reason: Any = None
        self.response_id: str | None = None

    def read(self, response: Mapping[str, Any]) -> list[Content]:
        """Read the next chunk.

        Returns:
            Its contents, in order; often one, sometimes none.

        Raises:
            ProviderError: the service ended without a response.
        """
        candidate = _find_candidate(response)
        try:
            check_stop(response, candidate)
        except ProviderError as error:
            error.usage = count_tokens(object_at(response.get("usageMetadata")))
            raise
        self.response_id = self.response_id or _as_text(response.get("responseId"))
        self._metadata.read(response, candidate)
        contents = [content for part in _parts(candidate) for content in self._read_part(part)]
        if annotations := self._metadata.new_annotations(candidate, self._text):
            _annotate(contents, annotations)
        self._finish_reason = candidate.get("finishReason") or self._finish_reason
        return contents

    def end(self) -> list[Content]:
        """Return the contents after the last chunk; each chunk may have a finish reason.

        Raises:
            ProviderError: the service ended within a function call.
        """
        if not self._finish_reason:
            return []
        if (open_parts := self._calls.end()) and self._finish_reason not in _CUT:
            raise ProviderError(
                f"the model's response ended within a function call ({self._finish_reason}); try again", retryable=True
            )
        return [
            *map(self._call, open_parts),
            *self._end_code_run(),
            *self._metadata.to_contents(self._new_id("search"), includes_searches="toolCall" not in self._ids),
        ]

    def _read_part(self, part: Part) -> list[Content]:
        if "functionCall" in part and isinstance(part["functionCall"], dict):
            complete_part = self._calls.feed(part)
            return [] if complete_part is None else [*self._end_code_run(), self._call(complete_part)]
        if part == {"text": ""} or not part:
            return []  # streams end with one; requests without it are accepted
        kind = next(
            (kind for kind in ("executableCode", "toolCall", *_RESULTS_OF) if isinstance(part.get(kind), dict)), ""
        )
        is_output = kind == "codeExecutionResult"
        earlier = self._code_result[0] if self._code_result else None  # a further result or an image belongs to its run
        call_id = self._assign_id(kind, part[kind]) if kind and not (is_output and earlier) else ""
        content = to_content(
            part, call_id, earlier_text="".join(self._text) if len(part) > 1 else "", span_index=self._spans
        )
        if content.type in {"text", "text_reasoning"} and not is_output:
            content.merge_mode = "append"
        if earlier is not None and (is_output or content.type == "data"):
            self._code_result = [code_result(str(earlier.call_id), [*cast("Any", earlier.outputs), content])]
            return []
        contents = self._end_code_run()
        if is_output:
            self._code_result = [code_result(call_id, [content])]
            self._end_text()
            return contents
        if is_text(content):
            self._text.append(content.text or "")
            self._spans += SPANS in content.additional_properties
        else:
            self._end_text()
        return [*contents, content]

    def _end_code_run(self) -> list[Content]:
        """Return the result of the last code run, once, with its outputs: an image is a part behind it."""
        contents = self._code_result
        self._code_result = []
        return contents

    def _end_text(self) -> None:
        self._text = []
        self._spans = 0

    def _call(self, part: Part) -> Content:
        self._end_text()
        call_id = _as_text(part["functionCall"].get("id"))
        if not call_id or call_id in self._completed_ids:
            call_id = f"tool-call-{uuid4().hex}"
        self._completed_ids.add(call_id)
        content = to_content(part, call_id)
        if content.type == "function_call":
            content.merge_mode = "replace"
        return content

    def _assign_id(self, kind: str, value: Mapping[str, Any]) -> str:
        """Return the id of a hosted call, or of a result's call, also if the service sends no ids."""
        hosted_call_ids = self._ids.get(_RESULTS_OF.get(kind, ""), [])
        open_calls = [hosted_call_id for hosted_call_id in hosted_call_ids if hosted_call_id not in self._completed_ids]
        call_id = _as_text(value.get("id")) or next(iter(open_calls), None) or self._new_id(kind)
        if kind in _RESULTS_OF:
            call_id = self._new_id(kind) if call_id in self._completed_ids else call_id
            self._completed_ids.add(call_id)
        self._ids.setdefault(kind, []).append(call_id)
        return call_id

    def _new_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind.lower()}_{derived_id(self.response_id or uuid4().hex, str(self._count))}"


def _annotate(contents: list[Content], annotations: list[Any]) -> None:
    """Add citations to the last text, as a fragment directly after it."""
    insert_index = next((n for n in range(len(contents), 0, -1) if is_text(contents[n - 1])), 0)
    contents.insert(insert_index, Content.from_text("", annotations=annotations))
    contents[insert_index].merge_mode = "append"


def _find_candidate(response: Mapping[str, Any]) -> dict[str, Any]:
    """Return the candidate that is the response; a stream's chunk may have another one alone, which is left out."""
    candidates = as_objects(response.get("candidates"))
    return next((candidate for candidate in candidates if not candidate.get("index")), dict[str, Any]())


def _parts(candidate: Mapping[str, Any]) -> list[Part]:
    return as_objects(value_at(candidate, "content", "parts"))


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
