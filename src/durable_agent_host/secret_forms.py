"""What keys, tokens and passwords look like: in fields, options, elements and sentences, and by their format. Pure.

Strangers write the texts that are searched, so a search takes time in proportion to the text: what a form repeats is
bounded, unless it ends where the form could begin again, or is always a part of the match.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from durable_agent_host.long_texts import found_in, is_found, replaced, replaced_each
from durable_agent_host.token_forms import any_of, token_forms, token_start

MASK: Final = "[redacted]"

type Tells = tuple[tuple[str, ...], ...]
"""Texts that a form needs: one of each group."""
type Hints = tuple[tuple[str, str], ...]
"""Words, each with a regular expression for what is behind it."""

QUOTE: Final = r"""\\{0,7}["']?"""
_KEYS: Final = (
    r"(?:account|access|shared_?access|shared|api|subscription|ocp-apim-subscription|x-functions|functions|master|"
    r"(?:x-)?(?:goog-)?api|secret_?access|aws_secret_access|private|instrumentation|"
    r"encryption|signing|license|webhook)[-_]?(?:key|signature)|"
    r"secret_?key(?:_base)?|shared_?secret|(?:client|app)[-_]?secret|"
    r"(?:access|refresh|id|auth|session|security|bearer)[-_]?token"
)
_PASSWORDS: Final = r"[a-z]{0,16}(?:password|passwd|passwort)|passphrase|passcode|pwd"
ASSIGNED: Final = (
    rf"{_KEYS}|client_assertion|{_PASSWORDS}|(?:db|sql|pg|smtp|imap|ftp|ssh|mail|user|admin|root|redis)_?pass|"
    r"(?-i:(?<=_)PASS)|secret|sig|signature|credentials?"
)
"""Names of fields whose values are secrets."""
_VALUE: Final = r"""[^\s"'\\,;&<>{}()\[\]]"""
_PLAIN: Final = r"""[^\s"'\\,;&<>{}()\[\]\d]"""
"""The same, except for digits."""
_OPEN: Final = r"""b?(?:(?P<quote>["'])|(?P<deep>\\{1,7}["']))"""
"""Begins a quoted value; within a text that is quoted itself, as JSON in JSON is, the quotes are escaped."""
_QUOTED: Final = (
    r"""(?(quote)(?:(?:(?!(?P=quote))(?:[^\\\r\n]|\\(?:.|\Z))){1,1024}(?=(?P=quote)|[\r\n]|\Z)|[^"'\\\r\n]+)"""
    r"""|(?(deep)(?:(?:(?!(?P=deep))(?:[^\\\r\n]|\\+(?:[^\\\r\n]|\Z))){1,1024}(?=(?P=deep)|[\r\n]|\Z)"""
    r"""|[^"'\\\r\n]+)|"""
)
"""A value up to its own quote, or, where that is far, up to any; one without a quote is still to be written."""
_WITH_DIGIT: Final = rf"(?={_PLAIN}{{0,256}}+\d)"
_STRONG: Final = r"(?=(?-i:[\w+/~.-]{0,64}?[a-z]))(?=(?-i:[\w+/~.-]{0,64}?[A-Z]))(?=[\w+/~.-]{0,64}?\d)[\w+/~.-]{12,}"
_BETWEEN: Final = (
    r"(?:[^\w\r\n]|%(?:25)?[0-9a-f]{2}){1,12}"
    r"(?:(?:is|was|by|str|string|value)(?:[^\w\r\n]|%(?:25)?[0-9a-f]{2}){1,12}|[|>][+-]?\r?\n[ \t]{1,16})?"
)
"""Signs, and one of a few words, or the beginning of a block in YAML."""
_NEAR_DIGIT: Final = r"[^\r\n\d|>]{0,160}+[\d|>]"
"""What is behind a name with such a value: its first digit, or the block."""
_WITH_DIGIT_AND_LETTER: Final = rf"{_WITH_DIGIT}(?={_VALUE}{{0,256}}[a-z])"

_WORDS: Final = ("key", "sig", "secret", "token", "pass", "pwd", "credential", "assertion")
"""Each name that `ASSIGNED` matches contains one of them."""
_SECRET_WORDS: Final = ("key", "secret", "token", "pass", "pwd")
_NAMES: Final = (
    *("key", "key_base", "sig", "signature", "secret", "token", "credential", "credentials", "assertion"),
    *("pass", "password", "passwd", "passwort", "passphrase", "passcode", "pwd"),
)
"""What the names that `ASSIGNED` matches end with, in lower case."""
_BEHIND_NAME: Final = rf"{QUOTE}\s{{0,16}}[=:,]"
_OWNERS: Final = "unt|ess|red|api|ion|ons|ter|ate|ing|nse|ook|ret"
"""The last letters of what is before ``key`` in `ASSIGNED`."""
_FIELD_ENDS: Final = (
    rf"key(?:(?<=(?:{_OWNERS})key)|(?<=(?:{_OWNERS})[-_]key))(?:_base)?|sig(?:nature)?|secret|credentials?|assertion"
    r"|token(?:(?<=(?:ss|sh|id|th|on|ty|er)token)|(?<=(?:ss|sh|id|th|on|ty|er)[-_]token))|pass(?:(?<=[a-z_]pass)|word|wd|wort|phrase|code)|pwd"
)
"""What the names that `ASSIGNED` matches end with, in lower case."""


class Form(NamedTuple):
    """One form of a secret.

    Attributes:
        pattern: what to search for; the group ``keep``, if any, stays.
        tells: what a text needs, or the search is left out; in lower case, unless letter case is a part of the form.
        hints: words of which each match contains one, each with a regular expression for what is behind it; all in
            lower case. Empty where a group of ``tells`` is rare enough.
        after: finds where a name with which it begins may end, in lower-case text, by what is behind it, see
            `_named_in`; None for a form without a name.
        has_case: letter case is a part of it.
        gate: what each match begins with, shared by several forms; None for a form of its own.
    """

    pattern: re.Pattern[str]
    tells: Tells
    hints: Hints = ()
    after: re.Pattern[str] | None = None
    has_case: bool = False
    gate: re.Pattern[str] | None = None


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
            r"(?P<keep>:\\{0,4}/\\{0,4}/[^\s/:@]{0,256}:)(?!\d{1,5}(?:[/?#\s]|$))"
            r"(?=[^\s\"'<>][^\s\"'<>@]{0,1023}+@)[^\s\"'<>]{1,1024}(?P<end>@)",
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
            rf"(?P<keep>(?:{word}|(?<=%20))(?:bearer|basic)(?:{space}|%20){{1,32}})(?=\S{{0,23}}[\d._=-]|\S{{24}})[\w.~+/=*-]{{6,}}",
            (("bearer", "basic"),),
        ),
        _named(
            rf"(?P<keep>{field}{QUOTE}\s{{0,16}}(?::=|=>|=){gap}(?:{_OPEN})?){_QUOTED}{_VALUE}+))",
            (("=",), _WORDS),
            rf"(?:{_FIELD_ENDS})(?={QUOTE}\s{{0,16}}:?=>?{gap}[^\s,;&<>{{}}()\[\]])",
        ),
        _named(  # Of a pair in a list, only what has a digit: the other may be the name of another field.
            rf"(?P<keep>{field}(?:{QUOTE}\s{{0,16}}:|\\{{0,7}}[\"']\s{{0,16}}"
            rf",(?=[^\"']{{0,32}}[\"'][^\"'\d]{{0,64}}+\d)){gap}{_OPEN}){_QUOTED}(?!)))",
            (("'", '"'), _WORDS),
            rf"(?:{_FIELD_ENDS})(?=(?:{QUOTE}\s{{0,16}}:|\\{{0,7}}[\"']\s{{0,16}}"
            rf",(?=[^\"']{{0,32}}[\"'][^\"'\d]{{0,64}}+\d)){gap}b?\\{{0,7}}[\"'])",
        ),
        _form(
            rf"(?P<keep>{word}(?:x-)?(?:[a-z]{{1,32}}-)?(?:api|functions|subscription)-key:{gap}){_VALUE}+",
            (("-key:",),),
        ),
        _named(
            rf"(?P<keep>(?:{word}(?:secret|token|key)|{field}):{space}{{1,32}})(?={_PLAIN}*+\d){_VALUE}+",
            ((":",), _WORDS),
            # The last sign is a digit, unless the value is so long that one may follow.
            rf"(?:{_FIELD_ENDS}|token|key)(?=:{space}{{1,32}}{_PLAIN}{{0,1024}}+{_VALUE})",
        ),
        _named(  # Short names, of a variable in capitals or of a field, which need a value that looks like a secret.
            rf"(?P<keep>(?:(?-i:(?<![A-Za-z])(?:KEY|TOKEN))|(?<![a-z_])(?:token|pass))"
            rf"(?:=|{QUOTE}:{space}{{0,32}})\\{{0,7}}[\"']?){_WITH_DIGIT_AND_LETTER}{_VALUE}{{8,}}",
            (("=", ":"), ("key", "token", "pass")),
            rf"(?:key|token|pass)(?=(?:=|{QUOTE}:{space}{{0,32}})\\{{0,7}}[\"']?{_WITH_DIGIT_AND_LETTER}{_VALUE}{{8}})",
        ),
    )


def _signs(word: str, name: str, space: str) -> tuple[Form, ...]:
    """Build the forms of fields in URLs, of names and values with any signs between them, and of cookies."""
    return (
        Form(
            re.compile(rf"(?P<keep>{name}(?:{ASSIGNED})%(?:25)?3D)[^\s&;\"'#<>\\%]+", re.IGNORECASE),
            (("%3d", "%253d"), _WORDS),
            tuple((one, "%") for one in _NAMES),
            re.compile(rf"(?:{_FIELD_ENDS})(?=%(?:25)?3d[^\s&;\"'#<>\\%])"),
        ),
        Form(  # Any signs, and one of a few words, between a name and what is clearly no word.
            re.compile(
                rf"(?P<keep>{name}(?:{_KEYS}|{_PASSWORDS}|secret|key(?={space}is{space})){_BETWEEN}){_STRONG}",
                re.IGNORECASE,
            ),
            (_SECRET_WORDS,),
            tuple((one, _NEAR_DIGIT) for one in _NAMES),
            re.compile(
                rf"(?:{_FIELD_ENDS}|key(?={space}is{space}))(?={_BETWEEN}"
                r"(?=[\w+/~.-]{0,64}?\d)[\w+/~.-]{12})"
            ),
        ),
        _form(
            rf"(?P<keep>{word}(?:set-)?cookie\\{{0,7}}[\"']?\s{{0,16}}[:,]\s{{0,32}}(?:b?\\{{0,7}}[\"'])?)"
            r"[^\s=;\"'\\]{1,128}=[^\r\n\"'\\]+",
            (("cookie",),),
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
            rf"(?P<keep>{query}(?:key|code|token|pw|{ASSIGNED})(?:=|%(?:25)?3D))[^\s&;\"'#<>\\%]+",
            (
                ("?", "&", ";", "\\u0026", "%3f", "%253f", "%26", "%2526"),
                ("=", "%3d", "%253d"),
                ("code", "pw", *_WORDS),
            ),
            tuple((name, "[=%]") for name in ("code", "pw", *_NAMES)),
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
            r"(?:[^<&\]]|&(?!lt;/)|\](?!\]>)){1,1024}+(?=</|&lt;/|\]\]>|\Z)",
            (("<", "&lt;"), (">", "&gt;"), (*_SECRET_WORDS, "signature")),
            tuple((name, r"(?:\s[^<>]{0,40})?(?:>|&gt;)") for name in _NAMES),
        ),
        _form(
            rf"(?P<keep>{word}(?:key|name){QUOTE}[=:]{space}{{0,8}}\\{{0,7}}[\"']{element}\\{{0,7}}[\"'],?{space}{{1,8}}"
            rf"\\{{0,7}}[\"']?value{QUOTE}[=:]{space}{{0,8}}\\{{0,7}}[\"'])[^\"'<>\\]{{1,1024}}",
            (("value",), (*_SECRET_WORDS, "signature")),
            (("value", rf"{QUOTE}[=:]"),),
        ),
        _form(
            rf"(?P<keep>{word}(?:{_PASSWORDS}){space}{{1,8}}(?:(?:is|was|to)(?:{space}{{1,8}}now)?)"
            rf"{space}{{0,8}}:?{space}{{1,8}}{quote}){_WITH_DIGIT_AND_LETTER}{_VALUE}{{6,}}",
            (("password", "passwd", "passwort", "passphrase", "passcode", "pwd"), ("is", "was", "to")),
        ),
    )


def _tokens(word: str) -> tuple[Form, ...]:
    start = re.compile(token_start(word))
    return tuple(
        Form(re.compile(one.pattern), one.tells, one.hints, has_case=True, gate=start if one.starts else None)
        for one in token_forms(word)
    )


def _form(pattern: str, tells: Tells, hints: Hints = ()) -> Form:
    return Form(re.compile(pattern, re.IGNORECASE), tells, hints)


def _named(pattern: str, tells: Tells, after: str) -> Form:
    hints = tuple((name, _BEHIND_NAME) for name in _NAMES)
    return Form(re.compile(pattern, re.IGNORECASE), tells, hints, re.compile(after))


def _forms(word: str, name: str, space: str) -> tuple[Form, ...]:
    """Build the forms.

    Args:
        word: regular expression for the start of a word.
        name: regular expression for the start of a field's name, or of a part of one.
        space: regular expression for white space.
    """
    return (
        *_addresses(),
        *_fields(word, name, space),
        *_signs(word, name, space),
        *_queries(),
        *_lines(word, space),
        *_tokens(word),
    )


_HUMP: Final = r"(?-i:(?<=[a-z])(?=[A-Z]))"
FORMS: Final = _forms(r"\b", rf"(?:(?<![a-z])|{_HUMP})", r"\s")
FORMS_OF_LITERALS: Final = _forms(
    r"(?:\b|(?<=\\[nrt]))", rf"(?:(?<![a-z])|(?<=\\[nrt])|{_HUMP})", r"(?:\s|\\{1,4}[nrt])"
)
"""For texts in which line breaks are written as in a program: there a letter stands before what follows."""

_NAME: Final = re.compile(rf"(?:(?<![a-z])|(?<=\\[nrt])|{_HUMP})(?:{ASSIGNED}|key|token|pass)\Z", re.IGNORECASE)
_LONGEST_NAME: Final = 40
_NAME_FROM_ITS_END: Final = re.compile(r"[a-z_-]+")


def _quick(forms: tuple[Form, ...]) -> re.Pattern[str]:
    """Build a test of lower-case text: whether it can match any form."""
    hints: set[tuple[str, str]] = set()
    for form in forms:
        rarest = max(form.tells, key=lambda group: min(map(len, group)))
        hints.update(form.hints or ((tell.lower(), "") for tell in rarest))
    return re.compile(any_of(hints))


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
    if not is_found(_QUICK[is_log], lower):
        return text
    forms = FORMS_OF_LITERALS if any(one in text for one in ("\\n", "\\r", "\\t")) else FORMS
    is_open: dict[re.Pattern[str] | None, bool] = {None: True}
    for form in forms if is_log else forms[:-1]:
        if form.gate is not None and form.gate not in is_open:
            is_open[form.gate] = is_found(form.gate, text)
        if is_open[form.gate] and _has_each(
            text if form.has_case else lower, form.tells
        ):  # a regular expression search takes much longer
            if form.after is not None:
                without = replaced_each(_named_in(form.pattern, form.after, text, lower), masked, text)
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


def _named_in(form: re.Pattern[str], names: re.Pattern[str], text: str, lower: str) -> Iterator[re.Match[str]]:
    """Yield matches of a form that begins with the name of a field, looking only where such a name ends.

    A search of the whole text would hold the interpreter for a third of a second a megabyte.
    """
    told = 0
    for after in found_in(names, lower):
        end = after.end()
        longest = _NAME_FROM_ITS_END.match(lower[max(told, end - _LONGEST_NAME) : end][::-1])
        name = _NAME.search(text, end - longest.end(), end) if longest is not None else None
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
