"""Reads the responses of Gemini into neutral contents: one reader per response, streamed or not. Pure.

The contents do not depend on where the service split its stream: texts are joined by the fold, and every other part
arrives complete.
"""

from collections.abc import Mapping
from typing import Any, Final, cast
from uuid import uuid4

from agent_framework import Content

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.providers.gemini.beside import SaidBeside
from durable_agent_host.providers.gemini.partial_calls import PartialCalls
from durable_agent_host.providers.gemini.parts import SPANS, Part, code_result, content_of, is_text
from durable_agent_host.providers.gemini.stops import check_stop

_RESULTS_OF: Final = {"codeExecutionResult": "executableCode", "toolResponse": "toolCall"}
_HOSTED: Final = (*_RESULTS_OF.values(), *_RESULTS_OF)


class ResponseReader:
    """Reads the chunks of one response, or the one response.

    Args:
        streaming: whether more chunks follow, so that texts are pieces.
    """

    def __init__(self, *, streaming: bool) -> None:
        self._streaming = streaming
        self._calls = PartialCalls()
        self._beside = SaidBeside()
        self._text: list[str] = []
        self._spans = 0
        self._ids: dict[str, list[str]] = {}
        self._answered: set[str] = set()
        self._run: str | None = None
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
            ProviderError: the service ended without an answer, or within a function call.
        """
        candidate, others = _answer_of(response.get("candidates"))
        check_stop(response, candidate)
        for one in others:
            self._beside.read_other(one)
        self.response_id = self.response_id or _text_of(response.get("responseId"))
        self._beside.read(response, candidate)
        contents = [content for part in _parts(candidate) for content in self._content(part)]
        if notes := self._beside.annotations(candidate, self._text):
            _annotate(contents, notes, streaming=self._streaming)
        finished = candidate.get("finishReason")
        self._is_finished = self._is_finished or bool(finished)
        if finished or not self._streaming or (others and self._is_finished):
            if self._calls.are_open:
                raise ProviderError(
                    f"the model's answer ended within a function call ({finished}); try again", retryable=True
                )
            contents += self._beside.contents(self._new_id("search"), tells_searches="toolCall" not in self._ids)
        return contents

    def _content(self, part: Part) -> list[Content]:
        if "functionCall" in part and isinstance(part["functionCall"], dict):
            whole = self._calls.take(part)
            return [] if whole is None else [self._call(whole)]
        if part == {"text": ""} or not part:
            return []  # streams end with one; requests without it are accepted
        kind = next(
            (kind for kind in ("executableCode", "toolCall", *_RESULTS_OF) if isinstance(part.get(kind), dict)), ""
        )
        call_id = self._id_of(kind, part[kind]) if kind else ""
        content = content_of(part, call_id, before="".join(self._text) if len(part) > 1 else "", number=self._spans)
        if self._streaming and content.type in {"text", "text_reasoning"}:
            content.merge_mode = "append"
        return [self._placed(kind, content)]

    def _placed(self, kind: str, content: Content) -> Content:
        """Put the outputs of a code run into its result; an image after them was made by the code."""
        run, self._run = self._run, None
        if kind == "codeExecutionResult" and content.type in {"text", "error"}:
            content.merge_mode = None
            self._run = self._ids[kind][-1]
            content = code_result(self._run, [content])
        elif run and content.type == "data":
            self._run = run
            content = code_result(run, [content])
            content.status = None
        elif is_text(content):
            self._text.append(content.text or "")
            self._spans += SPANS in content.additional_properties
            return content
        self._text, self._spans = [], 0
        return content

    def _call(self, part: Part) -> Content:
        self._run, self._text, self._spans = None, [], 0
        call_id = part["functionCall"].get("id")
        if not isinstance(call_id, str) or not call_id or call_id in self._answered:
            call_id = f"tool-call-{uuid4().hex}"
        self._answered.add(call_id)
        content = content_of(part, call_id)
        if self._streaming and content.type == "function_call":
            content.merge_mode = "replace"
        return content

    def _id_of(self, kind: str, value: Mapping[str, Any]) -> str:
        """Return the id of a hosted call, or of a result's call, also where the service gives no ids."""
        given = value.get("id")
        asked = self._ids.get(_RESULTS_OF.get(kind, ""), [])
        open_calls = [one for one in asked if one not in self._answered]
        name = given if isinstance(given, str) and given else open_calls[0] if open_calls else self._new_id(kind)
        if kind not in _RESULTS_OF and name in self._ids.get(kind, []):
            name = self._new_id(kind)
        if kind in _RESULTS_OF:
            name = self._new_id(kind) if name in self._answered else name
            self._answered.add(name)
        self._ids.setdefault(kind, []).append(name)
        return name

    def _new_id(self, kind: str) -> str:
        self._count += 1
        return f"{kind.lower()}_{derived_id(self.response_id or uuid4().hex, str(self._count))}"


def _annotate(contents: list[Content], notes: list[Any], *, streaming: bool) -> None:
    """Add citations to the last text; while streaming, as a piece of it, before what ends it."""
    place = next((n for n in range(len(contents), 0, -1) if is_text(contents[n - 1])), 0)
    if place and not streaming:
        contents[place - 1].annotations = notes
        return
    contents.insert(place, Content.from_text("", annotations=notes))
    contents[place].merge_mode = "append" if streaming else None


def _answer_of(candidates: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the candidate that is the answer, and the others; a stream's chunk may have any of them."""
    given = cast("list[Any]", candidates) if isinstance(candidates, list) else []
    known = [cast("dict[str, Any]", one) for one in given if isinstance(one, dict)]
    first = next((one for one in known if not one.get("index")), dict[str, Any]())
    return first, [one for one in known if one is not first]


def _parts(candidate: Mapping[str, Any]) -> list[Part]:
    content: Any = candidate.get("content")
    parts: Any = cast("dict[str, Any]", content).get("parts") if isinstance(content, dict) else None
    return [part for part in cast("list[Any]", parts) if isinstance(part, dict)] if isinstance(parts, list) else []


def _text_of(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
