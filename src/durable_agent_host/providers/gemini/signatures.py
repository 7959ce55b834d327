"""Signatures for function calls that Gemini 3 did not make itself.

The models reject a turn in which the first call of a response has no thought signature. Calls by another model, or by
an earlier Gemini, have none; for these the service accepts a placeholder that turns the check off.

Source: https://ai.google.dev/gemini-api/docs/thought-signatures, "transferring a conversation trace"
"""

import re
from collections.abc import Sequence
from typing import Any, Final

_CHECKS: Final = re.compile(r"(^|/)gemini-([3-9]|\d\d)")
UNCHECKED: Final = "skip_thought_signature_validator"


def with_signatures(model: str, contents: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give calls of the current turn without a signature the placeholder that the service accepts.

    Guarantee: pure; the contents are not changed.

    Args:
        model: the requested model.
        contents: of a request.

    Returns:
        The same contents, or copies where a signature was missing.
    """
    if _CHECKS.search(model) is None:
        return list(contents)
    request_indexes = [
        n for n, content in enumerate(contents) if content["role"] != "model" and not _has(content, "functionResponse")
    ]
    turn_start = request_indexes[-1] if request_indexes else 0
    return [
        _with_placeholder(content) if n > turn_start and content["role"] == "model" else content
        for n, content in enumerate(contents)
    ]


def _has(content: dict[str, Any], kind: str) -> bool:
    return any(kind in part for part in content["parts"])


def _with_placeholder(content: dict[str, Any]) -> dict[str, Any]:
    parts: list[dict[str, Any]] = content["parts"]
    first = next((n for n, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or "thoughtSignature" in parts[first]:
        return content
    signed_part = {**parts[first], "thoughtSignature": UNCHECKED}
    return {**content, "parts": [*parts[:first], signed_part, *parts[first + 1 :]]}
