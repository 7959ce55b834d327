"""Reads code out of a tool's streaming JSON input; reads each chunk once."""

import json
import re
from typing import Final

_OPENING: Final = re.compile(r'\s*\{\s*"code"\s*:\s*"')
_MAX_OPENING_CHARACTERS: Final = 40
_COMPLETE_CHARACTERS: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)
"""Complete characters and escapes of a JSON string; the halves of a surrogate pair belong together."""


class CodeText:
    """The code in an input that streams as ``{"code": "..."}``; other inputs are ignored."""

    def __init__(self) -> None:
        self._remaining = ""
        self._is_open = False
        self._is_over = False

    def feed(self, chunk: str) -> str:
        """Read the next chunk of the JSON text, and return the new part of the code."""
        if self._is_over:
            return ""
        self._remaining += chunk
        if not self._is_open:
            opening = _OPENING.match(self._remaining)
            if opening is None:
                self._is_over = len(self._remaining) > _MAX_OPENING_CHARACTERS
                return ""
            self._is_open, self._remaining = True, self._remaining[opening.end() :]
        match = _COMPLETE_CHARACTERS.match(self._remaining)
        end = match.end() if match is not None else 0
        raw = self._remaining[:end]
        self._remaining = self._remaining[end:]
        self._is_over = self._remaining.startswith('"')
        try:
            return str(json.loads(f'"{raw}"', strict=False))
        except ValueError:
            self._is_over = True
            return ""
