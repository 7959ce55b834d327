"""What is masked in texts of errors, log records, model requests and conversations, and what stays."""

import base64
import html
import json
import logging
import re
import threading
from unittest.mock import Mock
from urllib.parse import quote, quote_plus

import pytest
from agent_framework import Content

from durable_agent_host import app_functions, redact_secrets
from durable_agent_host.errors import ProviderError, RedactionError, RequestError
from durable_agent_host.log_redaction import redact_log_records
from durable_agent_host.redaction import (
    MASK,
    add_known_secrets,
    find_secrets,
    mask_credentials,
    mask_secrets,
)
from durable_agent_host.turn.error_texts import error_details, format_problem
from tests.durable_agent_host.test_scenarios_secrets import NEEDLES, SECRET_TEXTS

TOKENS = (
    "sk-proj-abcdEFGH1234",
    "sk-svcacct-" + "aB3_" * 4,
    "sk-ant-api03-" + "a1-B" * 20 + "AA",
    "sk-or-v1-" + "0a" * 32,
    "sk-" + "a1B" * 16,
    "sk_live_" + "4eC39Hq" * 4,
    "rk_test_" + "51Hx" * 6,
    "whsec_" + "a1" * 16,
    "ghp_" + "a1B" * 12,
    "gho_" + "a1B" * 12,
    "github_pat_" + "11A" * 7 + "_" + "b2C" * 19,
    "glpat-" + "a1-B_" * 4,
    "xoxb-1234567890-1234567890123-" + "a1B" * 8,
    "xapp-1-A0-" + "12" * 8,
    "AKIAIOSFODNN7EXAMPLE",
    "AIza" + "a1_B-" * 7,
    "ya29.a0" + "a1-B" * 20,
    "GOCSPX-" + "a1" * 14,
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "hf_" + "a1" * 17,
    "npm_" + "a1" * 18,
    "pypi-AgEIcHlwaS5vcmc" + "a1-B" * 20,
    "SG." + "a1" * 11 + "." + "b2" * 21,
    "dapi" + "0a" * 16,
    "gsk_" + "a1B" * 17,
    "xai-" + "a1B" * 20,
    "hvs.CAES" + "a1" * 12,
    "dckr_pat_" + "a1" * 12,
    "a1B-" * 11 + "AzFu" + "b2c3dA==",
    "-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE and no end",
)


@pytest.mark.parametrize("mask", [mask_secrets, lambda text: redact_secrets(Content.from_text(text)).text])
@pytest.mark.parametrize("token", TOKENS)
def test_well_known_tokens_are_masked(mask, token):
    """In errors, log records and redacted conversations, also in JSON, literals and URLs; other text stays."""
    assert mask(f"Incorrect key: {token}") == f"Incorrect key: {MASK}"
    if "no end" not in token:
        assert mask(f"a '{token}', b") == f"a '{MASK}', b"
        assert mask(json.dumps({"a": f"\n{token}\n", "b": 1})) == json.dumps({"a": f"\n{MASK}\n", "b": 1})
        assert mask(repr(f"x\n{token}")) == repr(f"x\n{MASK}")
    if "\n" not in token:
        assert mask(f"?to=x%3D{token}&y=1") == f"?to=x%3D{MASK}&y=1"


@pytest.mark.parametrize(
    ("text", "redacted_text"),
    [
        ("postgres://admin:hunter2@db:5432/x failed", f"postgres://admin:{MASK}@db:5432/x failed"),
        ("redis://:hunter2@host:6379/0", f"redis://:{MASK}@host:6379/0"),
        ("{'Authorization': 'Bearer abc.def-1234567890'}", f"{{'Authorization': 'Bearer {MASK}'}}"),
        (
            f"AccountName=x;AccountKey={'a+1/' * 21}ab==;EndpointSuffix=y",
            f"AccountName=x;AccountKey={MASK};EndpointSuffix=y",
        ),
        (
            f"Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={'a1' * 21}b=",
            f"Endpoint=sb://x/;SharedAccessKeyName=Root;SharedAccessKey={MASK}",
        ),
        (f"/c?sv=1&sig={'a1%2F' * 9}%3D&se=2", f"/c?sv=1&sig={MASK}&se=2"),
        (f"x?a=b\\u0026sig={'a1%2F' * 9}", f"x?a=b\\u0026sig={MASK}"),
    ],
)
def test_values_with_a_well_known_name_are_masked(text, redacted_text):
    """Their names stay, so that a reader knows what the text is about."""
    assert mask_secrets(text) == redacted_text
    assert redact_secrets(Content.from_text(text)).text == redacted_text
    assert mask_secrets(redacted_text) == redacted_text


@pytest.mark.parametrize(
    "text",
    [
        "primary key: user_id2, foreign_key=order_id7, SORT_KEY=created_at",
        "?code=python3&state=12, to=https%3A%2F%2Fx%2Fy%3Fkey%3Dabc15",
        "token: 12345 of 99999, next_token: 12345678, MAX_TOKENS=128000",
        "check OPENAI_API_KEY or AZURE_OPENAI_API_KEY",
        "http://127.0.0.1:5000/v1/responses, http://[::1]:8080/x, see https://example.com/users/@someone",
        "password authentication failed for user admin; my password is case-sensitive; password: hunter2",
        "turn 0123456789abcdef0123456789abcdef: call call_1 of tool pay",
        "Previous response with id 'resp_0123456789abcdef' not found; container_id: cntr_0123456789abcdef",
        "pk_orders_customer_id, sk_buff_alloc_fast, rk-3588-board-v2, sk-learn-pipeline-for-many-columns",
        "npm_config_registry_of_the_project, hf_hub_download_with_retries, gsk_shared_configuration",
        "xai-release-notes-and-more, pypi-attestations, ASIAN, AKIA, SG.x, hvs.py, dapi, design=123, glpat-",
        "bearer of bad news, Bearer authentication-and-authorization, the bearer token",
        "-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----",
        '{"key": "Images/Photo2024Large.png", "eyJ": "eyJhbGciOiJIUzI1NiJ9"}',
    ],
)
def test_ordinary_text_stays(text):
    """A text keeps its meaning: in errors, log records and redacted conversations."""
    assert mask_secrets(text) == text
    assert redact_secrets(Content.from_text(text)).text == text


@pytest.mark.parametrize(
    "unit",
    ["-eyJ", "eyJ.", "://a:", "Bearer a", "SG.a", "-----BEGIN ", '"headers":{', '"a-'],
)
def test_a_hostile_text_is_searched_in_time(unit):
    """A search takes time in proportion to the text: half a megabyte that nearly matches everywhere is no problem."""
    text = unit * (500_000 // len(unit))
    assert redact_secrets(Content.from_text(text)).text == text
    assert mask_secrets(text) == text
    assert mask_credentials(text) == text


def test_tokens_are_found_in_literals_of_texts():
    """A line break that is written as in a program, or twice so, begins no word."""
    text = "\n".join(SECRET_TEXTS.values())
    for literal in (text, repr(text), json.dumps(text), json.dumps(json.dumps({"a": text})), f"{SECRET_TEXTS}"):
        redacted_text = mask_secrets(literal)
        assert [needle for needle in (*NEEDLES, "canary") if needle in redacted_text] == [], redacted_text


def test_the_app_s_own_secrets_are_masked_everywhere():
    """By the names of settings, and out of connection strings; ordinary words are no secrets."""
    secrets = find_secrets(
        {
            "PAYMENT_API_KEY": "own+key/4711",
            "DATABASE_URL": "mysql://root:rootpw99@db/x",
            "STORAGE": "AccountName=someone;AccountKey=own4712==;EndpointSuffix=x",
            "MODE_KEY": "production",
            "HOME": "/srv/someone",
            "PWD": "/srv/app1",
            "OLDPWD": "/srv/app2",
            "DB_PWD": "dbpw-4712",
        }
    )
    add_known_secrets(secrets)
    assert mask_secrets("sent own+key/4711 and own%2Bkey%2F4711 and rootpw99") == f"sent {MASK} and {MASK} and {MASK}"
    assert mask_secrets("/srv/app1, /srv/app2, dbpw-4712, own4712==") == f"/srv/app1, /srv/app2, {MASK}, {MASK}"
    assert mask_secrets("in production, /srv/someone") == "in production, /srv/someone"


@pytest.mark.parametrize("secret", ["own+key/4711=", "0123456789abcdef0123", 'a"b<c>\\d&e/f+g', "schl\u00fcssel-4711"])
def test_the_app_s_own_secrets_are_masked_however_they_are_quoted(secret):
    """A service that has read a header may quote it as it was encoded on its way, or encode it itself."""
    add_known_secrets([secret])
    data = secret.encode()
    forms = [
        *(quote(secret), quote(secret, safe=""), quote(quote(secret, safe="")), quote_plus(secret)),
        *(re.sub("%..", lambda byte: byte[0].lower(), quote(secret, safe="")), html.escape(secret), data.hex()),
        *(json.dumps(secret), json.dumps(secret, ensure_ascii=False), json.dumps(secret).replace("/", "\\/")),
        *(base64.b64encode(start + data + b" and more").decode() for start in (b"", b"x", b"Bearer ", b"ab")),
        *(base64.urlsafe_b64encode(start + data).decode() for start in (b"", b"x", b"ab")),
    ]
    for form in forms:
        redacted_text = mask_secrets(f"refused: {form}")
        assert MASK in redacted_text
        assert secret[1:-1] not in redacted_text
        assert form not in redacted_text


def test_credentials_that_a_request_forwards_are_masked():
    """Those of tool services, and the app's own; the conversation is unchanged."""
    add_known_secrets(["own-secret-4713"])
    body = {
        "input": "my key is sk-proj-abcdEFGH1234, own-secret-4713",
        "tools": [
            {"type": "mcp", "authorization": "abc", "headers": {"X-Key": "def", "Accept": "x"}, "x-api-key": 'g"h'},
            {"type": "function", "parameters": {"properties": {"headers": {"type": "object"}, "key": {"type": "x"}}}},
        ],
    }
    masked_body = json.loads(mask_credentials(json.dumps(body)))
    assert masked_body["input"] == f"my key is sk-proj-abcdEFGH1234, {MASK}"
    server = {"authorization": MASK, "headers": {"X-Key": MASK, "Accept": MASK}, "x-api-key": MASK}
    assert masked_body["tools"] == [{"type": "mcp", **server}, body["tools"][1]]


def test_error_messages_contain_no_secrets():
    """Neither ours nor those of others."""
    error = ProviderError("refused redis://:hunter2@h", retryable=False)
    for message in (format_problem(error), error_details(error)["message"]):
        assert message == f"refused redis://:{MASK}@h"
    assert error_details(ValueError("redis://:hunter2@h"))["message"] == f"ValueError: redis://:{MASK}@h"
    assert "hunter2" not in format_problem(RedactionError("redis://:hunter2@h"))
    assert len(error_details(ValueError("x" * 10_000_000))["message"]) == 600


def test_log_records_contain_no_secrets(caplog: pytest.LogCaptureFixture):
    """In the text, in its arguments and in the traceback; other records are as they were."""
    record_factory = logging.getLogRecordFactory()
    caplog.set_level(logging.INFO)
    redact_log_records()
    redact_log_records()
    try:
        log = logging.getLogger("anybody")
        log.warning("a %s", "redis://:hunter2@h")
        log.warning("b redis://:hunter2@h %d", 1)
        try:
            int("redis://:hunter2@h")
        except ValueError:
            log.exception("c")
        log.warning("d %s %s", "e", 1)
        logging.getLogger("access").info('%s - "%s %s"', "127.0.0.1", "GET", "/api/agents?a=b&code=KEY&c=d")
    finally:
        logging.setLogRecordFactory(record_factory)
    assert "hunter2" not in caplog.text
    assert f"redis://:{MASK}@h" in caplog.text
    assert "ValueError" in caplog.text
    assert caplog.records[-2].args == ("e", 1)
    assert caplog.records[-1].args == ("127.0.0.1", "GET", f"/api/agents?a=b&code={MASK}&c=d")


def test_a_slow_redaction_of_a_log_line_holds_up_no_event_loop(monkeypatch: pytest.MonkeyPatch):
    """The line loses its text, as do the next ones, for which the app's function is not called."""
    monkeypatch.setattr(app_functions, "_LINE_SECONDS", 0)
    monkeypatch.setattr(app_functions, "time", clock := Mock(monotonic=Mock(return_value=100.0)))
    calls, can_end = list[str](), threading.Event()

    def redact(text: str) -> str:
        calls.append(text)
        can_end.wait()
        return text

    redact_line = app_functions.LineRedaction(redact)
    assert [redact_line(text).partition(" ")[0] for text in ("first", "second")] == [MASK, MASK]
    can_end.set()
    monkeypatch.setattr(app_functions, "_LINE_SECONDS", 60)
    clock.monotonic.return_value += 61
    assert redact_line("third") == "third"
    assert "second" not in calls


def test_log_lines_cannot_be_forged(caplog: pytest.LogCaptureFixture):
    """Control characters in messages and in what exceptions say are escaped; tracebacks keep their lines."""
    hostile_text = "x\n2026-11-24 ERROR FORGED \x1b[31m\r\u2028FORGED\x85\u202eFORGED\ty"
    record_factory = logging.getLogRecordFactory()
    redact_log_records()
    try:
        log = logging.getLogger("anybody")
        log.warning("call %s: %s", hostile_text, ValueError(hostile_text))
        log.warning(hostile_text)
        try:
            try:
                raise ExceptionGroup(hostile_text, [ValueError(hostile_text)])  # noqa: TRY301 - it needs a traceback
            except ExceptionGroup as error:
                error.add_note(hostile_text)
                raise RuntimeError(hostile_text) from error
        except RuntimeError:
            log.exception("failed")
    finally:
        logging.setLogRecordFactory(record_factory)
    text = caplog.text
    assert not any(character in text for character in "\x1b\r\u2028\x85\u202e")
    assert [line for line in text.split("\n") if line.lstrip(" |").startswith("2026")] == []
    assert text.count(r"x\n2026-11-24 ERROR FORGED \x1b[31m\r\u2028FORGED\x85\u202eFORGED") == 7
    assert 'File "' in text


def test_a_problem_about_a_request_quotes_little_of_it():
    """It begins with what is wrong, and ends with what to do; what is masked is masked whole."""
    token = "sk-proj-" + "a1B2" * 100
    detail = format_problem(RequestError(f"'status' has {'a.' * 100} {token} {'a.' * 6000} ://x@: use completed"))
    assert len(detail) < 900
    assert detail.startswith(f"'status' has {'a.' * 100} {MASK} a.a.")
    assert detail.endswith("@: use completed")
