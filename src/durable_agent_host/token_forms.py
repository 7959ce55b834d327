"""The formats that services give their keys and tokens. Pure.

Source: the services' documentation; identifiable Azure keys: microsoft/security-utilities.
"""

import re
from collections.abc import Collection
from typing import Final, NamedTuple

_TOKEN_STARTS: Final = (
    *("gh[pousr]_", "github_pat_", "hf_", "npm_", r"ya29\.", "pypi-", "AIza", "GOCSPX-", "gl(?:pat|rt|dt|ptt|soat)-"),
    *("xox[abeoprs][-.]", "xapp-", "do[opr]_v1_", "whsec_", r"SG\.", r"hv[bsr]\.", "dckr_[op]at_", "lin_api_"),
    *("sq0(?:atp|csp)-", "AGE-SECRET-KEY-1", "sntry[su]_", "pscale_(?:tkn|oauth|pw)_", "NRAK-", "PMAK-", "rubygems_"),
    *("lsv2_(?:pt|sk)_", "pcsk_", "AT[AC]TT3", r"dp\.(?:pt|st|ct)\."),
)
"""Begin a token of at least 16 further characters."""
_TOKEN_TELLS: Final = (
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "npm_", "ya29.", "pypi-", "AIza", "GOCSPX-"),
    *("glpat-", "glrt-", "gldt-", "glptt-", "glsoat-", "xox", "xapp-", "_v1_", "whsec_", "SG.", "hvb.", "hvs.", "hvr."),
    *("dckr_", "lin_api_", "sq0", "AGE-SECRET", "sntry", "pscale_", "NRAK-", "PMAK-", "rubygems_", "lsv2_", "pcsk_"),
    *("TATT3", "TCTT3", "dp.pt.", "dp.st.", "dp.ct."),
)
_SHORT_STARTS: Final = (
    *("gsk_", "r8_", "fw_", "ntn_", "sbp_", "jina_", "figd_", "glsa_", "glc_", "secret_", "xai-", "pplx-", "nvapi-"),
    *("tvly-", "pul-", "sb_secret_", "vercel_", "CFPAT-", "HRKU-", "EAAA", "fm2_"),
)
"""Begin a token, or an ordinary name, which has no such mixture of letters and digits."""
_IS_KEY: Final = (
    r"(?=(?:proj|ant|svcacct|admin)-|(?:live|test)_|(?:(?:[A-Za-z0-9]{0,7}+|[a-z]{1,64}+)(?:-|[^\WA-Za-z0-9])){0,32}+"
    r"(?:[A-Za-z0-9]{0,64}+\*|(?=[A-Za-z0-9]{8})[a-z]{0,64}+[A-Z0-9])|(?=[\w-]{16})[a-z0-9_-]{0,64}+[A-Z])"
)
"""Tells a key from a name such as ``pk_orders_customer_id`` or ``rk-3588-board-v2``: it goes on as keys of OpenAI,
Anthropic and Stripe do (``sk-proj-``, ``sk_live_``); or a part of it, between hyphens and underscores, has at least 8
characters and among them a digit or a capital letter; or it has at least 16 characters and among them a capital letter;
or it is partly starred."""
_HEX: Final = (("shp", ""), *((start, "[0-9a-f]{3}") for start in ("dapi", "key-", "sk")))
_AZURE_MARKS: Final = (
    *("APIM", "ACDb", "+ABa", "+AMC", "+ASt", "AIoT", "+ASb", "+AEh", "+ARm", "AzFu", "AzSe", "AzCa", "+ACR", "AZDO"),
)


def any_of(hints: Collection[tuple[str, str]]) -> str:
    """Build a regular expression for any of the words and what is behind it, by first letters: this is fastest."""
    rest: dict[str, list[tuple[str, str]]] = {}
    behind = {tail for word, tail in hints if not word}
    if "" in behind:
        return ""
    for word, tail in sorted(hints):
        if word:
            rest.setdefault(word[0], []).append((word[1:], tail))
    return f"(?:{'|'.join([*(re.escape(letter) + any_of(rest[letter]) for letter in rest), *sorted(behind)])})"


class TokenForm(NamedTuple):
    """A format.

    Attributes:
        pattern: regular expression, in which letter case counts.
        tells: texts that a match contains: one of each group.
        hints: words of which a match contains one, each with a regular expression for what is behind it; all in lower
            case. Empty where a group of ``tells`` is rare enough.
        starts: regular expressions, each beginning with plain text, for the beginning of a match; empty for a form
            that begins otherwise.
    """

    pattern: str
    tells: tuple[tuple[str, ...], ...]
    hints: tuple[tuple[str, str], ...] = ()
    starts: tuple[str, ...] = ()


def token_start(word: str) -> str:
    """Return a regular expression for what tokens with a known beginning begin with. Guarantee: pure."""
    starts = {start for form in token_forms(word) for start in form.starts}
    literals = [(re.match(r"[\w/-]*", start) or [""])[0] for start in starts]
    split = {(literal, start.removeprefix(literal)) for literal, start in zip(literals, starts, strict=True)}
    return rf"{word}{any_of(split)}"


def token_forms(word: str) -> tuple[TokenForm, ...]:
    """Return the formats, the last of which is not of tokens alone. Guarantee: pure.

    Args:
        word: regular expression for the start of a word.
    """
    starts, short = "|".join(_TOKEN_STARTS), "|".join(_SHORT_STARTS)
    azure = (
        r"[A-Za-z0-9+/]{76}(?:APIM|ACDb|\+ABa|\+AMC|\+ASt)[A-Za-z0-9+/]{5}[AQgw]==",
        r"[A-Za-z0-9+/]{33}(?:AIoT|\+ASb|\+AEh|\+ARm|AzCa)[A-P][A-Za-z0-9+/]{5}=",
        r"[A-Za-z0-9+/]{42}(?:AzSe|\+ACR)[A-D][A-Za-z0-9+/]{5}",
        r"[\w-]{44}AzFu[\w-]{5}[AQgw]==",
        r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}",
    )
    return (
        TokenForm(rf"{word}eyJ[\w-]{{6,1024}}\.[\w-]{{4,}}(?:\.[\w-]*)?", (("eyJ",),), starts=("eyJ",)),
        TokenForm(
            rf"{word}(?:sk|rk|pk)[-_]{_IS_KEY}[\w*-]{{8,}}",
            (("sk-", "sk_", "rk-", "rk_", "pk-", "pk_"),),
            starts=("sk[-_]", "rk[-_]", "pk[-_]"),
        ),
        TokenForm(rf"{word}(?:{starts})[\w.-]{{16,}}", (_TOKEN_TELLS,), starts=_TOKEN_STARTS),
        TokenForm(
            rf"{word}(?:{short})(?=[A-Za-z_-]{{0,64}}\d)(?=[\d_-]{{0,64}}[A-Za-z])[A-Za-z0-9-]{{20,}}",
            (_SHORT_STARTS,),
            starts=_SHORT_STARTS,
        ),
        TokenForm(
            rf"{word}(?:shp(?:at|ca|pa|ss)_|dapi|key-|SK)[0-9a-f]{{32}}(?!\w)", (("shp", "dapi", "key-", "SK"),), _HEX
        ),
        TokenForm(rf"{word}[0-9a-f]{{32}}-us\d{{1,2}}(?!\w)", (("-us",),)),
        TokenForm(rf"{word}1//0[\w-]{{20,}}", (("1//0",),), starts=("1//0",)),
        TokenForm(rf"{word}[A-Za-z0-9]{{14}}\.atlasv1\.[\w-]{{40,}}", ((".atlasv1.",),)),
        TokenForm(rf"{word}pat[A-Za-z0-9]{{14}}\.[0-9a-f]{{64}}(?!\w)", (("pat",), (".",)), starts=("pat",)),
        TokenForm(
            rf"{word}access_token\$production\$[A-Za-z0-9]{{16}}\$[0-9a-f]{{32}}",
            (("access_token$",),),
            starts=("access_token",),
        ),
        TokenForm(r"(?<!\d)\d{8,10}:AA[\w-]{32,33}(?![\w-])", ((":AA",),)),
        TokenForm(r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w~-])", (("Q~",),)),
        TokenForm(
            rf"{word}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}\b",
            (("AKIA", "ASIA", "ABIA", "ACCA"),),
            starts=("AKIA", "ASIA", "ABIA", "ACCA"),
        ),
        TokenForm(
            rf"{word}(?:IQoJb3JpZ2lu|FwoGZXIvYXdz|ABSK)[\w+/=-]{{50,}}", (("IQoJb3JpZ2lu", "FwoGZXIvYXdz", "ABSK"),)
        ),
        TokenForm(r"\b[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,}={0,2}", (("JQQJ99",),)),
        TokenForm(rf"(?<![\w+/=-])(?:{'|'.join(azure)})(?![\w+/=-])", (_AZURE_MARKS,)),
        # Only in errors and lines of the log: in conversations, it may be a hash.
        TokenForm(
            r"(?<![\w+/-])(?:[A-Za-z0-9+/_-]{86}==|[A-Za-z0-9+/_-]{54}==|[A-Za-z0-9+/_-]{43}=)(?![\w=])", (("=",),)
        ),
    )
