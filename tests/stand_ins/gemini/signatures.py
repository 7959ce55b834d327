"""Thought signatures that this server recognises."""

from typing import Final

from practice_model.dialects.responses import sealed

BYPASS: Final = frozenset({"context_engineering_is_the_way_to_go", "skip_thought_signature_validator"})
"""Placeholder signatures that the API accepts for calls of another model.

Source: https://ai.google.dev/gemini-api/docs/thought-signatures
"""


def normalize_base64(value: str) -> str:
    """Return base64 in the alphabet of signatures; the API accepts both."""
    return value.replace("-", "+").replace("_", "/").rstrip("=")


def sign(name: str, text: str) -> str:
    """Return the signature of a part."""
    return sealed.sign_reasoning(name, text).replace("-", "+").replace("_", "/")


def is_signature(value: str) -> bool:
    """Return whether this server issued the signature, unmodified."""
    return value in BYPASS or sealed.is_genuine(value.replace("+", "-").replace("/", "_"))
