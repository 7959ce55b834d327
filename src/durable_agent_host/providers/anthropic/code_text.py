"""Reads code out of a tool's streaming JSON input. Pure; each piece is read once."""

import json
import re
from typing import Final

_OPENING: Final = re.compile(r'\s*\{\s*"code"\s*:\s*"')
_LONGEST_OPENING: Final = 40
_WHOLE: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)
"""Complete characters and escapes of a JSON string; the halves of a surrogate pair belong together."""


class CodeText:
    """The code in an input that streams as ``{"code": "..."}``; other inputs are ignored."""

    def __init__(self) -> None:
        self._rest = ""
        self._is_open = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        """Read the next piece of the JSON text, and return the new part of the code."""
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
