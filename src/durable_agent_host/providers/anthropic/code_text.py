"""Reads code out of the JSON text of a tool's input while that is streamed. Pure; each piece is read once."""

import json
import re
from typing import Final

_OPENING: Final = re.compile(r'\s*\{\s*"code"\s*:\s*"')
_LONGEST_OPENING: Final = 40
_WHOLE: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)
"""Characters and escapes of a JSON string that are whole; the halves of a surrogate pair belong together."""


class CodeText:
    """The code in an input that is streamed as ``{"code": "..."}``; of other inputs nothing is read."""

    def __init__(self) -> None:
        self._rest = ""
        self._is_open = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        """Read the next piece of the JSON text, and give what of the code is new."""
        if self._is_over:
            return ""
        self._rest += piece
        if not self._is_open:
            opening = _OPENING.match(self._rest)
            if opening is None:
                self._is_over = len(self._rest) > _LONGEST_OPENING
                return ""
            self._is_open, self._rest = True, self._rest[opening.end() :]
        whole = _WHOLE.match(self._rest)
        end = whole.end() if whole is not None else 0
        raw, self._rest = self._rest[:end], self._rest[end:]
        self._is_over = self._rest.startswith('"')
        try:
            return str(json.loads(f'"{raw}"', strict=False))
        except ValueError:
            self._is_over = True
            return ""
