"""A ready-made redaction: masks card numbers, e-mail addresses, keys and tokens in stored and shown data. Pure."""

import copy
import re
from collections.abc import Iterator
from itertools import accumulate
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.long_texts import replaced, replaced_each
from durable_agent_host.redaction import without_keys
from durable_agent_host.secret_forms import MASK

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
    r"(?=\d)(?:(?<!\w)(?<!\d\.)|(?<=\\[nrt])|(?<=card[_-])|(?<=card)|(?<=number_)|(?<=pan_)|(?<=cc_)|(?<=no_))"
    r"(?:\d{4}\.(?:\d{4}\.\d{4}\.\d{4}|\d{6}\.\d{5})"
    rf"|\d(?:(?:{_GAP}{{1,2}}|{_GAP}?[-\u2010-\u2015]{_GAP}?)?\d){{12,}})(?![^\W_]|\.\d)",
    re.IGNORECASE,
)
_CARD: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[1-5]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}|6\d{15}|6\d{18}|35\d{14}"
)
_CARD_LENGTHS: Final = (19, 16, 15, 14, 13)
_MOST_BEFORE_AT: Final = 64 * len(r"\u00e9")
_MOST_AFTER_AT: Final = 1 + 8 * 64 + 64
"""The longest address that `_EMAIL` matches, and what it looks at behind it."""


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
    text = replaced_each(_addresses_in(text), MASK, text)
    text = replaced(_DIGITS, _without_cards, text)
    if text == content.text:
        return content
    redacted = copy.copy(content)
    redacted.text = text
    return redacted


_hook: Any = redact_personal_data
_hook.held_characters = HELD_CHARACTERS


def _addresses_in(text: str) -> Iterator[re.Match[str]]:
    """Yield the e-mail addresses; searches only around each @, of which an address has one."""
    before, at = 0, text.find("@")
    while at >= 0:
        following = text.find("@", at + 1)
        end = at + _MOST_AFTER_AT if following < 0 else min(at + _MOST_AFTER_AT, following)
        found = _EMAIL.search(text, max(before, at - _MOST_BEFORE_AT), end)
        if found is not None:
            yield found
        before = found.end() if found is not None else at + 1
        at = following


def _without_cards(found: re.Match[str]) -> str:
    """Mask the cards in a run of digits; digits after a card may be its expiry month or a check number."""
    run = found[0]
    groups = [(group.start(), group.end()) for group in re.finditer(r"\d+", run)]
    digits = _Digits("".join([run[start:end] for start, end in groups]))
    ends = dict(zip(accumulate(end - start for start, end in groups), (end for _, end in groups), strict=True))
    parts, told, place = list[str](), 0, 0
    for start, end in groups:
        if start >= told and (card := next((place + one for one in digits.cards(place) if place + one in ends), 0)):
            parts += [run[told:start], MASK]
            told = ends[card]
        place += end - start
    return "".join([*parts, run[told:]])


class _Digits:
    """Digits in which cards are searched, each place in the same time.

    The check digit of a card is that of the sum of its digits, of which every second one from the last is doubled, and
    loses 9 above 9. Source: ISO/IEC 7812-1, annex B.
    """

    def __init__(self, digits: str) -> None:
        self._digits = digits
        values = [int(digit) for digit in digits]
        doubled = [2 * one - 9 * (one > 4) for one in values]  # noqa: PLR2004 - twice 5 is above 9
        self._sums = [
            [*accumulate((one if n % 2 == parity else two for n, (one, two) in pairs), initial=0)]
            for parity in (0, 1)
            for pairs in [enumerate(zip(values, doubled, strict=True))]
        ]

    def cards(self, start: int) -> Iterator[int]:
        """Yield the lengths of the cards that begin at a place, the longest first."""
        for length in _CARD_LENGTHS:
            end = start + length
            if end <= len(self._digits) and _CARD.fullmatch(self._digits, start, end):
                sums = self._sums[(end - 1) % 2]
                if (sums[end] - sums[start]) % 10 == 0:
                    yield length
