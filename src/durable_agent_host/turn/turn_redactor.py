"""Applies an app's redaction to all stored and shown data of a turn. Pure, as far as the app's function is.

Theory of operation. The app's function gets a content and returns it, or a copy. It is called for each content, for
nested ones, and with a text content for each other text: of arguments, results, citations, the provider's items. A
changed content keeps no provider item, which would repeat what was removed, and no signature, which would be invalid;
it is replayed from its remaining text. A mark shows that it was redacted.
"""

import copy
import json
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, cast

from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.content_fields import dump_value
from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.errors import RedactionError
from durable_agent_host.model.overlay import Overlay, StandIn
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


_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_-]+")
"""What the services do not take in the name of a tool."""
_DEEPEST: Final = 100
_SHORT_CHARACTERS: Final = 64
_MOST_HARMLESS: Final = 4096
"""Size of the cache of short texts without redactions: field names, ids, recurring words."""


class Redactor:
    """Applies an app's function.

    Args:
        redact: pure; it returns a copy of what it changes. Its optional attribute ``held_characters`` says how much of
            a streamed text it needs to see at once; without it, it needs all of a content.
    """

    def __init__(self, redact: Redact) -> None:
        self._redact = redact
        self._harmless: set[str] = set()
        self.held_characters: int | None = getattr(redact, "held_characters", None)

    def does(self, redact: Redact) -> bool:
        """Return whether this applies a given function. Guarantee: pure."""
        return self._redact is redact

    def check(self) -> None:
        """Try the app's function on a text, so that a broken one is reported before a turn needs it.

        Raises:
            ValueError: the function failed, or its ``held_characters`` is not a number; says what to give.
        """
        held: Any = self.held_characters
        if held is not None and (not isinstance(held, int) or isinstance(held, bool) or held < 1):
            raise ValueError(f"its held_characters is {held!r}: give a whole number above 0, or leave it out")
        returned, reason = self._asked(Content.from_text("Hello"), str)
        if returned is None:
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
        redacted = self._call(Content.from_text(text), is_own=True).text or ""
        if redacted == text and len(text) <= _SHORT_CHARACTERS:
            if len(self._harmless) >= _MOST_HARMLESS:
                self._harmless.clear()
            self._harmless.add(text)
        return redacted

    def text_or_mask(self, text: str) -> str:
        """Redact the text of an error or log line; if that fails, nothing of it is left."""
        try:
            return self.text(text)
        except RedactionError:
            return MASK

    def value(self, value: Any, depth: int = 0) -> Any:
        """Redact every text in a value, keys and numbers included.

        Args:
            value: contents, and JSON values.
            depth: how many lists and objects it is in. What is in more than 100 of them is masked as a whole, because a
                walk through it could end the stack.

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
            return self._mapping(cast("Mapping[Any, Any]", value), depth + 1) if depth < _DEEPEST else MASK
        if isinstance(value, list | tuple):
            return self._sequence(cast("Sequence[Any]", value), depth + 1) if depth < _DEEPEST else MASK
        if isinstance(value, int | float) and not isinstance(value, bool):
            said = str(value)
            return value if (text := self.text(said)) == said else text
        return value

    def arguments(self, arguments: Any) -> Any:
        """Redact the arguments of a call: inside of JSON, so that it stays JSON.

        Args:
            arguments: the model's text, or an object.

        Raises:
            RedactionError: the app's function failed.
        """
        if not isinstance(arguments, str):
            return self.value(arguments)
        try:
            parsed = json.loads(arguments)
        except (ValueError, RecursionError):
            return self.value(arguments)
        walked = self.value(parsed)
        return arguments if walked is parsed else json.dumps(walked, ensure_ascii=False)

    def content(self, content: Content) -> Content:
        """Redact a content.

        Returns:
            The content itself, or a marked copy.

        Raises:
            RedactionError: the app's function failed.
        """
        given = self._call(content)
        changes: dict[str, Any] = {}
        for name, value in vars(given).items():
            if name in _NAMES or not value or (name == "uri" and given.type == "data"):
                continue
            if name == "text" and given.type == "text":
                continue
            walked = self.arguments(value) if name == "arguments" else self.value(value)
            if walked is not value:
                changes[name] = walked
        properties: Mapping[str, Any] = given.additional_properties
        kept = self.value(properties)
        says_less = bool(changes) or (given is not content and _differs(given, content))
        if not says_less and kept is properties:
            return content
        redacted = copy.copy(given)
        for name, value in changes.items():
            setattr(redacted, name, value)
        redacted.raw_representation = None
        redacted.additional_properties = {**kept, REDACTED: True}
        if says_less:
            redacted.additional_properties.pop(STAMP, None)
            redacted.protected_data = None
        return redacted

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
            decoded = [decode_content(one) for one in contents]
            walked = [self.content(one) for one in decoded]
            if any(new is not old for new, old in zip(walked, decoded, strict=True)):
                contents = tuple(cast("Mapping[str, Any]", encode_content(one)) for one in walked)
        message = self.text(request.message)
        options = self.value(request.options)
        schema = self.value(request.response_format)
        is_same = message == request.message and contents is request.contents
        if is_same and options is request.options and schema is request.response_format:
            return request
        return replace(request, message=message, contents=contents, options=options, response_format=schema)

    def response(self, response: AgentResponse[Any], *, offered: Container[str] | None = None) -> AgentResponse[Any]:
        """Redact an answer, with its structured value.

        Args:
            response: of the agent.
            offered: names of the tools that the model was offered: other names in its calls, which it has made up, are
                redacted. None when they are not known.

        Returns:
            The response itself, or a copy.

        Raises:
            RedactionError: the app's function failed.
        """
        given = response.messages
        if offered is not None:
            given = [_renamed(one, offered, self.text) for one in given]
        messages = self.messages(given)
        properties = self.value(response.additional_properties or {})
        try:
            value = dump_value(response.value, "value")
        except ValueError:  # the text does not match the format that the agent asked for, so there is no value
            value = None
        walked = self.value(value)
        is_same = walked is value and properties == (response.additional_properties or {})
        if is_same and all(new is old for new, old in zip(messages, response.messages, strict=True)):
            return response
        return AgentResponse(
            messages=messages,
            response_id=response.response_id,
            agent_id=response.agent_id,
            created_at=response.created_at,
            finish_reason=cast("Any", response.finish_reason),
            usage_details=response.usage_details,
            value=walked,
            continuation_token=response.continuation_token,
            additional_properties=properties,
        )

    def overlay(self, overlay: Overlay) -> Overlay:
        """Redact the summaries of a context.

        Raises:
            RedactionError: the app's function failed.
        """
        return replace(overlay, pieces=tuple(self._piece(piece) for piece in overlay.pieces))

    def calls(self, calls: Iterable[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
        """Redact calls as shown to people: arguments and reason.

        Raises:
            RedactionError: the app's function failed.
        """
        return tuple(self.data(call) for call in calls)

    def data(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Redact an event's data; names of calls and tools stay.

        Raises:
            RedactionError: the app's function failed.
        """
        read = {"arguments": self.arguments, "result": self.value, "reason": self.value, "text": self.value}
        return {name: read[name](value) if name in read and value else value for name, value in data.items()}

    def _piece(self, piece: Any) -> Any:
        if not isinstance(piece, StandIn):
            return piece
        message = decode_message(piece.message)
        (redacted,) = self.messages([message])
        if redacted is message:
            return piece
        return replace(piece, message=encode_message(redacted))

    def _message(self, message: Message) -> Message:
        contents: list[Content] = []
        lost: Any = None
        for content in message.contents:
            redacted = self.content(content)
            if STAMP in content.additional_properties:
                lost = STAMP not in redacted.additional_properties
            elif lost and PART_OF in redacted.additional_properties:  # of an item that no longer exists
                redacted = copy.copy(redacted)
                kept = redacted.additional_properties.items()
                redacted.additional_properties = {name: value for name, value in kept if name != PART_OF}
            contents.append(redacted)
        properties = self.value(message.additional_properties)
        is_same = all(new is old for new, old in zip(contents, message.contents, strict=True))
        if is_same and properties is message.additional_properties:
            return message
        copied = copy.copy(message)
        copied.contents = contents
        copied.additional_properties = properties
        copied.raw_representation = None
        return copied

    def _sequence(self, value: Sequence[Any], depth: int) -> Sequence[Any]:
        walked = [self.value(one, depth) for one in value]
        return value if all(new is old for new, old in zip(walked, value, strict=True)) else walked

    def _mapping(self, value: Mapping[Any, Any], depth: int) -> Any:
        walked = {self.value(name, depth): self.value(one, depth) for name, one in value.items()}
        pairs = zip(walked.items(), value.items(), strict=False)
        is_same = len(walked) == len(value) and all(a is c and b is d for (a, b), (c, d) in pairs)
        return value if is_same else walked

    def _call(self, content: Content, *, is_own: bool = False) -> Content:
        given = content if is_own else copy.copy(content)
        given.additional_properties = dict(content.additional_properties)
        returned, reason = self._asked(given, type(content.text))
        if returned is None:
            raise RedactionError(
                f"the app's function 'redact' {reason} for a content of type {content.type!r}, so nothing of the "
                "turn was stored: fix the function, which must return a content of the same type"
            )
        return content if not is_own and returned is given and not _differs(given, content) else returned

    def _asked(self, given: Content, text_type: type) -> tuple[Content | None, str]:
        """Call the app's function; without a usable content, return what it did."""
        content_type = given.type
        try:
            returned: Any = self._redact(given)
        except Exception as error:  # noqa: BLE001 - the app's own function; its words may quote the content
            return None, f"raised {type(error).__name__}"
        if isinstance(returned, Content) and returned.type == content_type and isinstance(returned.text, text_type):
            return returned, ""
        return None, f"returned {type(returned).__name__}"


def _renamed(message: Message, offered: Container[str], clean: Callable[[str], str]) -> Message:
    """Redact the names of tools that there are not; their calls keep their ids, by which results belong to them."""
    contents = [_with_name(one, offered, clean) if one.type == "function_call" else one for one in message.contents]
    if all(new is old for new, old in zip(contents, message.contents, strict=True)):
        return message
    renamed = copy.copy(message)
    renamed.contents = contents
    renamed.raw_representation = None
    return renamed


def _with_name(call: Content, offered: Container[str], clean: Callable[[str], str]) -> Content:
    name = (call.name or "") if call.type == "function_call" else ""
    if name in offered or (redacted := clean(name)) == name:
        return call
    renamed = copy.copy(call)
    renamed.name = _NO_NAME.sub("_", redacted)
    renamed.raw_representation = renamed.protected_data = None
    renamed.additional_properties = {**call.additional_properties, REDACTED: True}
    renamed.additional_properties.pop(STAMP, None)
    return renamed


def _differs(one: Content, other: Content) -> bool:
    """Return whether two contents differ; nested values are compared by identity or value."""
    said = vars(one)
    known = vars(other)
    if said == known:
        return False
    return any(
        known.get(name) is not value and known.get(name) != value
        for name, value in said.items()
        if name != "raw_representation"
    )
