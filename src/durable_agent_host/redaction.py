"""Removes secrets from what is stored or shown: keys, tokens and passwords in error messages and log lines. Pure.

Errors quote what they were given: a driver its connection string, a model's service the header that it refused. What
the model was told and what it said is the conversation, and is not touched.

Strangers write these texts, too, so a search takes time in proportion to the text: what a form repeats is bounded,
unless it ends where the form could begin again, or is always a part of the match.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from durable_agent_host.long_texts import found_in, replaced, replaced_each

MASK: Final = "[redacted]"

_KNOWN: set[str] = set()
"""The app's own secrets, see `learn_secrets`."""

_BY_LENGTH: list[str] = []
"""The same, longest first."""

_OWN: list[Callable[[str], str]] = []
"""The app's own redaction functions, see `learn_redaction`."""

_SECRET_NAME: Final = re.compile(
    r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|(?<=[A-Z]_)PWD|CREDENTIAL|CONNECTION_?STRING|SAS)S?(?:_?\d+)?$",
    re.IGNORECASE,
)
_QUOTE: Final = r"""\\{0,7}["']?"""
_ASSIGNED: Final = (
    r"(?:account|access|shared_?access|shared|api|subscription|ocp-apim-subscription|x-functions|functions|master|"
    r"(?:x-)?(?:goog-)?api|secret_?access|aws_secret_access|private|instrumentation)[-_]?(?:key|signature)|"
    r"shared_?secret|(?:client|app)[-_]?secret|client_assertion|(?:access|refresh|id|auth|session|security)[-_]?token|"
    r"password|passwd|passphrase|pwd|secret|sig|signature|credential"
)
_VALUE: Final = r"""[^\s"'\\,;&<>{}()\[\]]"""
_OPEN: Final = r"""b?(?:(?P<quote>["'])|(?P<deep>\\{1,7}["']))"""
"""Begins a quoted value; within a text that is quoted itself, as JSON in JSON is, the quotes are escaped."""
_QUOTED: Final = (
    r"""(?(quote)(?:(?:(?!(?P=quote))(?:[^\\\r\n]|\\(?:.|\Z))){1,1024}(?=(?P=quote)|[\r\n]|\Z)|[^"'\\\r\n]+)"""
    r"""|(?(deep)(?:(?:(?!(?P=deep))(?:[^\\\r\n]|\\+(?:[^\\\r\n]|\Z))){1,1024}(?=(?P=deep)|[\r\n]|\Z)"""
    r"""|[^"'\\\r\n]+)|"""
)
"""A value up to its own quote, or, where that is far, up to any; one without a quote is still to be written."""

_Forms = tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...]


_ADDRESS_FORMS: Final[_Forms] = (
    (
        re.compile(
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z ]{0,32}PRIVATE KEY(?: BLOCK)?-----|$)",
            re.DOTALL,
        ),
        MASK,
    ),
    # Passwords in URLs; a port is none. Some contain an @ or a slash, so the last @ of the word ends them.
    (
        re.compile(
            r"(?P<keep>:\\{0,4}/\\{0,4}/[^\s/:@]{0,256}:)(?!\d{1,5}(?:[/?#\s]|$))[^\s\"'<>]{1,1024}@", re.IGNORECASE
        ),
        "",
    ),
    (re.compile(r"(?P<keep>https?://)[^\s/:@\"'<>]{16,}@", re.IGNORECASE), ""),
)


def _field_forms(word: str, name: str, space: str) -> tuple[tuple[str, str], ...]:
    gap, field = rf"{space}{{0,32}}", rf"{name}(?:{_ASSIGNED})"
    schemes = "bearer|basic|token|apikey|sharedkey(?:lite)?|negotiate|aws4\\S{0,32}"
    return (
        (
            (
                rf"(?P<keep>{word}(?:proxy-)?authorization{_QUOTE}\s{{0,16}}[:=,]{gap}(?:b?\\{{0,7}}[\"'])?)"
                rf"(?:(?:{schemes}){space}{{1,32}})?{_VALUE}+"
            ),
            "",
        ),
        (
            rf"(?P<keep>{word}(?:bearer|basic){space}{{1,32}})(?=\S{{0,23}}[\d._=-]|\S{{24}})[\w.~+/=*-]{{6,}}",
            "",
        ),
        (rf"(?P<keep>{field}{_QUOTE}\s{{0,16}}(?::=|=>|=){gap}(?:{_OPEN})?){_QUOTED}{_VALUE}+))", ""),
        (  # Of a pair in a list, only what has a digit: the other may be the name of another field.
            (
                rf"(?P<keep>{field}(?:{_QUOTE}\s{{0,16}}:|\\{{0,7}}[\"']\s{{0,16}}"
                rf",(?=[^\"']{{0,32}}[\"'][^\"']{{0,64}}\d)){gap}{_OPEN}){_QUOTED}(?!)))"
            ),
            "",
        ),
        (rf"(?P<keep>{word}(?:x-)?(?:[a-z]{{1,32}}-)?(?:api|functions|subscription)-key:{gap}){_VALUE}+", ""),
        (
            rf"(?P<keep>(?:{word}(?:secret|token|key)|{field}):{space}{{1,32}})(?={_VALUE}*\d){_VALUE}+",
            "",
        ),
        (r"(?P<keep>[?&;](?:key|code|token|sv_sig|access_token)=)[^\s&\"'#<>\\]+", ""),
        (
            (
                rf"(?P<keep>(?:[?&;]|\\u0026|%(?:25)?(?:3F|26))(?:key|code|token|{_ASSIGNED})(?:=|%(?:25)?3D))"
                r"[^\s&;\"'#<>\\%]+"
            ),
            "",
        ),
        (
            (
                rf"(?P<keep>{word}(?:set-)?cookie\\{{0,7}}[\"']?\s{{0,16}}[:,]\s{{0,32}}(?:b?\\{{0,7}}[\"'])?)"
                r"[^\s=;\"'\\]{1,128}=[^\r\n\"'\\]+"
            ),
            "",
        ),
        (rf"(?P<keep>(?<![a-z_])token{_QUOTE}=[\"'])(?={_VALUE}*\d){_VALUE}{{8,}}", ""),
    )


def _token_forms(word: str) -> tuple[tuple[str, str], ...]:
    return (
        (rf"{word}eyJ[\w-]{{6,1024}}\.[\w-]{{4,}}(?:\.[\w-]*)?", MASK),
        (rf"{word}(?:sk|rk|pk)[-_][\w*-]{{8,}}", MASK),
        (
            rf"{word}(?:gh[pousr]_|github_pat_|glpat-|hf_|npm_|xox[abeoprs]-|ya29\.|pypi-|dop_v1_|AIza)[\w.-]{{16,}}",
            MASK,
        ),
        (rf"{word}(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}\b", MASK),
        (r"\b[A-Za-z0-9]{52}JQQJ99[A-Za-z0-9]{20,}={0,2}", MASK),
        (r"(?<![\w+/-])(?:[A-Za-z0-9+/_-]{86}==|[A-Za-z0-9+/_-]{54}==|[A-Za-z0-9+/_-]{43}=)(?![\w=])", MASK),
    )


def _forms(word: str, name: str, space: str) -> _Forms:
    """Build the forms, each with its replacement; empty means that the group ``keep`` stays.

    Args:
        word: regular expression for the start of a word.
        name: regular expression for the start of a field's name, or of a part of one.
        space: regular expression for white space.
    """
    fields = ((re.compile(form, re.IGNORECASE), mask) for form, mask in _field_forms(word, name, space))
    tokens = ((re.compile(form), mask) for form, mask in _token_forms(word))
    return (*_ADDRESS_FORMS, *fields, *tokens)


_HUMP: Final = r"(?-i:(?<=[a-z])(?=[A-Z]))"
_FORMS: Final = _forms(r"\b", rf"(?:(?<![a-z])|{_HUMP})", r"\s")
_FORMS_OF_LITERALS: Final = _forms(
    r"(?:\b|(?<=\\[nrt]))", rf"(?:(?<![a-z])|(?<=\\[nrt])|{_HUMP})", r"(?:\s|\\{1,4}[nrt])"
)
"""For texts in which line breaks are written as in a program: there a letter stands before what follows."""

_WORDS: Final = ("key", "sig", "secret", "token", "pass", "pwd", "credential", "assertion")
"""Each name that `_ASSIGNED` matches contains one of them."""

_TELLS: Final[tuple[tuple[tuple[str, ...], ...], ...]] = (
    (("-----begin",),),
    (("://", ":\\"), ("@",)),
    (("://", ":\\"), ("@",)),
    (("authorization",),),
    (("bearer", "basic"),),
    (("=",), _WORDS),
    (("'", '"'), _WORDS),
    (("-key:",),),
    ((":",), _WORDS),
    (("?", "&", ";"), ("key=", "code=", "token=", "sv_sig=")),
    (("?", "&", ";", "\\u0026", "%3f", "%253f", "%26", "%2526"), ("=", "%3d", "%253d"), ("code", *_WORDS)),
    (("cookie",),),
    (("token",), ("=",)),
    (("eyj",),),
    (("sk-", "sk_", "rk-", "rk_", "pk-", "pk_"),),
    (
        (
            *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "hf_", "npm_", "xox", "ya29.", "pypi-"),
            *("dop_v1_", "aiza"),
        ),
    ),
    (("akia", "asia", "abia", "acca"),),
    (("jqqj99",),),
    (("=",),),
)
"""Lower-case texts that each form needs, in the order of the forms: one of each group."""

_AFTER_NAME: Final = re.compile(
    r"(?P<name>key|signature|secret|token|password|passwd|passphrase|pwd|sig|credential|assertion)"
    rf"{_QUOTE}\s{{0,16}}[=:,]"
)
"""What the forms that need one of `_WORDS` have behind the name of a field that they begin with, in lower case."""
_NAME: Final = re.compile(
    rf"(?:(?<![a-z])|(?<=\\[nrt])|{_HUMP})(?:{_ASSIGNED}|key|token)\Z",
    re.IGNORECASE,
)
_LONGEST_NAME: Final = 40

_SHORT_CHARACTERS: Final = 400
"""Up to this length, one search for all forms is faster than a check for each."""


def _rarest(tells: tuple[tuple[tuple[str, ...], ...], ...]) -> re.Pattern[str]:
    """Build a quick test for whether a text can match any form: per form, the group with the longest words."""
    groups = [max(groups, key=lambda group: min(map(len, group))) for groups in tells]
    return re.compile("|".join(sorted({re.escape(tell) for group in groups for tell in group})))


_RAREST: Final = {count: _rarest(_TELLS[:count]) for count in (len(_TELLS) - 1, len(_TELLS))}
"""By the number of forms to look for."""

_LIKE_ASCII: Final = {"\u0130": "i", "\u0131": "i", "\u017f": "s", "\u212a": "k"}
"""The letters that `re.IGNORECASE` treats as ASCII letters."""


def without_secrets(text: str) -> str:
    """Return a text with its secrets removed.

    Guarantee: replay-safe; the same text for the same text and the same known secrets.

    Args:
        text: of an error or a log line.

    Returns:
        The text with `MASK` replacing every known form of key, token and password, and the app's own secrets
        (`learn_secrets`).
    """
    text = without_known_secrets(text)
    for redact in _OWN:
        text = redact(text)
    return text


def without_known_secrets(text: str) -> str:
    """Do the same as `without_secrets`, without the app's own redaction.

    Guarantee: replay-safe.

    Args:
        text: of an error raised by the app's own redaction; it contains none of the conversation.
    """
    for secret in _BY_LENGTH:
        text = text.replace(secret, MASK)
    return _without_forms(text, len(_TELLS))


_SECRET_MEMBER: Final = re.compile(
    r"""(?P<keep>"(?:[\w-]*authorization|[\w-]*(?:api|subscription|functions|access)[-_]?key|cookie)"\s*:\s*")"""
    r"""(?:[^"\\]|\\.)+""",
    re.IGNORECASE,
)
_HEADERS: Final = re.compile(r"""(?P<keep>"headers"\s*:\s*\{)(?!\s*"(?:type|description|properties)")[^{}]*(?=\})""")
_HEADER: Final = re.compile(r"""(?P<keep>:\s*")(?:[^"\\]|\\.)*""")


def without_credentials(body: str) -> str:
    """Return a request's JSON without the credentials that it forwards, such as those for a tool service.

    Guarantee: replay-safe; the conversation stays as it is, except for the app's own secrets.

    Args:
        body: JSON.
    """
    for secret in sorted(_KNOWN, key=len, reverse=True):
        if secret in body:
            body = body.replace(secret, MASK)
    if '"headers"' in body:
        body = _HEADERS.sub(lambda found: _HEADER.sub(_masked, found[0]), body)
    if _has_secret_member(body):
        body = _SECRET_MEMBER.sub(_masked, body)
    return body


def _has_secret_member(body: str) -> bool:
    lower = body.lower()
    return any(name in lower for name in ('authorization"', 'key"', 'cookie"'))


def without_keys(text: str) -> str:
    """Return a text without the keys, tokens and passwords that are recognizable by their form.

    Guarantee: pure.

    Args:
        text: of a conversation, where numbers and hashes are not secrets.
    """
    return _without_forms(text, len(_TELLS) - 1)


def _without_forms(text: str, count: int) -> str:
    """Mask matches of the first forms; the last form is only for errors and log lines."""
    lower = _lowered(text)
    if len(text) <= _SHORT_CHARACTERS and _RAREST[count].search(lower) is None:
        return text
    forms = _FORMS_OF_LITERALS if any(one in text for one in ("\\n", "\\r", "\\t")) else _FORMS
    for (form, mask), tells in zip(forms[:count], _TELLS[:count], strict=True):
        if _has_each(lower, tells):  # a regular expression search takes much longer
            if _WORDS in tells:
                masked = replaced_each(_named_in(form, text, lower), _masked, text)
            else:
                masked = replaced(form, mask or _masked, text)
            if masked != text:
                text, lower = masked, _lowered(masked)
    return text


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


def _has_each(lower: str, groups: tuple[tuple[str, ...], ...]) -> bool:
    """Return whether a text has one of each group; without generators, the slow part on each log line."""
    for group in groups:
        for tell in group:
            if tell in lower:
                break
        else:
            return False
    return True


def learn_redaction(redact: Callable[[str], str]) -> None:
    """Let `without_secrets` also apply the app's redaction of conversations.

    Args:
        redact: returns a redacted text; pure, and never raises.
    """
    if redact not in _OWN:
        _OWN.append(redact)


def _masked(found: re.Match[str]) -> str:
    end = "@" if found[0].endswith("@") else ""
    return f"{found['keep']}{MASK}{end}"


def learn_secrets(values: Iterable[str]) -> None:
    """Remember values that `without_secrets` removes wherever they occur.

    Args:
        values: keys and passwords; short values and possible ordinary words are ignored, because removing them would
            make texts meaningless.
    """
    for value in map(str.strip, values):
        if _is_telling(value):
            _KNOWN.update({value, _percent_encoded(value), value.replace("\\", "\\\\").replace('"', '\\"')})
    _BY_LENGTH[:] = sorted(_KNOWN, key=len, reverse=True)


def secrets_of_settings(settings: Mapping[str, str]) -> list[str]:
    """Find the secrets among an app's settings.

    Guarantee: pure.

    Args:
        settings: names to values, as environment variables.

    Returns:
        The values whose names mark them as secret, and the passwords and keys within connection strings and URLs.
    """
    found: list[str] = []
    for name, value in settings.items():
        if _SECRET_NAME.search(name):
            found.append(value)
        found += re.findall(rf"(?<![a-z])(?:{_ASSIGNED})=([^;&\s]+)", value, re.IGNORECASE)
        found += re.findall(r"://[^\s/:@]*:(\S+)@", value)
    return found


def _is_telling(value: str) -> bool:
    if len(value) < 6 or "\n" in value:  # noqa: PLR2004 - shorter ones are found in ordinary words
        return False
    is_word = re.fullmatch(r"[a-z]+(?:[-_. ][a-z]+)*|[A-Z]+(?:[-_. ][A-Z]+)*|[A-Z][a-z]+|\d+(?:\.\d+)?", value)
    return is_word is None or len(value) >= 24  # noqa: PLR2004 - no word is that long


def _percent_encoded(value: str) -> str:
    return "".join(
        chr(byte) if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-._~") else f"%{byte:02X}"
        for byte in value.encode("utf-8", "surrogateescape")
    )
