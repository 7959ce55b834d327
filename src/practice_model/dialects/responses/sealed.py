"""Encrypted reasoning that this server recognises, also after a restart.

A value is a marker, the reasoning text and a keyed digest in URL-safe base64. The key is fixed and public: it detects
damaged, mixed-up and foreign values and protects no secret.
"""

import base64
import binascii
import hashlib
import hmac

_KEY = b"practice-model encrypted reasoning v1"
_MARKER = b"\x80\x00\x00PM1"
_DIGEST_BYTES = 32


def seal(item_id: str, text: str) -> str:
    """Return the `encrypted_content` of a reasoning item.

    Guarantee: pure.
    """
    body = _MARKER + f"{item_id}\n{text}".encode("utf-8", "surrogatepass")
    return base64.urlsafe_b64encode(body + _digest(body)).decode()


def unfinished(item_id: str) -> str:
    """Return a value for `output_item.added`: formatted like a sealed one, but invalid on replay.

    Guarantee: pure.
    Source: recorded streams, where the value of `added` differs from the one of `done`.
    """
    body = _MARKER + f"{item_id}\n".encode()
    return base64.urlsafe_b64encode(body + hashlib.sha256(body).digest()).decode()


def is_sealed(value: str) -> bool:
    """Return whether this server made the value, unchanged.

    Guarantee: pure, never raises.
    """
    try:
        raw = base64.b64decode(value.encode(), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError, ValueError):
        return False
    body, digest = raw[:-_DIGEST_BYTES], raw[-_DIGEST_BYTES:]
    canonical = base64.urlsafe_b64encode(raw).decode() == value
    return canonical and body.startswith(_MARKER) and hmac.compare_digest(_digest(body), digest)


def _digest(body: bytes) -> bytes:
    return hmac.new(_KEY, body, hashlib.sha256).digest()
