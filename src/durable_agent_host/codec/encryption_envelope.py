"""The JSON form of an encrypted value."""

import json
from typing import Any, Final

_ENCRYPTED: Final = "$encrypted"
_BEGIN: Final = f'{{"{_ENCRYPTED}"'


def encode_envelope(text: str) -> dict[str, Any]:
    """Encode an encrypted value, given as base64, as JSON."""
    return {_ENCRYPTED: text}


def read_envelope(value: Any) -> str | None:
    """Return the base64 of an encrypted value.

    Returns:
        None when it is not encrypted.
    """
    if isinstance(value, str) and value.startswith(_BEGIN):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return None
    match value:
        case {"$encrypted": str(text), **rest} if not rest:
            return text
        case _:
            return None
