"""Masks what must not be stored or shown: secrets of the app and well-known tokens.

Errors quote what they were given: a driver its connection string, a model's service the key that it refused. Their text
is masked once, where it leaves the host: in log records, problems, receipts, events, recorded model calls and spans.
What a model got and wrote is the conversation, which only the app's own ``redact`` function masks.

Strangers write the texts, and some have megabytes, so every search takes time in proportion to the text: a pattern is
searched only in texts that contain its prefix, and what it repeats is bounded or needs nothing behind it.
"""

import copy
import json
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Final

from agent_framework import Content

MASK: Final = "[redacted]"

_TOKENS: Final[tuple[tuple[tuple[str, ...], str], ...]] = (
    (("sk-proj-", "sk-svcacct-", "sk-admin-", "sk-ant-", "sk-or-"), r"[\w-]{12,}"),  # OpenAI, Anthropic, OpenRouter
    (("sk-",), r"[A-Za-z0-9]{32,}"),  # earlier keys of OpenAI, and of services with its API
    (("sk_live_", "sk_test_", "rk_live_", "rk_test_"), r"[A-Za-z0-9]{10,}"),  # Stripe
    (("whsec_",), r"[A-Za-z0-9+/]{20,}={0,2}"),  # webhooks
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"[A-Za-z0-9]{30,}"),  # GitHub
    (("github_pat_",), r"\w{22,}"),
    (("glpat-", "glrt-", "gldt-"), r"[\w-]{20,}"),  # GitLab
    (("xoxb-", "xoxp-", "xoxa-", "xoxe-", "xoxr-", "xoxs-", "xapp-"), r"[\w-]{10,}"),  # Slack
    (("AKIA", "ASIA"), r"[A-Z0-9]{16}(?![A-Za-z0-9])"),  # AWS
    (("AIza",), r"[\w-]{30,}"),  # Google
    (("ya29.", "GOCSPX-"), r"[\w-]{20,}"),
    (("cb_",), r"[\w-]{40,}\.[0-9a-f]{64}"),  # tokens of deferred calls
    (("eyJ",), r"(?<!-eyJ)[\w-]{8,}\.[\w.-]{8,}(?<!\.)"),  # JSON Web Token
    (("hf_",), r"[A-Za-z0-9]{30,}"),  # Hugging Face
    (("npm_",), r"[A-Za-z0-9]{30,}"),
    (("pypi-",), r"[\w-]{50,}"),
    (("SG.",), r"[\w-]{16,64}\.[\w-]{16,}"),  # SendGrid
    (("dapi",), r"[0-9a-f]{32}(?![A-Za-z0-9])"),  # Databricks
    (("gsk_", "xai-"), r"[A-Za-z0-9]{40,}"),  # Groq, xAI
    (("hvs.", "hvb."), r"[\w-]{20,}"),  # HashiCorp Vault
    (("dckr_pat_",), r"[\w-]{20,}"),  # Docker
    (("AccountKey=", "SharedAccessKey="), r"[\w+/%-]{20,}={0,2}"),  # Azure: storage, Service Bus
    (("sig=",), r"[\w+/%-]{20,}={0,2}"),  # Azure: shared access signature
    (("Bearer ", "bearer "), r"(?=[\w.~+/-]{0,64}\d)[\w.~+/-]{16,}={0,2}"),
)
"""Prefixes, and what is behind them; a prefix that ends with ``=`` or a space is the name of the token, and stays."""


def _compile_token(prefix: str, suffix: str) -> re.Pattern[str]:
    """Compile a pattern for a token at the start of a word, also behind an escape of JSON or a URL."""
    literal = re.escape(prefix)
    befores = (r"(?<=\\[nrt]", r"(?<=\\u00[0-9a-f]{2}", r"(?<=%[0-9A-Fa-f]{2}")
    start = "|".join(f"{before}{literal})" for before in (r"(?<![A-Za-z0-9_]", *befores))
    return re.compile(f"{literal}(?:{start}){suffix}", re.ASCII)


_PATTERNS: Final = (
    *(
        (prefix, _compile_token(prefix, suffix), prefix + MASK if prefix[-1] in "= " else MASK)
        for prefixes, suffix in _TOKENS
        for prefix in prefixes
    ),
    # The key of a function or a host of Azure Functions.
    ("AzFu", re.compile(r"[\w-]{44}AzFu[\w-]{6}(?:==|%3D%3D)?", re.ASCII), MASK),
    ("://", re.compile(r"(://[^\s/:@\"'<>]{0,64}:)[^\s/@\"'<>]{1,128}@"), rf"\1{MASK}@"),  # the password of a URL
    (
        "-----BEGIN ",
        re.compile(
            r"-----BEGIN [A-Z ]{0,32}PRIVATE KEY[A-Z ]{0,8}-----.*?"
            r"(?:-----END [A-Z ]{0,32}PRIVATE KEY[A-Z ]{0,8}-----|\Z)",
            re.DOTALL,
        ),
        MASK,
    ),
)
"""A text without which the pattern is not searched, the pattern, and its replacement."""

_SECRET_SETTING: Final = re.compile(
    r"(?:KEY|SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|(?<=[A-Z]_)PWD|CREDENTIAL|CONNECTION_?STRING|SAS)S?(?:_?\d+)?$",
    re.IGNORECASE,
)
_SECRET_PART: Final = re.compile(
    r"(?:key|secret|token|password|passwd|pwd|signature|\bsig)=([^;&\s]+)|://[^\s/:@]*:(\S+)@", re.IGNORECASE
)
_MIN_SECRET_CHARACTERS: Final = 6
"""Shorter texts are found in ordinary words."""
_ORDINARY_TEXT: Final = re.compile(r"[a-z]+(?:[-_. ][a-z]+)*|[A-Z]+(?:[-_. ][A-Z]+)*|[A-Z][a-z]+|\d+(?:\.\d+)?")
_MAX_ORDINARY_CHARACTERS: Final = 23

_CREDENTIAL_NAMES: Final = (
    *("authorization", "cookie", "api-key", "api_key", "apikey", "access_key", "access-key", "accesskey"),
    *("subscription-key", "subscription_key", "functions-key", "functions_key"),
)
"""What the names of members of a request end with that hold a credential."""
_CREDENTIAL: Final = re.compile(
    rf'("[\w-]{{0,64}}(?:{"|".join(_CREDENTIAL_NAMES)})"\s{{0,16}}:\s{{0,16}}")(?:[^"\\]|\\.)+', re.IGNORECASE
)
_HEADERS: Final = re.compile(r'"headers"\s{0,16}:\s{0,16}\{(?!\s*"(?:type|description|properties)")[^{}]*(?=\})')
_HEADER_VALUE: Final = re.compile(r'(:\s{0,16}")(?:[^"\\]|\\.)*')

_known_secrets: set[str] = set()
_secret_forms: list[str] = []
"""The same, and other forms in which a service may quote them in an error, longest first."""
_redactions: list[Callable[[str], str]] = []


def add_known_secrets(values: Iterable[str]) -> None:
    """Let all texts that are masked from now on lose the app's own secrets."""
    for value in map(str.strip, values):
        is_ordinary = len(value) <= _MAX_ORDINARY_CHARACTERS and _ORDINARY_TEXT.fullmatch(value)
        if len(value) >= _MIN_SECRET_CHARACTERS and "\n" not in value and not is_ordinary:
            _known_secrets.update({value, _encode_percent(value), _encode_json(value)})
            forms = {form for form in _encode_secret(value) if len(form) >= _MIN_SECRET_CHARACTERS}
            _secret_forms[:] = sorted({*_secret_forms, *_known_secrets, *forms}, key=len, reverse=True)


def add_redaction(redact: Callable[[str], str]) -> None:
    """Let `mask_secrets` also apply an app's redaction of conversations."""
    _redactions.append(redact)


def find_secrets(settings: Mapping[str, str]) -> list[str]:
    """Find the secrets in an app's settings.

    Returns:
        The values whose names mark them as secret, and the keys and passwords within connection strings and URLs.
    """
    secrets = [value for name, value in settings.items() if _SECRET_SETTING.search(name)]
    return secrets + [part[1] or part[2] for value in settings.values() for part in _SECRET_PART.finditer(value)]


def mask_secrets(text: str) -> str:
    """Mask the app's own secrets, tokens, and what the app redacts, in the text of an error or a log record."""
    text = mask_known_secrets(text)
    for redact in _redactions:
        text = redact(text)
    return text


def mask_known_secrets(text: str) -> str:
    """Mask the app's own secrets and tokens, without the app's redaction. Guarantee: replay-safe."""
    for secret in _secret_forms:
        text = text.replace(secret, MASK)
    return _mask_tokens(text)


def mask_credentials(body: str) -> str:
    """Mask the credentials that a model request forwards, such as a tool service's, and the app's own secrets."""
    for secret in sorted(_known_secrets, key=len, reverse=True):
        body = body.replace(secret, MASK)
    if '"headers"' in body:
        body = _HEADERS.sub(lambda headers: _HEADER_VALUE.sub(rf"\1{MASK}", headers[0]), body)
    lower_body = body.lower()
    if any(f'{name}"' in lower_body for name in _CREDENTIAL_NAMES):
        body = _CREDENTIAL.sub(rf"\1{MASK}", body)
    return body


def redact_secrets(content: Content) -> Content:
    """Mask the app's own secrets, well-known tokens and private keys in a content's text.

    The host calls it for the text of every content, and for every other text in it (arguments, results, outputs,
    citations), so a function of your own can do the same.

    Args:
        content: of any type; returned as it is when it has no text.

    Returns:
        The content, or a copy with `MASK` for each match.
    """
    text = mask_known_secrets(content.text or "")
    if text == (content.text or ""):
        return content
    redacted_content = copy.copy(content)
    redacted_content.text = text
    return redacted_content


def _mask_tokens(text: str) -> str:
    for needed_text, pattern, replacement in _PATTERNS:
        if needed_text in text:
            text = pattern.sub(replacement, text)
    return text


def _encode_secret(value: str) -> set[str]:
    """Return the forms of a secret in URLs, JSON and HTML, in hexadecimal digits and in base64."""
    data = value.encode("utf-8", "surrogateescape")
    percent = _encode_percent(value)
    forms = {percent, _encode_percent(percent), _encode_percent(value, safe="/")}
    forms |= {re.sub("%[0-9A-F]{2}", lambda byte: byte[0].lower(), form) for form in forms}
    forms |= {_encode_json(value).replace("/", "\\/"), json.dumps(value)[1:-1], escape(value)}
    forms |= {data.hex(), data.hex().upper()}
    for offset in range(3):  # the bytes before it in a longer text, such as a header, that is encoded as a whole
        first = -(-8 * offset // 6)
        last = 8 * (offset + len(data)) // 6
        base64_text = b64encode(bytes(offset) + data + bytes(2))[first:last].decode()
        forms |= {base64_text, base64_text.replace("+", "-").replace("/", "_")}
    return forms


def _encode_json(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)[1:-1]


def _encode_percent(value: str, *, safe: str = "") -> str:
    plain = ("-._~" + safe).encode()
    data = value.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if bytes((byte,)).isalnum() or byte in plain else f"%{byte:02X}" for byte in data)
