"""Settings from the environment."""

import dataclasses
from datetime import UTC, datetime

import pytest

from durable_agent_host.errors import SettingError
from durable_agent_host.settings import PREFIX, Settings
from ncrontab import parse_schedule

NAMES = [
    field.name for field in dataclasses.fields(Settings) if isinstance(getattr(Settings(), field.name), int | float)
]
MAY_BE_ZERO = {"session_ttl_seconds", "kept_call_bytes"}


def test_without_settings_the_defaults_hold():
    """An empty environment gives the documented defaults; blanks count as not set."""
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({PREFIX + "WAIT_SECONDS": " "}) == Settings()


@pytest.mark.parametrize("name", NAMES)
def test_every_field_has_its_variable(name):
    """Each field is read from the variable of its name, and keeps its type."""
    read = Settings.from_environment({PREFIX + name.upper(): "7"})
    assert dataclasses.asdict(read) == dataclasses.asdict(Settings()) | {name: 7}
    assert type(getattr(read, name)) is type(getattr(Settings(), name))


@pytest.mark.parametrize("name", [name for name in NAMES if name not in MAY_BE_ZERO])
def test_an_invalid_value_is_rejected_by_name(name):
    """The error names the variable, the value and what to set."""
    for value in ("0", "-1", "many", "nan", "inf", "1,5", "0x10"):
        message = rf"{PREFIX}{name.upper()} is '{value}'; set it to a (whole )?number above 0"
        with pytest.raises(SettingError, match=message):
            Settings.from_environment({PREFIX + name.upper(): value})


@pytest.mark.parametrize("field", sorted(MAY_BE_ZERO))
def test_zero_is_accepted_where_it_is_valid(field):
    """Zero is no limit, or nothing kept; what is less or no number is refused."""
    name = PREFIX + field.upper()
    assert getattr(Settings.from_environment({name: "0"}), field) == 0
    for value in ("-1", "many", "nan", "inf"):
        with pytest.raises(SettingError, match=rf"{name} is '{value}'; set it to a (whole )?number of 0 or more"):
            Settings.from_environment({name: value})


def test_a_schedule_has_six_fields_or_is_off():
    """What a timer trigger of Azure cannot take is refused at the start."""
    name = PREFIX + "MAINTENANCE_SCHEDULE"
    for right in ("30 0 3 * * 1-5", "off"):
        assert Settings.from_environment({name: f" {right} "}).maintenance_schedule == right
    for wrong in ("00:15:00", "*/15 * * * *", "never", "0 */15 * * * * *"):
        with pytest.raises(SettingError, match=f"{name}.*instead of 6"):
            Settings.from_environment({name: wrong})


RIGHT_SCHEDULES = [
    *("0 */15 * * * *", "0,30 0-10/5 0-23 1 1 0", "0 0 3 * JAN-mar,December Mon-Fri", "05 5/10 * 31 1,2 sat"),
    *("0 0 0 29 2 6", "59 59 23 28-31 Sept *", "*/61 * * * * *", "30-10 * * * * FRI-MON"),
]
WRONG_SCHEDULES = [
    ("0 */15 * * * MON-XX", "weekday field has 'XX'"),
    ("0 */15 * * * MON-XXX", "weekday field has 'XXX'"),
    ("0 */15 * * * 7", "weekday field has '7': values are numbers of 0 to 6 and names such as 'MON'"),
    ("0 */15 * * JANU,FOO *", "month field has 'FOO'"),
    ("0 */15 * * 0 *", "month field has '0'"),
    ("60 * * * * *", "second field has '60'"),
    ("0 60 * * * *", "minute field has '60'"),
    ("0 0 0-24 * * *", "hour field has '24'"),
    ("0 0 0 0 * *", "day field has '0'"),
    ("0 0 0 L * *", "day field has 'L'"),
    ("0 */0 * * * *", "minute field has the step '0'"),
    ("0 */ * * * *", "minute field has the step '' in '\\*/'"),
    ("0 */x * * * *", "minute field has the step 'x'"),
    ("0 1-5-7 * * * *", "minute field has '5-7'"),
    ("0 1, * * * *", "minute field has ''"),
    ("0 *-5 * * * *", "minute field has '\\*'"),
    ("0 -5 * * * *", "minute field has ''"),
    ("0 ? * * * *", "minute field has '\\?'"),
    ("0 MON * * * *", "minute field has 'MON'"),
    ("0 \u0663 * * * *", "minute field has"),
    ("0 0 0 30,31 FEB *", "no occurrence"),
    ("0 0 0 31 4,6 *", "no occurrence"),
]


@pytest.mark.parametrize("text", RIGHT_SCHEDULES)
def test_a_valid_schedule_is_accepted(text):
    """The embedded host reads what the check lets through."""
    assert Settings.from_environment({PREFIX + "MAINTENANCE_SCHEDULE": text}).maintenance_schedule == text
    assert Settings(maintenance_schedule=text).maintenance_schedule == text
    assert parse_schedule(text).next_after(datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(("text", "problem"), WRONG_SCHEDULES)
def test_an_invalid_schedule_is_reported(text, problem):
    """Each field is checked, of the environment and of a program, and the error names the field and the reason."""
    with pytest.raises(SettingError, match=rf"{PREFIX}MAINTENANCE_SCHEDULE is .*{problem}.*leave it out"):
        Settings.from_environment({PREFIX + "MAINTENANCE_SCHEDULE": text})
    with pytest.raises(SettingError, match=rf"Settings\.maintenance_schedule is .*{problem}"):
        Settings(maintenance_schedule=text)


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(getattr(Settings(), name), int)])
def test_counts_are_whole_numbers_above_zero(name):
    """A count between 0 and 1 is not rounded down to none."""
    with pytest.raises(SettingError, match=name.upper()):
        Settings.from_environment({PREFIX + name.upper(): "0.5"})


def test_a_turn_log_is_named_by_a_text():
    """The store of turn logs is a string; surrounding blanks are removed."""
    assert (
        Settings.from_environment({PREFIX + "TURN_LOG": " sqlite:/data/log.sqlite "}).turn_log
        == "sqlite:/data/log.sqlite"
    )


def test_the_approval_timeout_is_below_the_log_retention():
    """An approval timeout over the retention is refused at the start, with both settings named."""
    environment = {PREFIX + "APPROVAL_TIMEOUT_SECONDS": "7200", PREFIX + "TURN_LOG_RETENTION_HOURS": "1"}
    with pytest.raises(SettingError, match=r"APPROVAL_TIMEOUT_SECONDS is 7200.*TURN_LOG_RETENTION_HOURS"):
        Settings.from_environment(environment)
    assert (
        Settings.from_environment(environment | {PREFIX + "TURN_LOG_RETENTION_HOURS": "2"}).approval_timeout_seconds
        == 7200
    )


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("DURABLE_AGENT_HOST_WAIT_SECOND", "DURABLE_AGENT_HOST_WAIT_SECONDS"),
        ("DURABLE_AGENT_HOST_MAX_QUEUE_TURNS", "DURABLE_AGENT_HOST_MAX_QUEUED_TURNS"),
        ("durable_agent_host_turnlog", "DURABLE_AGENT_HOST_TURN_LOG"),
        ("DURABLE_AGENT_HOST_", "DURABLE_AGENT_HOST_"),
        ("durable_agent_host_encryption_keys", "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"),
        ("DURABLE_AGENTS_HOST_ENCRYPTION_KEYS", "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"),
        ("DURABLE_AGENT_ENCRYPTION_KEYS", "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"),
        ("DURABLE_AGENTHOST_KEPT_CALL_BYTES", "DURABLE_AGENT_HOST_KEPT_CALL_BYTES"),
    ],
)
def test_a_misspelt_setting_is_named(name, suggestion):
    """A variable that looks like a setting and is none is named, with the nearest one that there is."""
    with pytest.raises(SettingError, match=name) as error_info:
        Settings.from_environment({name: "1"})
    assert suggestion in str(error_info.value)


def test_unrelated_variables_are_ignored():
    """A name that resembles no setting is ignored, regardless of its prefix."""
    names = ("DURABLE_TASK_SCHEDULER_CONNECTION_STRING", "AGENT_HOST", "DURABLE_AGENT_NAME", "MY_AGENT_WAIT_SECONDS")
    assert Settings.from_environment(dict.fromkeys(names, "1")) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "requirement"),
    [
        ("encryption_plaintext", "Refuse", "'read' or 'refuse'"),
        ("adopt_sessions", "nobdy", "'anybody' or 'nobody' or 'role:NAME'"),
        ("adopt_sessions", None, "'anybody' or 'nobody' or 'role:NAME'"),
        ("encryption_keys", None, "a text"),
        ("session_ttl_seconds", "5", "a number of 0 or more"),
        ("session_ttl_seconds", -1, "a number of 0 or more"),
        ("max_queued_turns", 2.5, "a whole number above 0"),
        ("wait_seconds", True, "a number above 0"),
        ("wait_seconds", float("nan"), "a number above 0"),
    ],
)
def test_settings_from_code_are_validated_too(name, value, requirement):
    """An invalid value is reported, and does not silently become the default."""
    with pytest.raises(SettingError, match=rf"Settings\.{name} is .*: give {requirement}"):
        Settings(**{name: value})
    assert Settings(adopt_sessions="role:desk").adopt_sessions == "role:desk"
