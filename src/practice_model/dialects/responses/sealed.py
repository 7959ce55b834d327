"""Encrypted reasoning that this server recognises, also after a restart.

A value is a marker, the reasoning text and a keyed digest in URL-safe base64. The key is fixed and public: it detects
damaged, swapped and foreign values and protects no secret.
"""

import base64
import binascii
import hashlib
import hmac

_KEY = b"practice-model encrypted reasoning v1"
_MARKER = b"\x80\x00\x00PM1"
_DIGEST_BYTES = 32


def sign_reasoning(item_id: str, text: str) -> str:
    """Return the `encrypted_content` of a reasoning item."""
    body = _MARKER + f"{item_id}\n{text}".encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(body + _digest(body)).decode()


def unsigned_value(item_id: str) -> str:
    """Return a value for `output_item.added`: formatted like a signed one, but invalid on replay.

    Source: recorded streams, where the value of `added` differs from the one of `done`.
    """
    body = _MARKER + f"{item_id}\n".encode()
    return base64.urlsafe_b64encode(body + hashlib.sha256(body).digest()).decode()


def is_genuine(value: str) -> bool:
    """Return whether this server issued the value, unmodified; never raise."""
    try:
        raw = base64.b64decode(value.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return False
    body = raw[:-_DIGEST_BYTES]
    digest = raw[-_DIGEST_BYTES:]
    is_canonical = base64.urlsafe_b64encode(raw).decode() == value
    return is_canonical and body.startswith(_MARKER) and hmac.compare_digest(_digest(body), digest)


def _digest(body: bytes) -> bytes:
    return hmac.new(_KEY, body, hashlib.sha256).digest()
