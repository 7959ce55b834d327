"""A ready-made redaction: masks card numbers, e-mail addresses, keys and tokens in stored and shown data. Pure."""

import copy
import re
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.redaction import MASK, without_keys

HELD_CHARACTERS: Final = 128
"""How many characters of a stream are held back until more arrive: longer than a card number or a token's start."""

_EMAIL: Final = re.compile(
    # In JSON, the letter after a backslash is none of the address.
    r"(?:(?<![\w.+-])(?!(?<=\\)(?:[nrt]|u[0-9a-f]{4}))|(?<=\\[nrt]))(?:[\w.+%-]|\\u[0-9a-f]{4}){1,64}"
    r"@(?:[\w-]{1,63}\.){1,8}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24})(?![^\W_])",
    re.IGNORECASE,
)
_GAP: Final = r"[ \t\xa0\u2000-\u200b\u202f\u205f\u3000]"
_DIGITS: Final = re.compile(
    r"(?:(?<!\w)(?<!\d\.)|(?<=\\[nrt])|(?<=card[_-])|(?<=card)|(?<=number_)|(?<=pan_)|(?<=cc_)|(?<=no_))"
    r"(?:\d{4}\.(?:\d{4}\.\d{4}\.\d{4}|\d{6}\.\d{5})"
    rf"|\d(?:(?:{_GAP}{{1,2}}|{_GAP}?[-\u2010-\u2015]{_GAP}?)?\d){{12,}})(?![^\W_]|\.\d)",
    re.IGNORECASE,
)
_CARD: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|6\d{15}|6\d{18}|35\d{14}"
)
_LONGEST_CARD: Final = 19


def redact_personal_data(content: Content) -> Content:
    """Mask card numbers, e-mail addresses, bearer tokens, private keys and API keys in a content's text.

    The host calls it for the text of every content, and for every other text in it (arguments, results, outputs,
    citations), so a function of your own can do the same.

    Guarantee: pure.

    Args:
        content: of any type; returned as it is when it has no text.

    Returns:
        The content, or a copy with `MASK` for each match. A card number has the length and first digits of an issuer's
        cards and a valid check digit (Luhn).
    """
    if not content.text:
        return content
    text = without_keys(content.text)
    if "@" in text:
        text = _EMAIL.sub(MASK, text)
    text = _DIGITS.sub(_without_cards, text)
    if text == content.text:
        return content
    redacted = copy.copy(content)
    redacted.text = text
    return redacted


_hook: Any = redact_personal_data
_hook.held_characters = HELD_CHARACTERS


def _without_cards(found: re.Match[str]) -> str:
    """Mask the cards in a run of digits; digits after a card may be its expiry month or a check number."""
    run = found[0]
    groups = [(group.start(), group.end()) for group in re.finditer(r"\d+", run)]
    parts, told = list[str](), 0
    for number, (start, _) in enumerate(groups):
        if start >= told and (end := _end_of_card(run, groups, number)):
            parts += [run[told:start], MASK]
            told = end
    return "".join([*parts, run[told:]])


def _end_of_card(run: str, groups: Sequence[tuple[int, int]], number: int) -> int:
    """Return where the longest card that begins with a group of digits ends; 0 if there is none."""
    digits, found = "", 0
    while number < len(groups) and len(digits) <= _LONGEST_CARD:
        start, end = groups[number]
        digits += run[start : min(end, start + _LONGEST_CARD + 1)]
        if _CARD.fullmatch(digits) and _has_check_digit(digits):
            found = end
        number += 1
    return found


def _has_check_digit(digits: str) -> bool:
    """Return whether the last digit is the check digit of the others. Source: ISO/IEC 7812-1, annex B."""
    doubled = [int(digit) * (1 + place % 2) for place, digit in enumerate(reversed(digits))]
    return sum(one - 9 * (one > 9) for one in doubled) % 10 == 0  # noqa: PLR2004 - the sum of the digits
