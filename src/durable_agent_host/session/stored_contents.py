"""The contents of stored entries, as JSON, with their places."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

from durable_agent_host.codec.wire import EXTENSION

Json = dict[str, Any]


class Found(NamedTuple):
    """A content of an entry, with what contains it.

    Attributes:
        entry: of a conversation.
        message: of that entry.
        content: of that message.
    """

    entry: Json
    message: Json
    content: Json

    @property
    def type(self) -> Any:
        """The content's type, as stored."""
        return self.content.get("$type")

    @property
    def call_id(self) -> Any:
        """For function calls and results, the id of the call."""
        return self.content.get("callId")

    @property
    def place(self) -> str:
        """Its place: the turn, message and content, counted from 1."""
        messages = cast("list[Json]", self.entry["messages"])
        number = next(n for n, message in enumerate(messages, 1) if message is self.message)
        position = next((n for n, content in enumerate(self.message["contents"], 1) if content is self.content), 0)
        where = f"turn {self.entry.get('correlationId')}, message {number}"
        return where + (f", content {position}" if position else "")

    def remove(self) -> None:
        """Remove it from its message."""
        self.message["contents"] = [content for content in self.message["contents"] if content is not self.content]


def stored_contents(entries: Iterable[Json]) -> Iterator[Found]:
    """Iterate over the contents of entries, in order; they may be removed during iteration.

    Args:
        entries: each content an object.

    Yields:
        Each content with its place.
    """
    for entry in entries:
        for message in list(entry.get("messages") or ()):
            for content in cast("list[Json]", list(message["contents"])):
                yield Found(entry, message, content)


def extension_of(holder: Mapping[str, Any]) -> Json:
    """Return this program's part of a stored object, beside upstream's fields. Guarantee: pure.

    Args:
        holder: a content, or the data of a document.

    Returns:
        The object's own part, or an empty one.
    """
    return _object(_object(holder.get("extensionData")).get(EXTENSION))


def properties_of(content: Mapping[str, Any]) -> Json:
    """Return a content's ``additional_properties``, which hosted contents keep in their inner object.

    Guarantee: pure.

    Args:
        content: as stored.

    Returns:
        The content's own part, or an empty one.
    """
    inner = _object(content.get("content"))
    return _object((inner or extension_of(content)).get("additional_properties"))


def _object(value: Any) -> Json:
    return cast("Json", value) if isinstance(value, dict) else {}
