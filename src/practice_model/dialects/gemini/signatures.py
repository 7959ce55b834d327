"""Thought signatures that this server recognises. Pure."""

from typing import Final

from practice_model.dialects.responses import sealed

BYPASS: Final = frozenset({"context_engineering_is_the_way_to_go", "skip_thought_signature_validator"})
"""What the API takes for calls that another model has made.

Source: https://ai.google.dev/gemini-api/docs/thought-signatures
"""


def plain_base64(value: str) -> str:
    """Write base64 in the alphabet of signatures; the API takes either."""
    return value.replace("-", "+").replace("_", "/").rstrip("=")


def sign(name: str, text: str) -> str:
    """Make the signature of a part. Guarantee: pure."""
    return sealed.seal(name, text).replace("-", "+").replace("_", "/")


def is_signature(value: str) -> bool:
    """Tell whether this server made a signature, unchanged. Guarantee: pure."""
    return value in BYPASS or sealed.is_sealed(value.replace("+", "-").replace("/", "_"))
