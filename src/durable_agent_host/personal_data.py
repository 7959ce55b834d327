"""A ready-made redaction: masks card numbers, e-mail addresses, keys and tokens in stored and shown data. Pure."""

import copy
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from agent_framework import Content

from durable_agent_host.long_texts import is_found, replaced, replaced_each
from durable_agent_host.redaction import without_keys
from durable_agent_host.secret_forms import MASK

HELD_CHARACTERS: Final = 128
"""How many characters of a stream are held back until more arrive: longer than a card number or a token's start."""

_ATS: Final = ("@", "%40", "&#64;", "&#x40;", "\\u0040", "\uff20")
"""How an @ is written: as it is, and in URLs, HTML and JSON."""
_EMAIL: Final = re.compile(
    # In JSON, the letter after a backslash is none of the address, and after a % two digits of a URL are none.
    r"(?:(?<![\w.+-])(?!(?<=\\)(?:[nrt]|u[0-9a-f]{4}))|(?<=\\[nrt])|(?<=%3[ad])|(?<=%22))(?!git@[\w.-]+:)"
    r"(?:[\w.+-]|(?<=\w)'(?=\w)|%(?!40)|\\u(?!0040)[0-9a-f]{4}){1,64}"
    r"(?:@(?![1-3]x\.(?:png|jpe?g|gif|webp|svg)\b)|%40|&\#(?:64|x40);|\\u0040|\uff20)"
    r"(?:(?:[\w-]{1,63}\.){1,12}(?:xn--[a-z0-9-]{2,59}|[^\W\d_]{2,24})(?![^\W_])|\[\d{1,3}(?:\.\d{1,3}){3}\])",
    re.IGNORECASE,
)
_GAP: Final = r"[ \t\xa0\xad\u2000-\u200d\u202f\u205f\u2060\u3000]"
_DIGITS: Final = re.compile(
    r"(?=\d)(?:(?<![A-Za-z0-9_+])(?<!\d\.)(?<![A-Z]{2}\d\d )(?<![0-9a-f]{8}-)|(?<=\\[nrt])|(?<=card[_-])|(?<=number_)"
    r"|(?<=pan_)|(?<=cc_)|(?<=no_)|(?<=id_)|(?<=%B)|(?<=%3D)|(?<=card)|(?<=visa)|(?<=amex)|(?<=(?<![a-z])pan)"
    r"|(?<=(?<![a-z])no)|(?<=cardno))"
    r"(?:\d{4}\.(?:\d{4}\.\d{4}\.\d{4}|\d{6}\.\d{5})"
    rf"|\d(?:(?:{_GAP}{{1,2}}|_|{_GAP}?[-\u2010-\u2015]{_GAP}?)?\d){{12,}})(?![A-Za-z0-9]|\.\d)",
    re.IGNORECASE,
)
_MANY_DIGITS: Final = re.compile(r"\d[^A-Za-z]{12}")
"""Found wherever `_DIGITS` is, in a fraction of the time."""
_CARD: Final = re.compile(
    r"4(?:\d{12}|\d{15}|\d{18})|(?:5[0-9]|2[2-7])\d{14}|3[47]\d{13}|3[0689]\d{12}(?:\d\d)?|(?:35|220)\d{14,17}"
    r"|(?:5[06-8]|67)\d{16,17}|62\d{14,17}|6(?:\d{15}|\d{18})|8[12]\d{14}|9792\d{12}"
)
"""Issuers' first digits and lengths. Source: ISO/IEC 7812, and the networks' own ranges."""
_CARD_LENGTHS: Final = range(19, 12, -1)
_SHORTEST_GROUP: Final = 4
"""Digits in shorter groups are a row of numbers; only the last group of a card may be shorter."""
_MOST_GROUPS: Final = 5
"""More groups of four digits are a row of numbers."""
_ARTICLE_DIGITS: Final = 13
_CACHED_CHARACTERS: Final = 4096
_MOST_BEFORE_AT: Final = 64 * len(r"\u00e9")
_MOST_AFTER_AT: Final = 6 + 12 * 64 + 64
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
    if not content.text or (text := _redacted_text(content.text)) == content.text:
        return content
    redacted = copy.copy(content)
    redacted.text = text
    return redacted


def _redacted_text(text: str) -> str:
    return _redacted_short(text) if len(text) <= _CACHED_CHARACTERS else _redacted(text)


_hook: Any = redact_personal_data
_hook.held_characters = HELD_CHARACTERS
_hook.of_texts = redact_personal_data, _redacted_text
"""The function, and what it does with a content's text, which is all that it does; see `turn.redactor`."""


def _redacted(text: str) -> str:
    text = without_keys(text)
    for at in _ATS:
        if at in text:
            text = replaced_each(_addresses_in(text, at), MASK, text)
    return replaced(_DIGITS, _without_cards, text) if is_found(_MANY_DIGITS, text) else text


_redacted_short = lru_cache(256)(_redacted)
"""A turn redacts a text several times: as it streams, is logged, stored and shown."""


def _addresses_in(text: str, sign: str) -> Iterator[re.Match[str]]:
    """Yield the e-mail addresses with this form of the @; searches only around each, of which an address has one."""
    before, at = 0, text.find(sign)
    while at >= 0:
        following = text.find(sign, at + 1)
        end = at + _MOST_AFTER_AT if following < 0 else min(at + _MOST_AFTER_AT, following)
        found = _EMAIL.search(text, max(before, at - _MOST_BEFORE_AT), end)
        if found is not None:
            yield found
        before = found.end() if found is not None else at + len(sign)
        at = following


def _without_cards(found: re.Match[str]) -> str:
    """Mask the cards in a run of digits; digits after a card may be its expiry month or a check number."""
    run = found[0]
    groups = [group.span() for group in re.finditer(r"\d+", run)]
    sizes = [end - start for start, end in groups]
    is_spelt = max(sizes) == 1  # digit by digit, and nothing else
    if is_spelt and len(sizes) > _CARD_LENGTHS[0]:
        return run
    if not is_spelt and max(sizes) < _SHORTEST_GROUP:
        return run
    if set(sizes) == {_SHORTEST_GROUP} and len(sizes) > _MOST_GROUPS:
        return run
    digits = _Digits("".join([str(int(digit)) for start, end in groups for digit in run[start:end]]))
    short = [] if is_spelt else [end for start, end in groups if end - start < _SHORTEST_GROUP]
    ends = dict(zip(accumulate(end - start for start, end in groups), (end for _, end in groups), strict=True))
    parts, told, place = list[str](), 0, 0
    for start, end in groups:
        cards = (place + one for one in digits.cards(place) if place + one in ends)
        cards = (one for one in cards if not is_spelt or (place, ends[one]) == (0, len(run)))
        if start >= told and (card := next((one for one in cards if not _is_row(start, ends[one], short)), 0)):
            parts += [run[told:start], MASK]
            told = ends[card]
        place += end - start
    return "".join([*parts, run[told:]])


def _is_row(start: int, end: int, short: Sequence[int]) -> bool:
    """Return whether a group before the last one is too short for a card."""
    place = bisect_right(short, start)
    return place < len(short) and short[place] < end


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
                if (sums[end] - sums[start]) % 10 == 0 and not self._is_article(start, end):
                    yield length

    def _is_article(self, start: int, end: int) -> bool:
        """Return whether the check digit is right for an article number, too. Source: GS1, EAN-13."""
        if end - start != _ARTICLE_DIGITS:
            return False
        values = [int(digit) for digit in self._digits[start:end]]
        return (sum(values[::2]) + 3 * sum(values[1::2])) % 10 == 0
