"""What keys, tokens and passwords look like: in fields, options, elements and sentences, and by their format. Pure.

Strangers write the texts that are searched, so a search takes time in proportion to the text: what a form repeats is
bounded, unless it ends where the form could begin again, or is always a part of the match.

Source: the issuers' documentation of their formats; identifiable Azure keys: microsoft/security-utilities.
"""

import re
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from durable_agent_host.long_texts import found_in, replaced, replaced_each

MASK: Final = "[redacted]"

type Tells = tuple[tuple[str, ...], ...]
"""Texts that a form needs: one of each group."""
type Hints = tuple[tuple[str, str], ...]

QUOTE: Final = r"""\\{0,7}["']?"""
_KEYS: Final = (
    r"(?:account|access|shared_?access|shared|api|subscription|ocp-apim-subscription|x-functions|functions|master|"
    r"(?:x-)?(?:goog-)?api|secret_?access|aws_secret_access|private|instrumentation)[-_]?(?:key|signature)|"
    r"secret_?key(?:_base)?|shared_?secret|(?:client|app)[-_]?secret|"
    r"(?:access|refresh|id|auth|session|security|bearer)[-_]?token"
)
_PASSWORDS: Final = r"[a-z]{0,16}(?:password|passwd)|passphrase|passcode|pwd"
ASSIGNED: Final = (
    rf"{_KEYS}|client_assertion|{_PASSWORDS}|(?:db|sql|pg|smtp|imap|ftp|ssh|mail|user|admin|root|redis)_?pass|"
    r"(?-i:(?<=_)PASS)|secret|sig|signature|credential"
)
"""Names of fields whose values are secrets."""
_VALUE: Final = r"""[^\s"'\\,;&<>{}()\[\]]"""
_OPEN: Final = r"""b?(?:(?P<quote>["'])|(?P<deep>\\{1,7}["']))"""
"""Begins a quoted value; within a text that is quoted itself, as JSON in JSON is, the quotes are escaped."""
_QUOTED: Final = (
    r"""(?(quote)(?:(?:(?!(?P=quote))(?:[^\\\r\n]|\\(?:.|\Z))){1,1024}(?=(?P=quote)|[\r\n]|\Z)|[^"'\\\r\n]+)"""
    r"""|(?(deep)(?:(?:(?!(?P=deep))(?:[^\\\r\n]|\\+(?:[^\\\r\n]|\Z))){1,1024}(?=(?P=deep)|[\r\n]|\Z)"""
    r"""|[^"'\\\r\n]+)|"""
)
"""A value up to its own quote, or, where that is far, up to any; one without a quote is still to be written."""
_WITH_DIGIT: Final = rf"(?={_VALUE}{{0,256}}\d)"
_WITH_DIGIT_AND_LETTER: Final = rf"{_WITH_DIGIT}(?={_VALUE}{{0,256}}[a-z])"

_WORDS: Final = ("key", "sig", "secret", "token", "pass", "pwd", "credential", "assertion")
"""Each name that `ASSIGNED` matches contains one of them."""
_SECRET_WORDS: Final = ("key", "secret", "token", "pass", "pwd")
_NAMES: Final = (
    *("key", "key_base", "sig", "signature", "secret", "token", "credential", "assertion"),
    *("pass", "password", "passwd", "passphrase", "passcode", "pwd"),
)
"""What the names that `ASSIGNED` matches end with, in lower case."""
_BEHIND_NAME: Final = rf"{QUOTE}\s{{0,16}}[=:,]"
_AFTER_NAME: Final = re.compile(rf"(?P<name>{'|'.join(_NAMES)}){_BEHIND_NAME}")


class Form(NamedTuple):
    """One form of a secret.

    Attributes:
        pattern: what to search for; the group ``keep``, if any, stays.
        tells: what a text needs, or the search is left out; in lower case, unless letter case is a part of the form.
        hints: words of which each match contains one, each with a regular expression for what is behind it; all in
            lower case. Empty where a group of ``tells`` is rare enough.
        is_named: it begins with the name of a field, see `_named_in`.
        has_case: letter case is a part of it.
    """

    pattern: re.Pattern[str]
    tells: Tells
    hints: Hints = ()
    is_named: bool = False
    has_case: bool = False


def _addresses() -> tuple[Form, ...]:
    return (
        Form(
            re.compile(
                r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----.*?"
                r"(?:-----END [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----|$)",
                re.DOTALL,
            ),
            (("-----begin",),),
        ),
        # Passwords in URLs; a port is none. Some contain an @ or a slash, so the last @ of the word ends them.
        _form(
            r"(?P<keep>:\\{0,4}/\\{0,4}/[^\s/:@]{0,256}:)(?!\d{1,5}(?:[/?#\s]|$))[^\s\"'<>]{1,1024}(?P<end>@)",
            (("://", ":\\"), ("@",)),
        ),
        _form(r"(?P<keep>https?://)[^\s/:@\"'<>]{16,}(?P<end>@)", (("://", ":\\"), ("@",))),
        # Whoever knows such a URL may post.
        _form(
            r"(?P<keep>(?:hooks\.slack\.com/(?:services|workflows|triggers)"
            r"|discord(?:app)?\.com/api/webhooks/\d{1,32}|\.webhook\.office\.com/webhookb2)/)[\w/@+.-]{6,}",
            (("hooks.slack.com/", "/webhooks/", "/webhookb2/"),),
        ),
    )


def _fields(word: str, name: str, space: str) -> tuple[Form, ...]:
    """Build the forms of headers, cookies, fields and variables; see `_forms`."""
    gap, field = rf"{space}{{0,32}}", rf"{name}(?:{ASSIGNED})"
    schemes = "bearer|basic|token|apikey|sharedkey(?:lite)?|negotiate|aws4\\S{0,32}"
    return (
        _form(
            rf"(?P<keep>{word}(?:proxy-)?authorization{QUOTE}\s{{0,16}}[:=,]{gap}(?:b?\\{{0,7}}[\"'])?)"
            rf"(?:(?:{schemes}){space}{{1,32}})?{_VALUE}+",
            (("authorization",),),
        ),
        _form(
            rf"(?P<keep>{word}(?:bearer|basic){space}{{1,32}})(?=\S{{0,23}}[\d._=-]|\S{{24}})[\w.~+/=*-]{{6,}}",
            (("bearer", "basic"),),
        ),
        _named(
            rf"(?P<keep>{field}{QUOTE}\s{{0,16}}(?::=|=>|=){gap}(?:{_OPEN})?){_QUOTED}{_VALUE}+))",
            (("=",), _WORDS),
        ),
        _named(  # Of a pair in a list, only what has a digit: the other may be the name of another field.
            rf"(?P<keep>{field}(?:{QUOTE}\s{{0,16}}:|\\{{0,7}}[\"']\s{{0,16}}"
            rf",(?=[^\"']{{0,32}}[\"'][^\"']{{0,64}}\d)){gap}{_OPEN}){_QUOTED}(?!)))",
            (("'", '"'), _WORDS),
        ),
        _form(
            rf"(?P<keep>{word}(?:x-)?(?:[a-z]{{1,32}}-)?(?:api|functions|subscription)-key:{gap}){_VALUE}+",
            (("-key:",),),
        ),
        _named(
            rf"(?P<keep>(?:{word}(?:secret|token|key)|{field}):{space}{{1,32}})(?={_VALUE}*\d){_VALUE}+",
            ((":",), _WORDS),
        ),
        _named(  # A variable of the environment: the words alone, in capitals.
            rf"(?P<keep>(?-i:(?<![A-Za-z])(?:KEY|TOKEN))(?:=|:{space}{{1,32}})[\"']?)"
            rf"{_WITH_DIGIT_AND_LETTER}{_VALUE}{{8,}}",
            (("=", ":"), ("key", "token")),
        ),
        _form(
            rf"(?P<keep>{word}(?:set-)?cookie\\{{0,7}}[\"']?\s{{0,16}}[:,]\s{{0,32}}(?:b?\\{{0,7}}[\"'])?)"
            r"[^\s=;\"'\\]{1,128}=[^\r\n\"'\\]+",
            (("cookie",),),
        ),
        _form(
            rf"(?P<keep>(?<![a-z_])token{QUOTE}=[\"'])(?={_VALUE}*\d){_VALUE}{{8,}}",
            (("token",), ("=",)),
            (("token", f"{QUOTE}="),),
        ),
    )


def _queries() -> tuple[Form, ...]:
    query = r"(?:[?&;]|\\u0026|%(?:25)?(?:3F|26))"
    return (
        _form(
            r"(?P<keep>[?&;](?:key|code|token|sv_sig|access_token)=)[^\s&\"'#<>\\]+",
            (("?", "&", ";"), ("key=", "code=", "token=", "sv_sig=")),
        ),
        _form(
            rf"(?P<keep>{query}(?:key|code|token|{ASSIGNED})(?:=|%(?:25)?3D))[^\s&;\"'#<>\\%]+",
            (
                ("?", "&", ";", "\\u0026", "%3f", "%253f", "%26", "%2526"),
                ("=", "%3d", "%253d"),
                ("code", *_WORDS),
            ),
            tuple((name, "[=%]") for name in ("code", *_NAMES)),
        ),
    )


def _lines(word: str, space: str) -> tuple[Form, ...]:
    """Build the forms of command lines, XML and sentences; see `_forms`.

    What is before a secret is shorter than a stream holds back (`personal_data.HELD_CHARACTERS`).
    """
    quote = r"\\{0,7}[\"'`]?"
    before = r"(?:[a-z][a-z\d]{0,15}-){0,4}"
    element = rf"[\w.:-]{{0,24}}?(?:{_KEYS}|{_PASSWORDS}|secret)"
    return (
        _form(
            rf"(?P<keep>(?<![\w-])--{before}(?:{_PASSWORDS}|pass)(?:=|{space}{{1,8}}){quote})"
            rf"{_WITH_DIGIT}{_VALUE}{{4,}}",
            (("--",), ("pass", "pwd")),
            (("--", "[a-z]"),),
        ),
        _form(
            rf"(?P<keep>(?<![\w-])--{before}(?:{_KEYS}|secret|token)(?:=|{space}{{1,8}}){quote})"
            rf"{_WITH_DIGIT_AND_LETTER}{_VALUE}{{8,}}",
            (("--",), ("key", "secret", "token", "signature")),
            (("--", "[a-z]"),),
        ),
        _form(
            rf"(?P<keep>{word}curl\b[^\r\n]{{0,40}}?{space}(?:-u{space}{{0,8}}|--(?:proxy-)?user(?:=|{space}{{1,8}}))"
            rf"{quote}[^\s:\"']{{1,40}}:){_VALUE}+",
            (("curl",), ("-u",), (":",)),
        ),
        _form(rf"(?P<keep>{word}sshpass{space}{{1,8}}-p{space}{{0,8}}{quote}){_VALUE}+", (("sshpass",),)),
        _form(
            rf"(?P<keep>{word}login{space}{{1,8}}\S{{1,64}}{space}{{1,8}}password{space}{{1,8}}){_VALUE}+",
            (("login",), ("password",)),
        ),
        _form(
            rf"(?P<keep>(?:<|&lt;){element}(?:\s[^<>]{{0,40}})?(?:>|&gt;)(?:<!\[CDATA\[)?)\s{{0,16}}"
            r"(?:(?!</|&lt;/|\]\]>)[^<]){1,1024}(?=</|&lt;/|\]\]>|\Z)",
            (("<", "&lt;"), (">", "&gt;"), (*_SECRET_WORDS, "signature")),
            tuple((name, r"(?:\s[^<>]{0,40})?(?:>|&gt;)") for name in _NAMES),
        ),
        _form(
            rf"(?P<keep>{word}(?:key|name)=\\{{0,7}}[\"']{element}\\{{0,7}}[\"']{space}{{1,8}}value=\\{{0,7}}[\"'])"
            r"[^\"'<>\\]{1,1024}",
            (("value=",), (*_SECRET_WORDS, "signature")),
        ),
        _form(
            rf"(?P<keep>{word}(?:{_PASSWORDS}){space}{{1,8}}(?:(?:is|was|to)(?:{space}{{1,8}}now)?)"
            rf"{space}{{0,8}}:?{space}{{1,8}}{quote}){_WITH_DIGIT_AND_LETTER}{_VALUE}{{6,}}",
            (("password", "passwd", "passphrase", "passcode", "pwd"), ("is", "was", "to")),
        ),
    )


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
    *("tvly-", "pul-"),
)
"""Begin a token, or an ordinary name, which has no such mixture of letters and digits."""
_AZURE_MARKS: Final = (
    *("APIM", "ACDb", "+ABa", "+AMC", "+ASt", "AIoT", "+ASb", "+AEh", "+ARm", "AzFu", "AzSe", "AzCa", "+ACR", "AZDO"),
)


def _tokens(word: str) -> tuple[Form, ...]:
    """Build the forms that a token's issuer has given it, which letter case is a part of; see `_forms`."""
    starts, short = "|".join(_TOKEN_STARTS), "|".join(_SHORT_STARTS)
    azure = (
        r"[A-Za-z0-9+/]{76}(?:APIM|ACDb|\+ABa|\+AMC|\+ASt)[A-Za-z0-9+/]{5}[AQgw]==",
        r"[A-Za-z0-9+/]{33}(?:AIoT|\+ASb|\+AEh|\+ARm|AzCa)[A-P][A-Za-z0-9+/]{5}=",
        r"[A-Za-z0-9+/]{42}(?:AzSe|\+ACR)[A-D][A-Za-z0-9+/]{5}",
        r"[\w-]{44}AzFu[\w-]{5}[AQgw]==",
        r"[A-Za-z0-9]{76}AZDO[A-Za-z0-9]{4}",
    )
    return tuple(
        Form(re.compile(form), tells, has_case=True)
        for form, tells in (
            (rf"{word}eyJ[\w-]{{6,1024}}\.[\w-]{{4,}}(?:\.[\w-]*)?", (("eyJ",),)),
            (rf"{word}(?:sk|rk|pk)[-_][\w*-]{{8,}}", (("sk-", "sk_", "rk-", "rk_", "pk-", "pk_"),)),
            (rf"{word}(?:{starts})[\w.-]{{16,}}", (_TOKEN_TELLS,)),
            (
                rf"{word}(?:{short})(?=[A-Za-z_-]{{0,64}}\d)(?=[\d_-]{{0,64}}[A-Za-z])[A-Za-z0-9-]{{20,}}",
                (_SHORT_STARTS,),
            ),
            (rf"{word}(?:shp(?:at|ca|pa|ss)_|dapi|key-)[0-9a-f]{{32}}(?!\w)", (("shp", "dapi", "key-"),)),
            (r"(?<!\d)\d{8,10}:AA[\w-]{32,33}(?![\w-])", ((":AA",),)),
            (r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w~-])", (("Q~",),)),
            (rf"{word}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}\b", (("AKIA", "ASIA", "ABIA", "ACCA"),)),
            (rf"{word}(?:IQoJb3JpZ2lu|FwoGZXIvYXdz|ABSK)[\w+/=-]{{50,}}", (("IQoJb3JpZ2lu", "FwoGZXIvYXdz", "ABSK"),)),
            (r"\b[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,}={0,2}", (("JQQJ99",),)),
            (rf"(?<![\w+/=-])(?:{'|'.join(azure)})(?![\w+/=-])", (_AZURE_MARKS,)),
            # Only in errors and lines of the log: in conversations, it may be a hash.
            (r"(?<![\w+/-])(?:[A-Za-z0-9+/_-]{86}==|[A-Za-z0-9+/_-]{54}==|[A-Za-z0-9+/_-]{43}=)(?![\w=])", (("=",),)),
        )
    )


def _form(pattern: str, tells: Tells, hints: Hints = ()) -> Form:
    return Form(re.compile(pattern, re.IGNORECASE), tells, hints)


def _named(pattern: str, tells: Tells) -> Form:
    hints = tuple((name, _BEHIND_NAME) for name in _NAMES)
    return Form(re.compile(pattern, re.IGNORECASE), tells, hints, is_named=True)


def _forms(word: str, name: str, space: str) -> tuple[Form, ...]:
    """Build the forms.

    Args:
        word: regular expression for the start of a word.
        name: regular expression for the start of a field's name, or of a part of one.
        space: regular expression for white space.
    """
    return (*_addresses(), *_fields(word, name, space), *_queries(), *_lines(word, space), *_tokens(word))


_HUMP: Final = r"(?-i:(?<=[a-z])(?=[A-Z]))"
FORMS: Final = _forms(r"\b", rf"(?:(?<![a-z])|{_HUMP})", r"\s")
FORMS_OF_LITERALS: Final = _forms(
    r"(?:\b|(?<=\\[nrt]))", rf"(?:(?<![a-z])|(?<=\\[nrt])|{_HUMP})", r"(?:\s|\\{1,4}[nrt])"
)
"""For texts in which line breaks are written as in a program: there a letter stands before what follows."""

_NAME: Final = re.compile(rf"(?:(?<![a-z])|(?<=\\[nrt])|{_HUMP})(?:{ASSIGNED}|key|token)\Z", re.IGNORECASE)
_LONGEST_NAME: Final = 40


def _quick(forms: tuple[Form, ...]) -> re.Pattern[str]:
    """Build a test of lower-case text: whether it can match any form."""
    hints: set[tuple[str, str]] = set()
    for form in forms:
        rarest = max(form.tells, key=lambda group: min(map(len, group)))
        hints.update(form.hints or ((tell.lower(), "") for tell in rarest))
    return re.compile(_any_of(hints))


def _any_of(hints: Collection[tuple[str, str]]) -> str:
    """Build a regular expression for any of the words and what is behind it, by first letters: this is fastest."""
    rest: dict[str, list[tuple[str, str]]] = {}
    behind = {tail for word, tail in hints if not word}
    if "" in behind:
        return ""
    for word, tail in sorted(hints):
        if word:
            rest.setdefault(word[0], []).append((word[1:], tail))
    return f"(?:{'|'.join([*(re.escape(letter) + _any_of(rest[letter]) for letter in rest), *sorted(behind)])})"


_QUICK: Final = {is_log: _quick(FORMS if is_log else FORMS[:-1]) for is_log in (False, True)}
"""By whether the last form is looked for."""

_LIKE_ASCII: Final = {"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"}
"""The letters that `re.IGNORECASE` treats as ASCII letters."""


def without_forms(text: str, *, is_log: bool) -> str:
    """Mask keys, tokens and passwords.

    Guarantee: pure.

    Args:
        text: of any length.
        is_log: it is an error or a log line, where what might be a hash is masked, too.
    """
    lower = _lowered(text)
    if next(found_in(_QUICK[is_log], lower), None) is None:
        return text
    forms = FORMS_OF_LITERALS if any(one in text for one in ("\\n", "\\r", "\\t")) else FORMS
    for form in forms if is_log else forms[:-1]:
        if _has_each(text if form.has_case else lower, form.tells):  # a regular expression search takes much longer
            if form.is_named:
                without = replaced_each(_named_in(form.pattern, text, lower), masked, text)
            else:
                without = replaced(form.pattern, masked, text)
            if without != text:
                text, lower = without, _lowered(without)
    return text


def masked(found: re.Match[str]) -> str:
    """Replace a match, except for its groups ``keep`` and ``end``. Guarantee: pure."""
    groups = found.groupdict()
    return f"{groups.get('keep') or ''}{MASK}{groups.get('end') or ''}"


def _lowered(text: str) -> str:
    """Return the text in lower case, each character in its place."""
    if not text.isascii():
        for other, like in _LIKE_ASCII.items():
            text = text.replace(other, like)
    return text.lower()


def _named_in(form: re.Pattern[str], text: str, lower: str) -> Iterator[re.Match[str]]:
    """Yield matches of a form that begins with the name of a field, looking only where such a name ends.

    A search of the whole text would hold the interpreter for a third of a second a megabyte.
    """
    told = 0
    for after in found_in(_AFTER_NAME, lower):
        end = after.end("name")
        name = _NAME.search(text, max(told, end - _LONGEST_NAME), end)
        while name is not None:
            if (found := form.match(text, name.start())) is not None:
                yield found
                told = found.end()
                break
            name = _NAME.search(text, name.start() + 1, end)


def _has_each(text: str, groups: Tells) -> bool:
    """Return whether a text has one of each group; without generators, the slow part on each log line."""
    for group in groups:
        for tell in group:
            if tell in text:
                break
        else:
            return False
    return True
