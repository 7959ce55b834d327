"""What is taken out of the texts of errors and log lines, and what stays."""

import base64
import html
import json
import logging
import re
from urllib.parse import quote, quote_plus

import pytest
from agent_framework import Content

from durable_agent_host import redact_personal_data
from durable_agent_host.errors import ProviderError, RequestError, error_details
from durable_agent_host.log_records import keep_secrets_out_of_logs
from durable_agent_host.long_texts import learn_pause
from durable_agent_host.redaction import (
    learn_secrets,
    secrets_of_settings,
    without_secrets,
)
from durable_agent_host.secret_forms import MASK
from tests.durable_agent_host.test_scenarios_secrets import FORMS, NEEDLES

TOKENS = (
    "SG." + "a1" * 11 + "." + "b2" * 21,
    "whsec_" + "a1" * 16,
    "shpat_" + "0a" * 16,
    "shppa_" + "0a" * 16,
    "dapi" + "0a" * 16,
    "SK" + "0a" * 16,
    "hvs.CAES" + "a1" * 12,
    "GOCSPX-" + "a1" * 14,
    "gsk_" + "a1B" * 17,
    "xai-" + "a1B" * 20,
    "nvapi-" + "a1B" * 20,
    "r8_" + "a1B" * 12,
    "figd_" + "a1B" * 12,
    "ATATT3xFfGF0" + "a1" * 20,
    "AGE-SECRET-KEY-1" + "Q2" * 29,
    "glrt-" + "a1" * 10,
    "xapp-1-A0-" + "12" * 8,
    "dckr_pat_" + "a1" * 12,
    "123456789:AA" + "a1" * 16 + "b",
    "aB18Q~" + "x1" * 17,
    "a1" * 38 + "+ASt" + "b2c3dA==",
    "a1" * 16 + "b+AEhA" + "b2c3d=",
    "a1" * 21 + "AzSeA" + "b2c3d",
    "a1" * 22 + "AzFub2c3dA==",
    "a1" * 38 + "AZDO" + "b2c3",
    "IQoJb3JpZ2luX2Vj" + "a1" * 40,
)


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgres://admin:hunter2@db:5432/x failed", f"postgres://admin:{MASK}@db:5432/x failed"),
        ("mongodb+srv://u:p%40ss@h/x", f"mongodb+srv://u:{MASK}@h/x"),
        ("redis://:pw/1@host:6379/0", f"redis://:{MASK}@host:6379/0"),
        ("Incorrect API key provided: sk-proj-abcdEFGH1234.", f"Incorrect API key provided: {MASK}."),
        ("{'Authorization': 'Bearer abc.def-123456'}", f"{{'Authorization': '{MASK}'}}"),
        ("Authorization: Basic dXNlcjpwYXNz", f"Authorization: {MASK}"),
        ("AccountName=x;AccountKey=abcd+/==;EndpointSuffix=y", f"AccountName=x;AccountKey={MASK};EndpointSuffix=y"),
        ("/c?sv=1&sig=abc%2F3D&se=2", f"/c?sv=1&sig={MASK}&se=2"),
        ('{"api_key":"short","b":1}', f'{{"api_key":"{MASK}","b":1}}'),
        ("api-key: 0123456789abcdef0123456789abcdef", f"api-key: {MASK}"),
        ("AKIAIOSFODNN7EXAMPLE", MASK),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl", MASK),
        ("GET /api/x?code=Zm9v&b=1", f"GET /api/x?code={MASK}&b=1"),
        ("x?a=b&amp;code=Zm9v1&amp;z", f"x?a=b&amp;code={MASK}&amp;z"),
        (r"x?a=b\u0026code=Zm9v1\u0026z", rf"x?a=b\u0026code={MASK}\u0026z"),
        ("to=https%3A%2F%2Fx%2Fy%3Fcode%3DZm9v1", f"to=https%3A%2F%2Fx%2Fy%3Fcode%3D{MASK}"),
        ("[('api-key', 'abc1'), (b'x-api-key', b'd2')]", f"[('api-key', '{MASK}'), (b'x-api-key', b'{MASK}')]"),
        ("{b'x-functions-key': b'abc'}", f"{{b'x-functions-key': b'{MASK}'}}"),
        ("api_key: abc1\npassword: def2\nmodel: x", f"api_key: {MASK}\npassword: {MASK}\nmodel: x"),
        ("AccountKey=\n  abcdef==\nx", f"AccountKey=\n  {MASK}\nx"),
        ("api-key:\n abcdef1\nx", f"api-key:\n {MASK}\nx"),
        ("InstrumentationKey=0-1-2;IngestionEndpoint=x", f"InstrumentationKey={MASK};IngestionEndpoint=x"),
        ("Cookie: session=abc; other=1\nhost: x", f"Cookie: {MASK}\nhost: x"),
        ("Login(token='abcdef123')", f"Login(token='{MASK}')"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", MASK),
        ("PGPASSWORD=hunter22 psql", f"PGPASSWORD={MASK} psql"),
        ("DB_PASS=hunter2\nSMTP_PASS: 'hunter2'", f"DB_PASS={MASK}\nSMTP_PASS: '{MASK}'"),
        ("SECRET_KEY_BASE=abcdef", f"SECRET_KEY_BASE={MASK}"),
        ("MY_TOKEN=abcdef12\nSORT_KEY=name", f"MY_TOKEN={MASK}\nSORT_KEY=name"),
        ("mysql --password hunter2 -u root", f"mysql --password {MASK} -u root"),
        ("['az', '--client-secret', 'abc~1']", f"['az', '--client-secret', '{MASK}']"),
        ("gh --auth-token abcdef12 --key 2", f"gh --auth-token {MASK} --key 2"),
        ("curl -s -u ada:hunter2 https://x", f"curl -s -u ada:{MASK} https://x"),
        ("sshpass -p hunter2 ssh x", f"sshpass -p {MASK} ssh x"),
        ("machine x login y password hunter2", f"machine x login y password {MASK}"),
        (
            "<Password>a b</Password><apiKey a='1'>c</apiKey>",
            f"<Password>{MASK}</Password><apiKey a='1'>{MASK}</apiKey>",
        ),
        ("&lt;pwd&gt;hunter2&lt;/pwd&gt;", f"&lt;pwd&gt;{MASK}&lt;/pwd&gt;"),
        ("<secret><![CDATA[a&b]]></secret>", f"<secret><![CDATA[{MASK}]]></secret>"),
        ('<add key="DbPassword" value="hunter2"/>', f'<add key="DbPassword" value="{MASK}"/>'),
        ("My password is hunter2, and yours?", f"My password is {MASK}, and yours?"),
        ('[{"name": "DB_PASSWORD", "value": "hunter2"}]', f'[{{"name": "DB_PASSWORD", "value": "{MASK}"}}]'),
        (
            "setx API_KEY Zq9geJ6xZGWtmeTtf | password | Zq9geJ6xZGWtmeTtf |",
            f"setx API_KEY {MASK} | password | {MASK} |",
        ),
        ("api_key | " + "abcdeFGHIJ" * 5 + "1", f"api_key | {MASK}"),
        ("Mein Passwort is hunter2", f"Mein Passwort is {MASK}"),
        ("The API key is Zq9geJ6xZGWtmeTtf", f"The API key is {MASK}"),
        ("api_key: >-\n  Zq9geJ6xZGWtmeTtf\nx", f"api_key: >-\n  {MASK}\nx"),
        ('{"token": "abcdef123", "pass=": 1} pass=abcdef12', f'{{"token": "{MASK}", "pass=": 1}} pass={MASK}'),
        (
            "password%3Dabcdef12&Authorization%3A%20Bearer%20abc.def1",
            f"password%3D{MASK}&Authorization%3A%20Bearer%20{MASK}",
        ),
        ("post to https://hooks.slack.com/services/T0/B0/abcdefgh", f"post to https://hooks.slack.com/services/{MASK}"),
        *((f"a {token} b", f"a {MASK} b") for token in TOKENS),
    ],
)
def test_secrets_of_known_forms_are_taken_out(text, clean):
    """The rest of the text stays, so that a reader knows what it is about."""
    assert without_secrets(text) == clean


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("postgres://admin:hunter2@db:5432/x failed", f"postgres://admin:{MASK}@db:5432/x failed"),
        ("{'Authorization': 'Bearer abc.def-123456'}", f"{{'Authorization': '{MASK}'}}"),
        ("-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----", MASK),
        ("machine x login y password hunter2", f"machine x login y password {MASK}"),
        (f"a {TOKENS[0]} b", f"a {MASK} b"),
    ],
)
def test_secrets_are_found_at_the_borders_of_a_long_text_s_parts(text, clean):
    """Long texts are searched in parts; what crosses a border is found, and found once."""
    for before in range(_PART - len(text) - 1, _PART + 2, max(len(text) // 7, 1)):
        words = ("x\n" * (before // 2 + 1))[:before] + "\n"
        assert without_secrets(f"{words}{text}\n{words}") == f"{words}{clean}\n{words}"


_PART = 16 * 1024


@pytest.mark.parametrize(
    "name",
    [
        *("account-key", "shared_access_key", "ocp-apim-subscription-key", "x-functions-key", "x-goog-api-key"),
        *("aws_secret_access_key", "privatekey", "instrumentation_key", "webhook-signature", "encryptionkey"),
        *("access_token", "refresh-token", "idtoken", "session_token", "bearer-token"),
        *("secret_key", "secretkey", "secret_key_base", "secretkey_base", "shared_secret", "sharedsecret"),
        *("client-secret", "app_secret", "client_assertion", "password", "mypasswd", "passwort", "passphrase"),
        *("passcode", "pwd", "db_pass", "sqlpass", "ssh_pass", "root_pass", "A_PASS", "secret", "sig", "signature"),
        *("credential", "credentials", "apiKey", "ap\u0131-key", "\u017fig", "api-\u212aey"),
    ],
)
def test_a_field_of_each_name_is_masked(name):
    """Names are searched for by what they end with."""
    for said in (name, name.upper() if name.isascii() else name):
        assert without_secrets(f"({said}=a1 x") == f"({said}={MASK} x"
        assert without_secrets(f"{{'{said}': 'a b', 1") == f"{{'{said}': '{MASK}', 1"
        assert without_secrets(f"'{said}', 'a1'") == f"'{said}', '{MASK}'"
        assert without_secrets(f"{said}: a1") == f"{said}: {MASK}"
        assert without_secrets(f"{said}%3Da&") == f"{said}%3D{MASK}&"


@pytest.mark.parametrize(
    "key",
    [
        *("sk-abcdefghijklmnopqrstuvwxyz123456", "sk-" + "a1B" * 16, "sk-0" + "ab" * 15, "sk-or-v1-" + "0a" * 32),
        *("sk-proj-abcdEFGH1234", "sk-proj-a_B-cd_" + "a1B-" + "xyz4Wxyz", "sk-svcacct-" + "aB3_" * 4 + "aB3" * 9),
        *("sk-ant-api03-abcdefghijklmnopqrst-a1_b2" + "aB9" * 20, "sk-ant-sid01-" + "xyzw-" * 8 + "Xyzwxyzw"),
        *("sk_live_abcdefghijklmnop1234", "pk_test_" + "4eC39Hq" * 4, "rk_live_" + "51Hx" * 6, "sk_" + "0f" * 24),
        *("pk-lf-1234abcd-12ab-34cd-56ef-1234567890ab", "sk-****abcd", "sk-proj-********abcd", "sk-ab******yz"),
        *("sk_live_****wxyz", "sk-abcdEFG1...", "sk-Ie48BpE-xxjG_0Ewn1l_NR", "sk---IfE7V-Pstea8x_OQ3yWJ"),
    ],
)
def test_keys_that_begin_as_names_do_are_masked(key):
    """A part of them is long, and no word; or they are partly starred."""
    assert without_secrets(f"a {key} b").startswith(f"a {MASK}")
    assert redact_personal_data(Content.from_text(f"{{'key': '{key}'}}")).text.startswith("{'key': '" + MASK)


@pytest.mark.parametrize(
    "name",
    [
        *("pk_orders_customer_id", "sk_buff_alloc_fast", "rk-3588-board-v2", "pk_users_2024", "sk-learn-pipeline-2"),
        *("sk-learn pipeline version", "pk_customer_id2", "sk-SK-locale-x"),
    ],
)
def test_names_that_begin_as_keys_do_stay(name):
    """Of tables' keys, kernels' functions and boards."""
    assert redact_personal_data(Content.from_text(f"a {name} b")).text == f"a {name} b"
    assert without_secrets(f"a {name} b") == f"a {name} b"


def test_a_text_full_of_names_lets_others_work():
    """A search pauses in each part of a long text, however many matches or names there are."""
    pauses = []
    learn_pause(lambda: pauses.append(1))
    for unit in ("key=", "token=a1b2c3d4\n", "secret: ", "a@b.co "):
        pauses.clear()
        redact_personal_data(Content.from_text(unit * (12 * _PART // len(unit))))
        assert len(pauses) > 10, unit


@pytest.mark.parametrize("place", [_PART - 16, 3 * _PART - 8])
@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("4111 1111 1111 1111 12/28", f"{MASK} 12/28"),
        ("someone.else@mail.example.com", MASK),
        ("4111111111111111, 5500-0000-0000-0004", f"{MASK}, {MASK}"),
        ("4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 1", "4 4 4 4 4 4 4 4 4 4 4 4 4 4 4 1"),
        ("4 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", MASK),
        (
            "\u5361\u53f74111111111111111\u5df2, \u0440\u04304111111111111111",
            f"\u5361\u53f7{MASK}\u5df2, \u0440\u0430{MASK}",
        ),
        ("\uff14" + "\uff11" * 15 + " PAN4111111111111111", f"{MASK} PAN{MASK}"),
        ("+49 34780914947 4006381333931", "+49 34780914947 4006381333931"),
        ("78 33 50 8 45 39 12 99 4 17 62 3", "78 33 50 8 45 39 12 99 4 17 62 3"),
        ("1447 4790 5897 9449 1314 7485", "1447 4790 5897 9449 1314 7485"),
        ("bob%40example.com, bob&#64;example.com, bob\\u0040example.com", f"{MASK}, {MASK}, {MASK}"),
        ("o'brien@example.com bob@[192.168.0.1]", f"{MASK} {MASK}"),
        ("git@github.com:org/repo.git logo@2x.png", "git@github.com:org/repo.git logo@2x.png"),
        ("a@b@c@d.example.org", f"a@b@{MASK}"),
    ],
)
def test_personal_data_is_masked_wherever_it_is_in_a_long_text(text, clean, place):
    """A match that crosses the border of two parts is found, and found once."""
    before, after = ("so \n" * _PART)[:place] + " ", " and so on" * _PART
    redacted = redact_personal_data(Content.from_text(f"{before}{text}{after}")).text
    assert redacted == f"{before}{clean}{after}"


def test_secrets_are_found_in_literals_of_texts():
    """A line break that is written as in a program, or twice so, ends no name and begins no word."""
    text = "\n".join(FORMS.values())
    for quoted in (text, repr(text), json.dumps(text), json.dumps(json.dumps({"a": text})), f"{FORMS}"):
        clean = without_secrets(quoted)
        assert [needle for needle in (*NEEDLES, "canary") if needle in clean] == [], clean


@pytest.mark.parametrize(
    "text",
    [
        "check OPENAI_API_KEY or AZURE_OPENAI_API_KEY",
        "http://127.0.0.1:5000/v1/responses",
        "password authentication failed for user admin",
        "turn 0123456789abcdef0123456789abcdef: call call_1 of tool pay",
        "Previous response with id 'resp_0123456789abcdef' not found.",
        "Expected container_id: cntr_0123456789abcdef",
        "the token = is wrong at line 1 column 2",
        "the fields ['password', 'email'] are missing",
        "a cookie: chocolate, 2 pieces",
        "max_token='12345678', model=x",
        "the key, 'name1', is missing; code=404; code: 404",
        "MAX_TOKENS=128000 SORT_KEY=created_at PRIMARY_KEY=42",
        "use --password to log in, --max-tokens 4096 --key 2 --pad-token 50256",
        "the password is case-sensitive; the password was changed to another",
        "docker run -u 1000:1000 x; curl -su https://x:8080/",
        "<token>next1</token><key>Name1</key><signature>\n  <value/></signature><secret/>",
        "first_pass=1 two-pass: 2, PASS: 12 tests; login as root password",
        "fw_configuration_of_the_device xai-release-notes-and-more gsk_shared_configuration",
        '{"key": "Images/Photo2024Large.png", "next_token": 12345678, "token": "next-page"}',
        "design=1 compass: 2 <passage id='1'> monkey=banana1234",
        "see https://example.com/users/someone@example.com",
    ],
)
def test_what_is_no_secret_stays(text):
    """A message keeps its meaning."""
    assert without_secrets(text) == text


def test_the_app_s_own_secrets_are_taken_out_wherever_they_stand():
    """By the names of settings, and out of connection strings; ordinary words are no secrets."""
    found = secrets_of_settings(
        {
            "PAYMENT_API_KEY": "own+key/4711",
            "DATABASE_URL": "mysql://root:rootpw99@db/x",
            "MODE_KEY": "production",
            "HOME": "/srv/someone",
            "PWD": "/srv/app1",
            "OLDPWD": "/srv/app2",
            "DB_PWD": "dbpw-4712",
        }
    )
    learn_secrets(found)
    assert (
        without_secrets("sent own+key/4711 and own%2Bkey%2F4711 and rootpw99") == f"sent {MASK} and {MASK} and {MASK}"
    )
    assert without_secrets("/srv/app1, /srv/app2, dbpw-4712") == f"/srv/app1, /srv/app2, {MASK}"
    assert without_secrets("in production, /srv/someone") == "in production, /srv/someone"


@pytest.mark.parametrize("secret", ["own+key/4711=", "0123456789abcdef0123", 'a"b<c>\\d&e/f+g', "schl\u00fcssel-4711"])
def test_the_app_s_own_secrets_are_taken_out_however_they_are_quoted(secret):
    """A service that has read a header may quote it as it was encoded on its way, or encode it itself."""
    learn_secrets([secret])
    data = secret.encode()
    said = [
        *(quote(secret), quote(secret, safe=""), quote(quote(secret, safe="")), quote_plus(secret)),
        *(re.sub("%..", lambda found: found[0].lower(), quote(secret, safe="")), html.escape(secret), data.hex()),
        *(json.dumps(secret), json.dumps(secret, ensure_ascii=False), json.dumps(secret).replace("/", "\\/")),
        *(base64.b64encode(start + data + b" and more").decode() for start in (b"", b"x", b"Bearer ", b"ab")),
        *(base64.urlsafe_b64encode(start + data).decode() for start in (b"", b"x", b"ab")),
    ]
    for one in said:
        clean = without_secrets(f"refused: {one}")
        assert MASK in clean
        assert secret[1:-1] not in clean
        assert one not in clean


def test_errors_carry_no_secret():
    """Neither ours nor those of others, whoever shows them."""
    assert "hunter2" not in str(ProviderError("refused redis://:hunter2@h", retryable=False))
    assert "hunter2" not in error_details(ValueError("refused redis://:hunter2@h"))["message"]
    assert len(error_details(ValueError("x" * 10_000_000))["message"]) == 600


def test_log_lines_carry_no_secret(caplog: pytest.LogCaptureFixture):
    """In the text, in its arguments and in the traceback; other lines are as they were."""
    before = logging.getLogRecordFactory()
    keep_secrets_out_of_logs()
    keep_secrets_out_of_logs()
    try:
        log = logging.getLogger("anybody")
        log.warning("a %s", "redis://:hunter2@h")
        log.warning("b redis://:hunter2@h %d", 1)
        try:
            int("redis://:hunter2@h")
        except ValueError:
            log.exception("c")
        log.warning("d %s %s", "e", 1)
    finally:
        logging.setLogRecordFactory(before)
    assert "hunter2" not in caplog.text
    assert f"redis://:{MASK}@h" in caplog.text
    assert "ValueError" in caplog.text
    assert caplog.records[-1].args == ("e", 1)


def test_nobody_writes_a_log_line_of_their_own(caplog: pytest.LogCaptureFixture):
    """Control characters in messages and in what exceptions say are escaped; tracebacks keep their lines."""
    forged = "x\n2026-11-24 ERROR FORGED \x1b[31m\r\u2028FORGED\x85\u202eFORGED\ty"
    before = logging.getLogRecordFactory()
    keep_secrets_out_of_logs()
    try:
        log = logging.getLogger("anybody")
        log.warning("call %s: %s", forged, ValueError(forged))
        log.warning(forged)
        try:
            try:
                raise ExceptionGroup(forged, [ValueError(forged)])  # noqa: TRY301 - it needs a traceback
            except ExceptionGroup as error:
                error.add_note(forged)
                raise RuntimeError(forged) from error
        except RuntimeError:
            log.exception("failed")
    finally:
        logging.setLogRecordFactory(before)
    text = caplog.text
    assert not any(one in text for one in "\x1b\r\u2028\x85\u202e")
    assert [line for line in text.split("\n") if line.lstrip(" |").startswith("2026")] == []
    assert text.count(r"x\n2026-11-24 ERROR FORGED \x1b[31m\r\u2028FORGED\x85\u202eFORGED") == 7
    assert 'File "' in text


def test_an_error_about_a_request_quotes_little_of_it():
    """It begins with what is wrong, and ends with what to do."""
    said = str(RequestError(f"'status' has {'a.' * 6000} ://x@: use completed"))
    assert len(said) < 900
    assert said.startswith("'status' has a.a.")
    assert said.endswith("@: use completed")
