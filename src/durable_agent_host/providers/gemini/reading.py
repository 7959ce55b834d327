"""Reads the responses of Gemini into neutral contents: one reader per response, streamed or not.

The contents do not depend on where the service split its stream: texts are joined by the fold, and every other part
arrives complete.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import uuid4

from agent_framework import Content

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.providers.gemini.beside import ResponseMetadata
from durable_agent_host.providers.gemini.partial_calls import PartialCalls
from durable_agent_host.providers.gemini.parts import SPANS, Part, code_result, is_text, to_content
from durable_agent_host.providers.gemini.stops import check_stop

_RESULTS_OF: Final = {"codeExecutionResult": "executableCode", "toolResponse": "toolCall"}
_HOSTED: Final = (*_RESULTS_OF.values(), *_RESULTS_OF)


class ResponseReader:
    """Reads the chunks of one response, or the one response.

    Args:
        streaming: whether more chunks follow, so that texts are fragments.
    """

    def __init__(self, *, streaming: bool) -> None:
        self._streaming = streaming
        self._calls = PartialCalls()
        self._metadata = ResponseMetadata()
        self._text: list[str] = []
        self._spans = 0
        self._ids: dict[str, list[str]] = {}
        self._completed_ids: set[str] = set()
        self._run_id: str | None = None
        self._count = 0
        self._is_finished = False
        self.response_id: str | None = None

    def read(self, response: Mapping[str, Any]) -> list[Content]:
        """Read the next chunk.

        Args:
            response: from the service.

        Returns:
            Its contents, in order; often one, sometimes none.

        Raises:
            ProviderError: the service ended without a response, or within a function call.
        """
        candidate, other_candidates = _split_candidates(response.get("candidates"))
        check_stop(response, candidate)
        for other_candidate in other_candidates:
            self._metadata.read_other(other_candidate)
        self.response_id = self.response_id or _as_text(response.get("responseId"))
        self._metadata.read(response, candidate)
        contents = [content for part in _parts(candidate) for content in self._content(part)]
        if annotations := self._metadata.new_annotations(candidate, self._text):
            _annotate(contents, annotations, streaming=self._streaming)
        finish_reason = candidate.get("finishReason")
        self._is_finished = self._is_finished or bool(finish_reason)
        if finish_reason or not self._streaming or (other_candidates and self._is_finished):
            if self._calls.are_open:
                raise ProviderError(
                    f"the model's response ended within a function call ({finish_reason}); try again", retryable=True
                )
            contents += self._metadata.to_contents(
                self._new_id("search"), includes_searches="toolCall" not in self._ids
            )
        return contents

    def _content(self, part: Part) -> list[Content]:
        if "functionCall" in part and isinstance(part["functionCall"], dict):
            complete_part = self._calls.feed(part)
            return [] if complete_part is None else [self._call(complete_part)]
        if part == {"text": ""} or not part:
            return []  # streams end with one; requests without it are accepted
        kind = next(
            (kind for kind in ("executableCode", "toolCall", *_RESULTS_OF) if isinstance(part.get(kind), dict)), ""
        )
        call_id = self._assign_id(kind, part[kind]) if kind else ""
        content = to_content(
            part, call_id, earlier_text="".join(self._text) if len(part) > 1 else "", span_index=self._spans
        )
        if self._streaming and content.type in {"text", "text_reasoning"}:
            content.merge_mode = "append"
        return [self._attach_output(kind, content)]

    def _attach_output(self, kind: str, content: Content) -> Content:
        """Put the outputs of a code run into its result; an image after them was made by the code."""
        run_id = self._run_id
        self._run_id = None
        if kind == "codeExecutionResult" and content.type in {"text", "error"}:
            content.merge_mode = None
            self._run_id = self._ids[kind][-1]
            content = code_result(self._run_id, [content])
        elif run_id and content.type == "data":
            self._run_id = run_id
            content = code_result(run_id, [content])
            content.status = None
        elif is_text(content):
            self._text.append(content.text or "")
            self._spans += SPANS in content.additional_properties
            return content
        self._text = []
        self._spans = 0
        return content

    def _call(self, part: Part) -> Content:
        self._run_id = None
        self._text = []
        self._spans = 0
        call_id = part["functionCall"].get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._completed_ids:
            call_id = f"tool-call-{uuid4().hex}"
        self._completed_ids.add(call_id)
        content = to_content(part, call_id)
        if self._streaming and content.type == "function_call":
            content.merge_mode = "replace"
        return content

    def _assign_id(self, kind: str, value: Mapping[str, Any]) -> str:
        """Return the id of a hosted call, or of a result's call, also if the service sends no ids."""
        provider_id = value.get("id")
        hosted_call_ids = self._ids.get(_RESULTS_OF.get(kind, ""), [])
        open_calls = [hosted_call_id for hosted_call_id in hosted_call_ids if hosted_call_id not in self._completed_ids]
        call_id = (
            provider_id
            if isinstance(provider_id, str) and provider_id
            else open_calls[0]
            if open_calls
            else self._new_id(kind)
        )
        if kind not in _RESULTS_OF and call_id in self._ids.get(kind, []):
            call_id = self._new_id(kind)
        if kind in _RESULTS_OF:
            call_id = self._new_id(kind) if call_id in self._completed_ids else call_id
            self._completed_ids.add(call_id)
        self._ids.setdefault(kind, []).append(call_id)
        return call_id

    def _new_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind.lower()}_{derived_id(self.response_id or uuid4().hex, str(self._count))}"


def _annotate(contents: list[Content], annotations: list[Any], *, streaming: bool) -> None:
    """Add citations to the last text; while streaming, as a fragment directly after it."""
    insert_index = next((n for n in range(len(contents), 0, -1) if is_text(contents[n - 1])), 0)
    if insert_index and not streaming:
        contents[insert_index - 1].annotations = annotations
        return
    contents.insert(insert_index, Content.from_text("", annotations=annotations))
    contents[insert_index].merge_mode = "append" if streaming else None


def _split_candidates(candidates: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the candidate that is the response, and the others; a stream's chunk may have any of them."""
    elements = cast("list[Any]", candidates) if isinstance(candidates, list) else []
    candidate_list = [cast("dict[str, Any]", candidate) for candidate in elements if isinstance(candidate, dict)]
    first = next((candidate for candidate in candidate_list if not candidate.get("index")), dict[str, Any]())
    return first, [candidate for candidate in candidate_list if candidate is not first]


def _parts(candidate: Mapping[str, Any]) -> list[Part]:
    content: Any = candidate.get("content")
    parts: Any = cast("dict[str, Any]", content).get("parts") if isinstance(content, dict) else None
    return [part for part in cast("list[Any]", parts) if isinstance(part, dict)] if isinstance(parts, list) else []


def _as_text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
