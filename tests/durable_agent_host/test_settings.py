"""Settings from the environment."""

import dataclasses
import json

import pytest

from durable_agent_host.errors import SettingError
from durable_agent_host.settings import PREFIX, Settings
from tests.kit import ROOT

NAMES = [
    field.name for field in dataclasses.fields(Settings) if isinstance(getattr(Settings(), field.name), int | float)
]
MAY_BE_ZERO = {"session_ttl_seconds", "requests_per_second", "kept_call_bytes"}


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
@pytest.mark.parametrize("value", ["0", "-1", "many", "nan", "inf", "1,5", "0x10"])
def test_a_value_without_meaning_is_refused_by_name(name, value):
    """The error names the variable, the value and what to set."""
    with pytest.raises(SettingError, match=rf"{PREFIX}{name.upper()} is '{value}'; set it to a number above 0"):
        Settings.from_environment({PREFIX + name.upper(): value})


@pytest.mark.parametrize("field", sorted(MAY_BE_ZERO))
@pytest.mark.parametrize("value", ["-1", "many", "nan", "inf"])
def test_what_may_be_zero_is_taken(value, field):
    """Zero is no limit, or nothing kept; what is less or no number is refused."""
    name = PREFIX + field.upper()
    assert getattr(Settings.from_environment({name: "0"}), field) == 0
    with pytest.raises(SettingError, match=rf"{name} is '{value}'; set it to a number of 0 or more"):
        Settings.from_environment({name: value})


def test_a_schedule_has_six_fields_or_is_off():
    """What a timer trigger of Azure cannot take is refused at the start."""
    name = PREFIX + "MAINTENANCE_SCHEDULE"
    for right in ("30 0 3 * * 1-5", "off"):
        assert Settings.from_environment({name: f" {right} "}).maintenance_schedule == right
    for wrong in ("00:15:00", "*/15 * * * *", "never"):
        with pytest.raises(SettingError, match=name):
            Settings.from_environment({name: wrong})


@pytest.mark.parametrize("name", [name for name in NAMES if isinstance(getattr(Settings(), name), int)])
def test_counts_are_whole_numbers_above_zero(name):
    """A count between 0 and 1 is not rounded down to none."""
    with pytest.raises(SettingError, match=name.upper()):
        Settings.from_environment({PREFIX + name.upper(): "0.5"})


def test_the_sample_names_every_setting():
    """local.settings.sample.json has every variable that the code reads."""
    sample = json.loads((ROOT / "local.settings.sample.json").read_text())["Values"]
    assert {PREFIX + name.upper() for name in NAMES} <= set(sample)


def test_a_turn_log_is_named_by_a_text():
    """The store of turn logs is a text, without blanks around it."""
    assert (
        Settings.from_environment({PREFIX + "TURN_LOG": " sqlite:/data/log.sqlite "}).turn_log
        == "sqlite:/data/log.sqlite"
    )


def test_a_person_may_not_take_longer_than_a_turns_log_is_kept():
    """An approval timeout over the retention is refused at the start, with both settings named."""
    given = {PREFIX + "APPROVAL_TIMEOUT_SECONDS": "7200", PREFIX + "TURN_LOG_RETENTION_HOURS": "1"}
    with pytest.raises(SettingError, match=r"APPROVAL_TIMEOUT_SECONDS is 7200.*TURN_LOG_RETENTION_HOURS"):
        Settings.from_environment(given)
    assert (
        Settings.from_environment(given | {PREFIX + "TURN_LOG_RETENTION_HOURS": "2"}).approval_timeout_seconds == 7200
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DURABLE_AGENT_HOST_WAIT_SECOND", "DURABLE_AGENT_HOST_WAIT_SECONDS"),
        ("DURABLE_AGENT_HOST_MAX_QUEUE_TURNS", "DURABLE_AGENT_HOST_MAX_QUEUED_TURNS"),
        ("durable_agent_host_turnlog", "DURABLE_AGENT_HOST_TURN_LOG"),
        ("DURABLE_AGENT_HOST_", "DURABLE_AGENT_HOST_"),
        ("durable_agent_host_encryption_keys", "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"),
        ("DURABLE_AGENTS_HOST_ENCRYPTION_KEYS", "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"),
        ("DURABLE_AGENT_ENCRYPTION_KEYS", "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"),
        ("DURABLE_AGENTHOST_REQUESTS_PER_SECOND", "DURABLE_AGENT_HOST_REQUESTS_PER_SECOND"),
    ],
)
def test_a_misspelt_setting_is_named(name, meant):
    """A variable that looks like a setting and is none is named, with the nearest one that there is."""
    with pytest.raises(SettingError, match=name) as refused:
        Settings.from_environment({name: "1"})
    assert meant in str(refused.value)


def test_variables_of_others_are_not_looked_at():
    """A name that is like no setting is somebody else's, whatever it begins with."""
    others = ("DURABLE_TASK_SCHEDULER_CONNECTION_STRING", "AGENT_HOST", "DURABLE_AGENT_NAME", "MY_AGENT_WAIT_SECONDS")
    assert Settings.from_environment(dict.fromkeys(others, "1")) == Settings()


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("encryption_plaintext", "Refuse", "'read' or 'refuse'"),
        ("session_names", "Own", "'shared' or 'own'"),
        ("adopt_sessions", "nobdy", "'anybody' or 'nobody' or 'role:NAME'"),
        ("adopt_sessions", None, "'anybody' or 'nobody' or 'role:NAME'"),
        ("encryption_keys", None, "a text"),
        ("requests_per_second", "5", "a number of 0 or more"),
        ("requests_per_second", -1, "a number of 0 or more"),
        ("max_queued_turns", 2.5, "a whole number above 0"),
        ("wait_seconds", True, "a number above 0"),
        ("wait_seconds", float("nan"), "a number above 0"),
    ],
)
def test_settings_that_a_program_makes_are_held_to_the_same(name, value, meant):
    """A value without meaning is told, and does not quietly count as the default."""
    with pytest.raises(SettingError, match=rf"Settings\.{name} is .*: give {meant}"):
        Settings(**{name: value})
    assert Settings(adopt_sessions="role:desk").adopt_sessions == "role:desk"
