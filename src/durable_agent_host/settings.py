"""The operator's settings, read from the environment once, at start."""

import math
import os
from collections.abc import Collection, Mapping
from dataclasses import Field, dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Any, Final, Self

from durable_agent_host.errors import SettingError
from durable_agent_host.model.access import ANYBODY
from durable_agent_host.model.turn import ResponseLimits
from ncrontab import ScheduleError, parse_cron

PREFIX = "DURABLE_AGENT_HOST_"
NO_MAINTENANCE = "off"
NOBODY = "nobody"
READ_PLAINTEXT = "read"
REJECT_PLAINTEXT = "refuse"
ON = "on"
OFF = "off"
_ROLE = "role:"
_SCHEDULE_FIELDS: Final = "{second} {minute} {hour} {day} {month} {weekday}"
_NEARNESS_OF_OTHERS = 0.9
"""How similar an unprefixed variable must be to a setting to count as a mistake: one or two letters, or a word."""

_CHOICES = {
    "adopt_sessions": (ANYBODY, NOBODY, _ROLE + "NAME"),
    "encryption_plaintext": (READ_PLAINTEXT, REJECT_PLAINTEXT),
    "openai": (ON, OFF),
    "agui": (ON, OFF),
    "aisdk": (ON, OFF),
    "mcp": (ON, OFF),
}
_MAY_BE_ZERO = frozenset({"session_ttl_seconds", "kept_call_bytes"})


@dataclass(frozen=True)
class Settings(ResponseLimits):
    """The host's settings; each has the environment variable ``DURABLE_AGENT_HOST_<FIELD>``.

    The limits on a turn are in `durable_agent_host.model.turn`.

    Attributes:
        wait_seconds: how long ``run`` waits for the answer before it returns 504 with the turn's URL; Azure's front end
            cuts a request at 230 s.
        max_request_bytes: the largest request body that is not a form; 413 above.
        max_upload_bytes: the largest upload, and the largest form of ``run``; 413 above.
        max_queued_turns: how many turns of one session may wait; 429 above.
        max_receipts: how many ended turns a session remembers, for clients that retry.
        approval_timeout_seconds: how long a pending call waits for its answer; at most the retention of the turn log.
        kept_call_bytes: how much is kept of each request to a model's service and of each answer; 0 keeps nothing.
        activity_attempts: the most attempts at a turn when the platform fails; and after how many deaths of its process
            in a row, without a finished call between, a turn fails.
        crash_retry_seconds: how long a turn waits, and others go first, after the second death of its process in a row
            and later ones; half of it is random.
        turn_timeout_seconds: how long an agent may work on a turn, with the waits that a model's service asks for; a
            wait for a person does not count. ``functionTimeout`` of ``host.json`` must be longer.
        model_attempts: the most attempts at a model call on 429, 5xx or a broken connection; 1 for no retries.
        model_retry_seconds: the wait before the second attempt, half of it random; doubled each time.
        model_retry_most_seconds: the longest wait in the process; if a service asks for a longer one, the turn is
            postponed.
        turn_log: where turns are logged while they run: ``sqlite:PATH``, ``blob`` (the app's storage account) or
            ``redis://…`` (extra ``redis``). By default a file next to the embedded host's own, otherwise ``blob``.
        turn_log_retention_hours: how long the log of a turn is kept after its last entry, with its events, steps and
            model calls.
        segments: where older messages and large contents are stored: ``sqlite:PATH`` or ``blob`` (the app's storage
            account). By default a file next to the embedded host's own, otherwise ``blob``.
        encryption_keys: keys that encrypt stored data: ``ID=KEY``, several separated by commas; the first encrypts. A
            key is 32 bytes in base64. By default nothing is encrypted.
        encryption_plaintext: how an app with keys treats unencrypted stored data: ``read`` or ``refuse``.
        turn_retention_hours: how long the orchestration of an ended turn is kept; the session's receipt answers for the
            turn afterwards.
        session_ttl_seconds: how long a session is kept after its last use, 0 for ever, unless the app or the agent sets
            another time.
        piece_grace_seconds: how long stored data to which no session refers are kept: longer than a fork takes, and
            than an import may pause.
        maintenance_schedule: when expired data are deleted: ``{second} {minute} {hour} {day} {month} {weekday}``, or
            ``off``.
        adopt_sessions: for whom sessions without an owner exist, in an app that identifies its callers: ``anybody``,
            ``nobody`` or ``role:NAME``.
        max_arriving_bytes: how many bytes of large bodies may be arriving at one process, without the first 64 KiB of
            each; 429 above.
        notify_secret: signs notifications that are sent to a URL, which need it: ``whsec_`` and base64; several
            separated by commas.
        openai: whether clients of OpenAI's Responses API are served: ``on`` or ``off``.
        agui: whether clients of AG-UI are served: ``on`` or ``off``.
        aisdk: whether clients of the AI SDK are served: ``on`` or ``off``.
        mcp: whether clients of MCP are served at ``/api/mcp``: ``on`` or ``off``.
    """

    wait_seconds: float = 200.0
    max_request_bytes: int = 4 * 1024 * 1024
    max_upload_bytes: int = 32 * 1024 * 1024
    max_queued_turns: int = 50
    max_receipts: int = 200
    approval_timeout_seconds: float = 6 * 24 * 3600.0
    kept_call_bytes: int = 256 * 1024
    activity_attempts: int = 3
    crash_retry_seconds: float = 20.0
    turn_timeout_seconds: float = 1800.0
    model_attempts: int = 5
    model_retry_seconds: float = 0.5
    model_retry_most_seconds: float = 30.0
    turn_log: str = ""
    turn_log_retention_hours: float = 168.0
    segments: str = ""
    encryption_keys: str = field(default="", repr=False)
    encryption_plaintext: str = READ_PLAINTEXT
    turn_retention_hours: float = 24.0
    session_ttl_seconds: float = 0.0
    piece_grace_seconds: float = 3600.0
    maintenance_schedule: str = "0 */15 * * * *"
    adopt_sessions: str = ANYBODY
    max_arriving_bytes: int = 256 * 1024 * 1024
    notify_secret: str = field(default="", repr=False)
    openai: str = ON
    agui: str = ON
    aisdk: str = ON
    mcp: str = ON

    def __post_init__(self) -> None:
        """Refuse invalid values in settings that a program creates."""
        for setting in fields(self):
            value = getattr(self, setting.name)
            if expectation := _expected_instead(setting, value):
                raise SettingError(f"Settings.{setting.name} is {value!r}: give {expectation}")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Read the settings.

        Args:
            environment: variable names to values; a name close to a setting's is treated as a misspelling.

        Returns:
            The settings, with defaults for those not set.

        Raises:
            SettingError: a value is not a number above zero, a count is not a whole number, the approval timeout
                exceeds the retention of a turn's log, or a name is not a setting's.
        """
        _reject_unknown(environment, {PREFIX + setting.name.upper() for setting in fields(cls)})
        values: dict[str, Any] = {}
        for setting in fields(cls):
            variable = PREFIX + setting.name.upper()
            if not (text := environment.get(variable, "").strip()):
                continue
            values[setting.name] = _parse(text, setting.default)
            if expectation := _expected_instead(setting, values[setting.name]):
                raise SettingError(
                    f"{variable} is {text!r}; set it to {expectation}, or leave it out for {setting.default!r}"
                )
        settings = cls(*(values.get(setting.name, setting.default) for setting in fields(cls)))
        retention_seconds = settings.turn_log_retention_hours * 3600
        if "approval_timeout_seconds" in values and settings.approval_timeout_seconds > retention_seconds:
            raise SettingError(
                f"{PREFIX}APPROVAL_TIMEOUT_SECONDS is {settings.approval_timeout_seconds:.12g}, and a turn's log is "
                f"kept for {retention_seconds:g} s: set it to at most that, or raise {PREFIX}TURN_LOG_RETENTION_HOURS"
            )
        if settings.encryption_plaintext == REJECT_PLAINTEXT and not settings.encryption_keys:
            raise SettingError(
                f"{PREFIX}ENCRYPTION_PLAINTEXT is {REJECT_PLAINTEXT!r}, and nothing is encrypted: "
                f"set {PREFIX}ENCRYPTION_KEYS, or leave it out"
            )
        return settings


def _parse(text: str, default: Any) -> str | float:
    """Parse a value of the default's type; NaN when it is not a number."""
    if isinstance(default, str):
        return text
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return int(number) if isinstance(default, int) and number.is_integer() else number


def _expected_instead(setting: Field[Any], value: Any) -> str:
    """Describe the values of a setting, when this is not one of them; empty when it is."""
    if (choices := _CHOICES.get(setting.name)) is not None:
        is_choice = value in choices or (ANYBODY in choices and _is_role(value))
        return "" if is_choice else " or ".join(map(repr, choices))
    if isinstance(setting.default, str):
        if not isinstance(value, str):
            return "a text"
        problem = _problem_of_schedule(value) if setting.name == "maintenance_schedule" else ""
        return problem and f"{_SCHEDULE_FIELDS!r} or {NO_MAINTENANCE!r} ({problem})"
    may_be_zero = setting.name in _MAY_BE_ZERO
    is_integer = isinstance(setting.default, int)
    is_number = isinstance(value, int if is_integer else int | float) and not isinstance(value, bool)
    if is_number and (0 < value < math.inf or (value == 0 and may_be_zero)):
        return ""
    return f"a {'whole number' if is_integer else 'number'} {'of 0 or more' if may_be_zero else 'above 0'}"


def _reject_unknown(environment: Mapping[str, str], known_names: Collection[str]) -> None:
    for name in sorted(environment):
        has_prefix = name.upper().startswith(PREFIX)
        if name not in known_names and (has_prefix or "AGENT" in name.upper()):
            nearness = 0.5 if has_prefix else _NEARNESS_OF_OTHERS
            similar = get_close_matches(name.upper(), sorted(known_names), n=1, cutoff=nearness)
            if not has_prefix and not similar:
                continue
            hint = f"did you mean {similar[0]}?" if similar else f"there are {', '.join(sorted(known_names))}"
            raise SettingError(f"there is no setting {name}: {hint} Correct it, or remove it")


def _is_role(text: object) -> bool:
    return isinstance(text, str) and text.startswith(_ROLE) and text != _ROLE


def _problem_of_schedule(text: str) -> str:
    if text == NO_MAINTENANCE:
        return ""
    try:
        parse_cron(text).next_after(datetime.now(UTC))
    except ScheduleError as error:
        return str(error)
    return ""
