"""Applies an app's redaction to all stored and shown data of a turn.

Theory of operation. The app's function gets a content and returns it, or a copy. It is called for each content, for
nested ones, and with a text content for each other text: of arguments, results, citations, the provider's items. A
changed content keeps no provider item, which would repeat what was removed, and no signature, which would be invalid;
it is replayed from its remaining text. A mark shows that it was redacted.
"""

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, cast

from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.content_fields import dump_value
from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.codec.shared_text import detach_shared_texts, restore_shared_texts, without_item
from durable_agent_host.codec.strict_json import read_json
from durable_agent_host.errors import RedactionError
from durable_agent_host.model.overlay import MessagePosition, Overlay
from durable_agent_host.model.provider_item import PART_OF, STAMP
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.redaction import MASK

REDACTED: Final = "durable_agent_host.redacted"
"""Key in the ``additional_properties`` of a content that has been redacted."""

Redact = Callable[[Content], Content]
"""Returns a content, or a copy without what must not be stored."""

_NAMES: Final = frozenset(
    {
        *("type", "raw_representation", "merge_mode", "call_id", "id", "media_type", "usage_details"),
        *("protected_data", "file_id", "vector_store_id", "image_id", "status", "name", "tool_name", "server_name"),
        "additional_properties",
    }
)
"""Fields of a content that describe it, and contain nothing of the conversation."""


_MAX_DEPTH: Final = 100
"""Deeper values are masked."""
_SHORT_CHARACTERS: Final = 64
"""Maximum length of a text in the cache of texts without redactions."""
_MAX_HARMLESS: Final = 4096
"""Size of the cache of short texts without redactions: field names, ids, recurring words."""


class Redactor:
    """Applies an app's function.

    Args:
        redact: pure; it returns a copy of what it changes.

    Attributes:
        redact: as given.
    """

    def __init__(self, redact: Redact) -> None:
        self.redact = redact
        self._harmless: set[str] = set()

    def check(self) -> None:
        """Try the app's function on a text, so that a broken one is reported before a turn needs it.

        Raises:
            ValueError: the function failed; says what to give.
        """
        content, reason = self._call_redact(Content.from_text("Hello"), str)
        if content is None:
            raise ValueError(
                f"it {reason} for the text 'Hello': give a function that returns a content of the same type"
            )

    def text(self, text: str) -> str:
        """Redact a text.

        Raises:
            RedactionError: the app's function failed.
        """
        if not text or text.isspace() or text in self._harmless:
            return text
        redacted_text = self._call(Content.from_text(text), is_own=True).text or ""
        if redacted_text == text and len(text) <= _SHORT_CHARACTERS:
            if len(self._harmless) >= _MAX_HARMLESS:
                self._harmless.clear()
            self._harmless.add(text)
        return redacted_text

    def text_or_mask(self, text: str) -> str:
        """Redact the text of an error or log line; if that fails, nothing of it is left."""
        try:
            return self.text(text)
        except RedactionError:
            return MASK

    def value(self, value: Any, depth: int = 0) -> Any:
        """Redact every text in a value, keys and numbers included.

        Returns:
            The same object where nothing has changed, or a copy.

        Raises:
            RedactionError: the app's function failed.
        """
        if isinstance(value, str):
            text = self.text(value)
            return value if text == value else text
        if isinstance(value, Content):
            return self.content(value)
        if isinstance(value, Mapping):
            return self._mapping(cast("Mapping[Any, Any]", value), depth + 1) if depth < _MAX_DEPTH else MASK
        if isinstance(value, list | tuple):
            return self._sequence(cast("Sequence[Any]", value), depth + 1) if depth < _MAX_DEPTH else MASK
        if isinstance(value, int | float) and not isinstance(value, bool):
            number_text = str(value)
            return value if (text := self.text(number_text)) == number_text else text
        return value

    def arguments(self, arguments: Any) -> Any:
        """Redact the arguments of a call: inside of JSON, so that it stays JSON.

        Raises:
            RedactionError: the app's function failed.
        """
        arguments_json = read_json(arguments) if isinstance(arguments, str) else None
        if arguments_json is None:
            return self.value(arguments)
        redacted_json = self.value(arguments_json)
        return arguments if redacted_json is arguments_json else json.dumps(redacted_json, ensure_ascii=False)

    def content(self, content: Content) -> Content:
        """Redact a content.

        Returns:
            The content itself, or a marked copy.

        Raises:
            RedactionError: the app's function failed.
        """
        returned_content = self._call(content)
        changes: dict[str, Any] = {}
        for name, value in vars(returned_content).items():
            if name in _NAMES or not value or (name == "uri" and returned_content.type == "data"):
                continue
            if name == "text" and returned_content.type == "text":
                continue
            redacted_value = self.arguments(value) if name == "arguments" else self.value(value)
            if redacted_value is not value:
                changes[name] = redacted_value
        if content.annotations and content.type == "text" and returned_content.text != content.text:
            annotations = changes.get("annotations", returned_content.annotations)
            changes["annotations"] = self._annotations(annotations, content.text or "", returned_content.text or "")
        properties: Mapping[str, Any] = returned_content.additional_properties
        redacted_properties = self.value(properties)
        has_changed = bool(changes) or (returned_content is not content and _differs(returned_content, content))
        if not has_changed and redacted_properties is properties:
            return content
        redacted_content = copy.copy(returned_content)
        for name, value in changes.items():
            setattr(redacted_content, name, value)
        redacted_content.raw_representation = None
        redacted_content.additional_properties = {**redacted_properties, REDACTED: True}
        if has_changed:
            redacted_content.additional_properties.pop(STAMP, None)
            redacted_content.protected_data = None
        return redacted_content

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """Redact messages; unchanged ones are the same objects.

        Raises:
            RedactionError: the app's function failed.
        """
        return [self._message(message) for message in messages]

    def request(self, request: TurnRequest) -> TurnRequest:
        """Redact a turn's request.

        Returns:
            The request itself, or a copy.

        Raises:
            RedactionError: the app's function failed.
        """
        contents = request.contents
        if contents:
            original_contents = [decode_content(content) for content in contents]
            redacted_contents = [self.content(content) for content in original_contents]
            if any(new is not old for new, old in zip(redacted_contents, original_contents, strict=True)):
                contents = tuple(cast("Mapping[str, Any]", encode_content(content)) for content in redacted_contents)
        message = self.text(request.message)
        options = self.value(request.options)
        schema = self.value(request.response_format)
        is_same = message == request.message and contents is request.contents
        if is_same and options is request.options and schema is request.response_format:
            return request
        return replace(request, message=message, contents=contents, options=options, response_format=schema)

    def response(self, response: AgentResponse[Any]) -> AgentResponse[Any]:
        """Redact an answer, with its structured value.

        Returns:
            The response itself, or a copy.

        Raises:
            RedactionError: the app's function failed.
        """
        messages = self.messages(response.messages)
        properties = self.value(response.additional_properties or {})
        try:
            value = dump_value(response.value, "value")
        except ValueError:  # the text does not match the format that the agent asked for, so there is no value
            value = None
        redacted_value = self.value(value)
        is_same = redacted_value is value and properties == (response.additional_properties or {})
        if is_same and all(new is old for new, old in zip(messages, response.messages, strict=True)):
            return response
        return AgentResponse(
            messages=messages,
            response_id=response.response_id,
            agent_id=response.agent_id,
            created_at=response.created_at,
            finish_reason=cast("Any", response.finish_reason),
            usage_details=response.usage_details,
            value=redacted_value,
            continuation_token=response.continuation_token,
            additional_properties=properties,
        )

    def overlay(self, overlay: Overlay) -> Overlay:
        """Redact the summaries of a context.

        Raises:
            RedactionError: the app's function failed.
        """
        return replace(overlay, parts=tuple(self._part(part) for part in overlay.parts))

    def marked(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Redact a pending call, or the answer to one; what has changed is marked.

        Raises:
            RedactionError: the app's function failed.
        """
        redacted = self.data(data)
        return redacted if redacted == data else {**redacted, "redacted": True}

    def data(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Redact an event's data; names of calls and tools stay.

        Raises:
            RedactionError: the app's function failed.
        """
        read = dict.fromkeys(("result", "error", "reason", "text", "files"), self.value) | {"arguments": self.arguments}
        redacted = {name: read[name](value) if name in read and value else value for name, value in data.items()}
        if redacted.get("citations"):
            text, new_text = data["text"], redacted["text"]
            redacted["citations"] = [self._citation(citation, text, new_text) for citation in redacted["citations"]]
        return redacted

    def _citation(self, citation: Mapping[str, Any], text: str, new_text: str) -> Mapping[str, Any]:
        """Move the range of a citation to its place in a redacted text."""
        positions = {name: self._move(citation[name], text, new_text) for name in ("start", "end")}
        return {**self.value({name: citation[name] for name in citation if name not in positions}), **positions}

    def _move(self, position: int, text: str, new_text: str) -> int:
        return position if text == new_text else min(len(self.text(text[:position])), len(new_text))

    def _annotations(self, annotations: Any, text: str, new_text: str) -> Any:
        """Move the ranges of a text's citations to their positions in the redacted text."""
        return [
            {**annotation, "annotated_regions": [self._region(region, text, new_text) for region in regions]}
            if (regions := annotation.get("annotated_regions"))
            else annotation
            for annotation in annotations
        ]

    def _region(self, region: Mapping[str, Any], text: str, new_text: str) -> Mapping[str, Any]:
        names = [name for name in ("start_index", "end_index") if isinstance(region.get(name), int)]
        return {**region, **{name: self._move(region[name], text, new_text) for name in names}}

    def _part(self, part: Any) -> Any:
        if isinstance(part, MessagePosition):
            return part
        message = decode_message(part)
        (redacted_message,) = self.messages([message])
        return part if redacted_message is message else encode_message(redacted_message)

    def _message(self, message: Message) -> Message:
        detached_contents = detach_shared_texts(message.contents)  # what an item repeats is redacted in the contents
        contents = list(map(self.content, detached_contents))
        is_changed = [new is not old for new, old in zip(contents, detached_contents, strict=True)]
        contents = [new if flag else old for new, old, flag in zip(contents, message.contents, is_changed, strict=True)]
        starts = [n for n, content in enumerate(message.contents) if PART_OF not in content.additional_properties]
        for start, end in pairwise([*starts, len(contents)]):
            if any(is_changed[start + 1 : end]) or STAMP not in contents[start].additional_properties:
                contents[start:end] = map(without_item, contents[start:end])  # it would repeat what was removed
        restore_shared_texts(contents)
        properties = self.value(message.additional_properties)
        is_same = all(new is old for new, old in zip(contents, message.contents, strict=True))
        if is_same and properties is message.additional_properties:
            return message
        redacted_message = copy.copy(message)
        redacted_message.contents = contents
        redacted_message.additional_properties = properties
        redacted_message.raw_representation = None
        return redacted_message

    def _sequence(self, value: Sequence[Any], depth: int) -> Sequence[Any]:
        redacted_items = [self.value(item, depth) for item in value]
        return value if all(new is old for new, old in zip(redacted_items, value, strict=True)) else redacted_items

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        redacted_items = {self.value(name, depth): self.value(item, depth) for name, item in value.items()}
        pairs = zip(redacted_items.items(), value.items(), strict=False)
        is_same = len(redacted_items) == len(value) and all(a is c and b is d for (a, b), (c, d) in pairs)
        return value if is_same else redacted_items

    def _call(self, content: Content, *, is_own: bool = False) -> Content:
        content_copy = content if is_own else copy.copy(content)
        content_copy.additional_properties = dict(content.additional_properties)
        redacted_content, reason = self._call_redact(content_copy, type(content.text))
        if redacted_content is None:
            raise RedactionError(
                f"the app's function 'redact' {reason} for a content of type {content.type!r}, so nothing of the "
                "turn was stored: fix the function, which must return a content of the same type"
            )
        return (
            content
            if not is_own and redacted_content is content_copy and not _differs(content_copy, content)
            else redacted_content
        )

    def _call_redact(self, content: Content, text_type: type) -> tuple[Content | None, str]:
        """Call the app's function; without a usable content, return what it did."""
        content_type = content.type
        try:
            result: Any = self.redact(content)
        except Exception as error:  # noqa: BLE001 - the app's own function; its words may quote the content
            return None, f"raised {type(error).__name__}"
        if isinstance(result, Content) and result.type == content_type and isinstance(result.text, text_type):
            return result, ""
        return None, f"returned {type(result).__name__}"


def _differs(content: Content, other: Content) -> bool:
    """Return whether two contents differ; nested values are compared by identity or value."""
    fields = vars(content)
    other_fields = vars(other)
    if fields == other_fields:
        return False
    return any(
        other_fields.get(name) is not value and other_fields.get(name) != value
        for name, value in fields.items()
        if name != "raw_representation"
    )
