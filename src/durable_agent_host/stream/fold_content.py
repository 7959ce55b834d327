"""Accumulators of the chunks of one streamed content. A chunk costs the same, however many came before.

A content type that streams in chunks has a row in `ACCUMULATORS`; all other types arrive complete. Texts are kept in
lists and joined once.
"""

import copy
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, cast

from agent_framework import Content

_CODE_RUNS: Final = "code_interpreter_tool_call", "code_interpreter_tool_result"

_CALL_FLAGS: Final = "hosted", "user_input_request", "informational_only", "exception"
_call_names = attrgetter("name", "call_id", "id", "server_name", "merge_mode", *_CALL_FLAGS)
_NESTED: Final = "items", "inputs", "outputs", "output", "function_call", "screenshot"


class CompleteContent:
    """A content that arrived whole: no fragment belongs to it."""

    def __init__(self, content: Content) -> None:
        self.type = content.type
        self._content = content

    def content(self) -> Content:
        """Return a copy without the provider's live object.

        Returns:
            A new content; what is nested in it is shared.
        """
        content_copy = _bare(self._content)
        content_copy.merge_mode = None
        return content_copy

    def joins(self, content: Content) -> bool:
        """Return whether a content repeats this call."""
        return self._content.call_id == content.call_id

    def add(self, content: Content) -> None:
        """Take from the repetition of this call that it waits for an answer."""
        self._content = copy.copy(self._content)
        self._content.user_input_request = content.user_input_request


class _Accumulator:
    """The fields that fragments of all types share."""

    def __init__(self, first: Content) -> None:
        self.type = first.type
        self._head = first
        self._properties: dict[str, Any] = {}
        self._last_properties: dict[str, Any] | None = None
        self._annotations: list[Any] | None = None
        self._status: str | None = None

    def _add_common(self, content: Content, *, incoming_wins: bool) -> None:
        properties = content.additional_properties
        if properties and properties != self._last_properties:
            _merge_properties(self._properties, properties, incoming_wins=incoming_wins)
            self._last_properties = None if properties.get("logprobs") else properties
        if content.annotations is not None:
            self._annotations = self._annotations if self._annotations is not None else []
            self._annotations.extend(content.annotations)
        if content.status is not None:
            self._status = content.status

    def _finish(self) -> Content:
        result = copy.copy(self._head)
        result.raw_representation = None
        result.merge_mode = None
        result.additional_properties = _copy_properties(self._properties)
        result.annotations = cast(
            "Any", self._annotations and [_without_raw(annotation) for annotation in self._annotations]
        )
        result.status = self._status
        return result


class TextAccumulator(_Accumulator):
    """A run of text or of reasoning."""

    def __init__(self, first: Content) -> None:
        super().__init__(first)
        self._chunks: list[str] = []
        self._has_text = first.text is not None
        self._id = first.id
        self._protected_data: str | None = None
        self._kind = _kind(first)
        self.add(first)

    def joins(self, content: Content) -> bool:
        """Return whether a content continues this run.

        Returns:
            False for another kind of output, or another item's reasoning.
        """
        if content.id is not None and content.id != self._id:
            return False
        return _kind(content) == self._kind or (self.type == "text_reasoning" and not content.text)

    def add(self, content: Content) -> None:
        """Add a fragment."""
        mode = content.merge_mode
        properties = content.additional_properties
        if mode is not None and mode == "replace":
            self._chunks = []
            self._add_common(content, incoming_wins=True)
        elif (properties and properties != self._last_properties) or content.annotations or content.status:
            self._add_common(content, incoming_wins=False)
        if (text := content.text) is not None:
            self._has_text = True
            self._chunks.append(text)
        if (protected_data := content.protected_data) is not None:
            self._protected_data = protected_data

    def content(self) -> Content:
        """Return the run as one content."""
        result = self._finish()
        result.text = _join_text(self._chunks) if self._has_text else None
        result.protected_data = self._protected_data
        return result


class FunctionCallAccumulator(_Accumulator):
    """A function call, its arguments in fragments.

    Empty arguments replace nothing, and anything replaces them: some services open a call with an empty object and then
    send its arguments as text.
    """

    def __init__(self, first: Content) -> None:
        super().__init__(first)
        self._fragments: list[str] = []
        self._has_text = False
        self._object: Mapping[str, Any] | None = None
        self._fields = {"name": first.name, "call_id": first.call_id, "id": first.id, "server_name": first.server_name}
        self._flags = dict.fromkeys(_CALL_FLAGS)
        self._last_names: tuple[Any, ...] | None = None
        self.add(first)

    def joins(self, content: Content) -> bool:
        """Return whether a content is another fragment of this call.

        Returns:
            False when it has another id, server or form of arguments.
        """
        if _call_names(content) == self._last_names and isinstance(content.arguments, str) and not self._object:
            return True
        fields = self._fields
        if (fields["id"] is not None) != (content.id is not None) and content.call_id:
            return False  # a call id alone does not prove a match for a call that has its own id
        for name in ("id", "call_id", "server_name"):
            incoming_value = getattr(content, name)
            if fields[name] and incoming_value and fields[name] != incoming_value:
                return False
        if content.merge_mode == "replace" or not content.arguments:
            return True
        return not (self._has_text if isinstance(content.arguments, Mapping) else self._object)

    def add(self, content: Content) -> None:
        """Add a fragment."""
        if content.merge_mode == "replace":
            self._fragments = []
            self._has_text = False
            self._object = None
        if isinstance(arguments := content.arguments, str):
            if arguments or not self._object:
                self._fragments.append(arguments)
                self._has_text = self._has_text or bool(arguments)
                self._object = None
        elif arguments is not None and (arguments or not self._has_text):
            self._fragments = []
            self._object = {**(self._object or {}), **arguments}
        names = _call_names(content)
        if names != self._last_names:
            self._last_names = names
            self._merge_names(content)
        self._add_common(content, incoming_wins=False)

    def _merge_names(self, content: Content) -> None:
        for name in self._fields:
            incoming_value = getattr(content, name)
            if incoming_value and (not self._fields[name] or (content.merge_mode == "replace" and name == "name")):
                self._fields[name] = incoming_value
        for name in self._flags:
            if (value := getattr(content, name)) not in (None, False) or self._flags[name] is None:
                self._flags[name] = value

    def content(self) -> Content:
        """Return the call as one content."""
        result = self._finish()
        for name, value in (self._fields | self._flags).items():
            setattr(result, name, value)
        result.arguments = (
            self._object if self._object is not None else _join_text(self._fragments) if self._fragments else None
        )
        return result


class CodeRunAccumulator(_Accumulator):
    """A code run: the call with its script, or its result."""

    def __init__(self, first: Content) -> None:
        super().__init__(first)
        self._lists: dict[str, list[Content] | None] = {"inputs": None, "outputs": None}
        self.add(first)

    def joins(self, content: Content) -> bool:
        """Return whether a content is more of this run.

        Returns:
            True unless both have call ids that differ.
        """
        return not (self._head.call_id and content.call_id and self._head.call_id != content.call_id)

    def add(self, content: Content) -> None:
        """Add a fragment."""
        if content.merge_mode == "replace":
            self._lists = {"inputs": None, "outputs": None}
        for name in self._lists:
            value = getattr(content, name)
            if isinstance(value, Sequence) and not isinstance(value, str):
                contents = self._lists[name]
                self._lists[name] = contents = [] if contents is None else contents
                contents.extend(cast("Sequence[Content]", value))
        self._add_common(content, incoming_wins=True)

    def drop_repeat(self) -> None:
        """Drop the last input when it repeats all before it, as older clients ended a streamed script."""
        inputs = self._lists["inputs"]
        if inputs and len(inputs) > 1 and all(_is_text(text_content) for text_content in inputs):
            *before, last = (str(text_content.text) for text_content in inputs)
            if "".join(before) == last:
                del inputs[:-1]

    def content(self) -> Content:
        """Return the run as one content.

        Returns:
            A new content, texts of its lists joined.
        """
        result = self._finish()
        result.inputs = _join_contents(self._lists["inputs"])
        result.outputs = _join_contents(self._lists["outputs"])
        return result


FragmentAccumulator = TextAccumulator | FunctionCallAccumulator | CodeRunAccumulator
Accumulator = CompleteContent | FragmentAccumulator

ACCUMULATORS: Final[dict[str, type[FragmentAccumulator]]] = {
    "text": TextAccumulator,
    "text_reasoning": TextAccumulator,
    "function_call": FunctionCallAccumulator,
    **dict.fromkeys(_CODE_RUNS, CodeRunAccumulator),
}
"""Type of content → what joins its fragments."""


def _bare(content: Content) -> Content:
    """Copy a content without the provider's live objects, its own and those of the contents in it."""
    content_copy = copy.copy(content)
    content_copy.raw_representation = None
    if content_copy.annotations:
        content_copy.annotations = cast("Any", [_without_raw(annotation) for annotation in content_copy.annotations])
    for name in _NESTED:
        value = getattr(content_copy, name)
        if isinstance(value, Content):
            setattr(content_copy, name, _bare(value))
        elif isinstance(value, list):
            inner = cast("list[Any]", value)
            setattr(
                content_copy,
                name,
                [
                    _bare(inner_content) if isinstance(inner_content, Content) else inner_content
                    for inner_content in inner
                ],
            )
    return content_copy


def _without_raw(annotation: Any) -> Any:
    return {name: value for name, value in annotation.items() if name != "raw_representation"}


def _join_text(fragments: Sequence[str]) -> str:
    """Join texts; surrogate pairs that a service cut in two become whole characters."""
    text = "".join(fragments)
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def _is_text(content: Content) -> bool:
    return content.type == "text"


def _join_contents(contents: list[Content] | None) -> list[Content] | None:
    """Join a list of texts into one; a list with other contents stays a list."""
    if not contents:
        return contents
    if len(contents) == 1 or not all(_is_text(content) for content in contents):
        return [CompleteContent(content).content() for content in contents]
    run = TextAccumulator(contents[0])
    for content in contents[1:]:
        run.add(content)
    return [run.content()]


def _kind(content: Content) -> Any:
    """Distinguish refusals from texts, and summaries of reasoning from reasoning."""
    properties = content.additional_properties
    if not properties:
        return None
    if content.type == "text":
        name = "model_output_kind"
        blocks = (properties.get("core"),)
    else:
        name = "reasoning_text"  # the framework nests it under the provider's name
        blocks = properties.values()
    nested_properties = (cast("Mapping[str, Any]", block) for block in blocks if isinstance(block, Mapping))
    return next((kind for block in nested_properties if (kind := block.get(name))), None) or properties.get(name)


def _copy_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {n: dict(cast("Any", v)) if isinstance(v, Mapping) else v for n, v in properties.items()}


def _merge_properties(merged: dict[str, Any], incoming: Mapping[str, Any], *, incoming_wins: bool) -> None:
    """Merge one level deep; token probabilities come in fragments and are joined."""
    for name, value in incoming.items():
        current = merged.get(name)
        if isinstance(value, Mapping) and (isinstance(current, dict) or incoming_wins or name not in merged):
            inner = cast("dict[str, Any]", current) if isinstance(current, dict) else {}
            _merge_properties(inner, cast("Mapping[str, Any]", value), incoming_wins=incoming_wins)
            merged[name] = inner
        elif name == "logprobs" and isinstance(value, list):
            before = [] if incoming_wins or not isinstance(current, list) else cast("list[Any]", current)
            before.extend(cast("list[Any]", value))
            merged[name] = before
        elif incoming_wins or name not in merged:
            merged[name] = value
