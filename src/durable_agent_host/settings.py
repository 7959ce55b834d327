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
_ROLE = "role:"
_SCHEDULE_FIELDS: Final = "{second} {minute} {hour} {day} {month} {weekday}"
_NEARNESS_OF_OTHERS = 0.9
"""How similar an unprefixed variable must be to a setting to count as a mistake: one or two letters, or a word."""

_CHOICES = {
    "adopt_sessions": (ANYBODY, NOBODY, _ROLE + "NAME"),
    "encryption_plaintext": (READ_PLAINTEXT, REJECT_PLAINTEXT),
}
_MAY_BE_ZERO = frozenset({"session_ttl_seconds", "kept_call_bytes"})


@dataclass(frozen=True)
class Settings(ResponseLimits):
    """The host's settings; each has the environment variable ``DURABLE_AGENT_HOST_<FIELD>``.

    The limits on a turn are in `durable_agent_host.model.turn`.

    Attributes:
        wait_seconds: how long ``run`` waits for the answer before it returns 504 with the turn's URL. Seconds,
            default 200: Azure's front end cuts a request at 230 s.
        max_request_bytes: largest body that ``run`` accepts; 413 above. Bytes, default 4 MiB: a text message
            with room to spare, and well under the 100 MB of the Functions host.
        max_upload_bytes: largest file that can be uploaded, and largest form that ``run`` accepts; 413 above. Bytes,
            default 32 MiB: the maximum of model services, and well under the 100 MB of the Functions host.
        max_queued_turns: how many turns of one session may wait; 429 above. Default 50: stops a client that retries in
            a loop before it fills the session.
        max_receipts: how many ended turns a session remembers, for clients that retry. Default 200.
        approval_timeout_seconds: how long a pending call waits for its answer. Seconds,
            default 518400 (6 days), at most the retention of a turn's log, which a waiting turn still needs.
        kept_call_bytes: bytes kept of one request to a model's service and of one answer; 0 keeps no model calls.
            Default 256 KiB.
        activity_attempts: maximum attempts at a turn's activity when it fails for reasons other than the agent,
            including the platform's, with pauses of 2 and 8 seconds; and after how many deaths of its process in a row
            a turn fails that has finished no call between. Default 3.
        crash_retry_seconds: how long a turn waits, and others go first, after the second of these deaths and later
            ones; half of it is random. Seconds, default 20.
        turn_timeout_seconds: how long an agent may work on a turn before the turn fails, with the waits that a model's
            service asks for; after a wait for answers and after a crash it counts anew. Seconds, default 1800: on
            Azure, ``functionTimeout`` of host.json must be longer.
        model_attempts: maximum attempts at a model call on transient failures: 429, 5xx, a broken connection. Default
            5; 1 for no retries.
        model_retry_seconds: the wait before the second attempt, half of it random; doubled each time. Seconds,
            default 0.5.
        model_retry_most_seconds: the longest wait in the process; if a service asks for a longer one, the turn waits
            without a process. Seconds, default 30.
        turn_log: where turns are logged while they run: ``sqlite:PATH``, ``blob`` (the app's storage account) or
            ``redis://…``. Empty, the default: a file beside the embedded host's own, else ``blob``.
        turn_log_retention_hours: how long a turn's log is kept after its last entry; after that, clients get only the
            answer. Hours, default 168 (7 days).
        segments: where older messages and large contents are stored: ``sqlite:PATH`` or ``blob`` (the app's storage
            account). Empty, the default: a file beside the embedded host's own, else ``blob``.
        encryption_keys: the first key encrypts stored data: ``ID=KEY``, several separated by commas; the others decrypt
            what they have encrypted. A key is 32 bytes in base64. Empty, the default: nothing is encrypted.
        encryption_plaintext: how an app with keys treats unencrypted stored values: ``read`` them as they are, or
            ``refuse``. Default ``read``, for data stored before there were keys.
        turn_retention_hours: how long the orchestration of an ended turn is kept; after that, the session's receipt
            answers for it. Hours, default 24: longer than a client waits.
        session_ttl_seconds: how long a session is kept after its last use, unless app or agent set another time.
            Seconds, default 0: for ever.
        piece_grace_seconds: how long a stored part of a conversation is kept that no session refers to: longer than a
            fork, a sweep, or a store failure during an import takes. Seconds, default 3600.
        maintenance_schedule: when expired sessions, ended turns and unreferenced blobs are deleted, as a timer
            trigger's schedule: six fields, or ``off``. Default every 15 minutes.
        adopt_sessions: who may take over sessions without an owner, in an app that identifies its callers:
            ``anybody``, ``nobody`` or ``role:NAME``. Default ``anybody``, for sessions older than owners.
        max_arriving_bytes: how much of large bodies may be arriving at once in one process; 429 above. Bytes, default
            256 MiB: eight of the largest uploads.
        notify_secret: signs the notifications that are sent to a URL: ``whsec_`` and base64; several
            separated by commas, while a receiver changes from one to another. Empty, the default, for apps
            that notify no URL.
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
