"""Masks keys in log messages and tracebacks.

Keys are in URLs (``?code=KEY``, ``/runtime/own/KEY/``) and in the header ``x-functions-key``; errors of clients,
servers and apps quote URLs.
"""

import logging
import re
from collections.abc import Iterable

_MASK = "***"
_SECRETS = re.compile(
    r"""(?P<before> [?&]code= | \bcode=(?=[\w%+/.~-]{20}) | x-functions-key["']?\s*[:=,]\s*b?["']? )
        [^&\s"'<>()\[\]{},;\\#]+
      | (?P<own> /runtime/own/ ) [^/\s"'?]+""",
    re.VERBOSE | re.IGNORECASE,
)


class MaskingFormatter(logging.Formatter):
    """Formats records with another formatter and masks the keys.

    Args:
        inner: formats the record.
        keys: keys that are masked anywhere in the text.
    """

    def __init__(self, inner: logging.Formatter, keys: Iterable[str]) -> None:
        super().__init__()
        self.inner = inner
        self._keys = tuple(keys)

    def format(self, record: logging.LogRecord) -> str:
        """Format one record, its traceback included."""
        return mask_keys(self.inner.format(record), self._keys)


def mask_keys(text: str, keys: Iterable[str] = ()) -> str:
    """Mask the keys in a text: by position, and known ones anywhere."""
    for key in keys:
        text = text.replace(key, _MASK)
    return _SECRETS.sub(lambda found: f"{found['before'] or found['own']}{_MASK}", text)


def mask_log_output(keys: Iterable[str] = ()) -> None:
    """Mask the output of the root logger's handlers; a second call adds known keys."""
    for handler in logging.getLogger().handlers:
        inner = handler.formatter or logging.Formatter()
        if isinstance(inner, MaskingFormatter):
            inner = inner.inner
        handler.setFormatter(MaskingFormatter(inner, keys))
