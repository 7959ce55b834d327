"""Removes secrets from what is stored or shown: keys, tokens and passwords in error messages and log lines. Pure.

Errors quote what they were given: a driver its connection string, a model's service the header that it refused. What
the model was told and what it said is the conversation, and is not touched.
"""

import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Final

from durable_agent_host.secret_forms import ASSIGNED, MASK, masked, without_forms

_KNOWN: set[str] = set()
"""The app's own secrets, see `learn_secrets`."""

_QUOTED: set[str] = set()
"""Other forms of them, which only errors are searched for."""

_BY_LENGTH: list[str] = []
"""The same as they are, and as a service may quote them in an error, longest first."""

_LEAST_QUOTED: Final = 6
"""Shorter texts are found in ordinary words."""

_OWN: list[Callable[[str], str]] = []
"""The app's own redaction functions, see `learn_redaction`."""

_SECRET_NAME: Final = re.compile(
    r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|(?<=[A-Z]_)PWD|CREDENTIAL|CONNECTION_?STRING|SAS)S?(?:_?\d+)?$",
    re.IGNORECASE,
)


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
    return without_forms(text, is_log=True)


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
        body = _HEADERS.sub(lambda found: _HEADER.sub(masked, found[0]), body)
    if _has_secret_member(body):
        body = _SECRET_MEMBER.sub(masked, body)
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
    return without_forms(text, is_log=False)


def learn_redaction(redact: Callable[[str], str]) -> None:
    """Let `without_secrets` also apply the app's redaction of conversations.

    Args:
        redact: returns a redacted text; pure, and never raises.
    """
    if redact not in _OWN:
        _OWN.append(redact)


def learn_secrets(values: Iterable[str]) -> None:
    """Remember values that `without_secrets` removes wherever they occur.

    Args:
        values: keys and passwords; short values and possible ordinary words are ignored, because removing them would
            make texts meaningless.
    """
    for value in map(str.strip, values):
        if _is_telling(value):
            _KNOWN.update({value, _percent_encoded(value), _in_json(value)})
            _QUOTED.update(_quoted(value))
    _BY_LENGTH[:] = sorted(_KNOWN | _QUOTED, key=len, reverse=True)


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
        found += re.findall(rf"(?<![a-z])(?:{ASSIGNED})=([^;&\s]+)", value, re.IGNORECASE)
        found += re.findall(r"://[^\s/:@]*:(\S+)@", value)
    return found


def _is_telling(value: str) -> bool:
    if len(value) < 6 or "\n" in value:  # noqa: PLR2004 - shorter ones are found in ordinary words
        return False
    is_word = re.fullmatch(r"[a-z]+(?:[-_. ][a-z]+)*|[A-Z]+(?:[-_. ][A-Z]+)*|[A-Z][a-z]+|\d+(?:\.\d+)?", value)
    return is_word is None or len(value) >= 24  # noqa: PLR2004 - no word is that long


def _in_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _quoted(value: str) -> set[str]:
    """Return forms in which a service may quote a secret that it has read: as in URLs, JSON, HTML, base64, digits."""
    data, whole = value.encode("utf-8", "surrogateescape"), _percent_encoded(value)
    forms = {whole, _percent_encoded(whole), _percent_encoded(value, kept="/")}
    forms |= {re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), one) for one in tuple(forms)}
    forms |= {
        _in_json(value).replace("/", "\\/"),
        json.dumps(value)[1:-1],
        escape(value),
        data.hex(),
        data.hex().upper(),
    }
    for before in range(3):  # the bytes before it in a longer text, such as a header, that is encoded as a whole
        bits = 8 * before, 8 * (before + len(data))
        encoded = b64encode(bytes(before) + data + bytes(2))[-(-bits[0] // 6) : bits[1] // 6].decode()
        forms |= {encoded, encoded.replace("+", "-").replace("/", "_")}
    return {one for one in forms if len(one) >= _LEAST_QUOTED}


def _percent_encoded(value: str, *, kept: str = "") -> str:
    return "".join(
        chr(byte)
        if chr(byte).isascii() and (chr(byte).isalnum() or chr(byte) in "-._~" or chr(byte) in kept)
        else f"%{byte:02X}"
        for byte in value.encode("utf-8", "surrogateescape")
    )
