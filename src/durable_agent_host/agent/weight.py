"""How much a turn streams and stores, in UTF-8 bytes of compact JSON."""

import json
from collections.abc import Sequence
from typing import Any

from agent_framework import Content

from durable_agent_host.codec.content import encode_content
from durable_agent_host.errors import CorruptStateError


def json_bytes(value: Any) -> int:
    """Measure a value. Guarantee: pure.

    Args:
        value: JSON; lone surrogates included.

    Returns:
        UTF-8 bytes of its compact JSON.
    """
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


class StreamWeight:
    """Measures the contents of updates as they stream.

    A content that differs from the previous one only in its text is measured by that text: most updates are such.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._error: CorruptStateError | None = None
        self._before: dict[str, Any] | None = None
        self._around_text = 0

    def add(self, contents: Sequence[Content]) -> None:
        """Add one update's contents; a value that cannot be stored fails `total_bytes`, and not the stream."""
        self._bytes += 2 + max(len(contents) - 1, 0)  # brackets and commas
        try:
            for content in contents:
                self._bytes += self._weigh(content)
        except CorruptStateError as error:
            self._error = error
        except RecursionError:
            self._error = CorruptStateError("a content is nested too deeply to be stored")

    def total_bytes(self) -> int:
        """Return the bytes of all lists so far.

        Raises:
            CorruptStateError: a content holds a value that JSON cannot represent.
        """
        if self._error is not None:
            raise self._error
        return self._bytes

    def _weigh(self, content: Content) -> int:
        own = vars(content)
        text, before = own.get("text"), self._before
        if before is not None and text and content.type == "text":
            before["text"], before["raw_representation"] = text, own.get("raw_representation")
            if own == before:
                return self._around_text + json_bytes(text)
        size = json_bytes(encode_content(content))
        if text and content.type == "text":
            self._before, self._around_text = dict(own), size - json_bytes(text)
        return size
