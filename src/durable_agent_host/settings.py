"""The operator's settings, read from the environment once, at start."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Final

from durable_agent_host.errors import SettingError
from durable_agent_host.model.turn import RecordingLimits, ResponseLimits
from ncrontab import ScheduleError, parse_cron

PREFIX = "DURABLE_AGENT_HOST_"
NO_MAINTENANCE = "off"
ANYBODY = "anybody"
NOBODY = "nobody"
SHARED_NAMES = "shared"
OWN_NAMES = "own"
READ_PLAINTEXT = "read"
REJECT_PLAINTEXT = "refuse"
_ROLE = "role:"
_SCHEDULE_FIELDS: Final = "{second} {minute} {hour} {day} {month} {weekday}"
_NEARNESS_OF_OTHERS = 0.9
"""How similar an unprefixed variable must be to a setting to count as a mistake: one or two letters, or a word."""

_FOR_TESTS = frozenset({PREFIX + "CRASH"})
_BOUNDS = (
    *("max_answer_bytes", "max_line_bytes", "max_turn_bytes", "max_model_calls", "max_calls_at_once"),
    *("max_argument_bytes", "max_tool_result_bytes", "max_stream_readers", "max_arriving_bytes"),
    "max_reads_at_once",
)
_CHOICES = {
    "adopt_sessions": (ANYBODY, NOBODY, _ROLE + "NAME"),
    "session_names": (SHARED_NAMES, OWN_NAMES),
    "encryption_plaintext": (READ_PLAINTEXT, REJECT_PLAINTEXT),
}
_MAY_BE_ZERO = frozenset({"session_ttl_seconds", "requests_per_second", "kept_call_bytes"})


@dataclass(frozen=True)
class Settings:
    """The host's settings; each has the environment variable ``DURABLE_AGENT_HOST_<FIELD>``.

    Attributes:
        wait_seconds: how long ``run`` waits for the answer before it returns 504 with the turn's URL. Seconds,
            default 200: Azure's front end cuts a request at 230 s.
        max_request_bytes: largest body that ``run`` accepts; 413 above. Bytes, default 4 MiB: a text message
            with room to spare, and well under the 100 MB of the Functions host.
        max_upload_bytes: largest file that can be uploaded, and largest form that ``run`` accepts; 413 above. Bytes,
            default 32 MiB: the maximum of model services, and well under the 100 MB of the Functions host.
        max_import_bytes: largest document that ``import`` accepts; 413 above. Bytes, default 1 GiB: it is streamed, and
            the host may have a smaller limit of its own.
        max_queued_turns: how many turns of one session may wait; 429 above. Default 50: stops a client that retries in
            a loop before it fills the session.
        max_receipts: how many ended turns a session remembers, for clients that retry. Default 200.
        receipt_seconds: how long it remembers them. Seconds, default 604800 (7 days): longer than clients retry.
        lease_seconds: how long a waiting turn trusts that the turn before it is alive, before it checks. Seconds,
            default 30: a turn that an operator terminated blocks its session no longer; checking is cheap.
        approval_timeout_seconds: how long a person may take to approve a tool call before it is denied. Seconds,
            default 518400 (6 days), at most the retention of a turn's log, which a waiting turn still needs.
        activity_attempts: maximum attempts at a turn's activity when it fails for reasons other than the agent,
            including the platform's. Default 3, with pauses of 2 and 8 seconds.
        turn_timeout_seconds: how long an agent may work on one attempt of a turn before the turn fails. Seconds,
            default 1800: on Azure, ``functionTimeout`` of host.json must be longer.
        model_attempts: maximum attempts at a model call on transient failures: 429, 5xx, a broken connection. Default
            5; 1 for no retries.
        model_retry_seconds: the wait before the second attempt, half of it random; doubled each time. Seconds,
            default 0.5.
        model_retry_most_seconds: the longest wait; a service that asks for a longer one fails the turn. Seconds,
            default 30.
        turn_log: where turns are logged while they run: ``sqlite:PATH``, ``blob`` (the app's storage account) or
            ``redis://…``. Empty, the default: a file beside the embedded host's own, else ``blob``.
        turn_log_retention_hours: how long a turn's log is kept after its last entry; after that, clients get only the
            answer. Hours, default 168 (7 days).
        kept_call_bytes: how much of one request to a model's service, and of one answer, is kept in the turn's log;
            compressed. Bytes, default 256 KiB; 0 keeps nothing.
        kept_turn_bytes: how much of all of them is kept in one attempt of a turn. Bytes, default 1 MiB.
        segments: where older messages and large contents are stored: ``sqlite:PATH`` or ``blob`` (the app's storage
            account). Empty, the default: a file beside the embedded host's own, else ``blob``.
        encryption_keys: the first key protects the data keys that encrypt stored data: ``ID=KEY``, several separated by
            commas; the others decrypt what they protected. A key is 32 bytes in base64, or the URL of a key of Azure
            Key Vault. Empty, the default: nothing is encrypted.
        encryption_plaintext: how an app with keys treats unencrypted stored values: ``read`` them as they are, or
            ``refuse``. Default ``read``, for data stored before there were keys.
        turn_retention_hours: how long the orchestration of an ended turn is kept; after that, the session's receipt
            answers for it. Hours, default 24: longer than a client waits, and days less than a receipt lasts.
        session_ttl_seconds: how long a session is kept after its last use, unless app or agent set another time.
            Seconds, default 0: for ever.
        piece_grace_seconds: how long a stored part of a conversation is kept that no session refers to: longer than a
            fork, a sweep, or a store failure during an import takes. Seconds, default 3600.
        maintenance_schedule: when expired sessions, ended turns and unreferenced pieces are deleted, as a timer
            trigger's schedule: six fields, or ``off``. Default every 15 minutes.
        adopt_sessions: who may take over sessions without an owner, in an app that identifies its callers:
            ``anybody``, ``nobody`` or ``role:NAME``. Default ``anybody``, for sessions older than owners.
        session_names: in an app that identifies its callers, what happens when a client chooses a session id that
            somebody else has taken: ``shared``, the default, refuses it as a session that does not exist; ``own``
            begins another session, so that nobody learns that the id is taken.
        stream_heartbeat_seconds: maximum silence on a stream of events. Seconds, default 15: proxies commonly give up
            after 30 or 60.
        max_answer_bytes, max_line_bytes, max_turn_bytes, answer_seconds, max_model_calls, max_calls_at_once,
        max_argument_bytes, max_tool_result_bytes: limits on a turn; see `ResponseLimits`, which has the defaults.
        max_stream_readers: how many clients may follow one turn's events in one process; 429 above. Default 100.
        max_arriving_bytes: how much of the large bodies of one principal may be arriving at once in one process; 429
            above. Bytes, default 256 MiB: eight of the largest uploads.
        max_reads_at_once: how many requests of one kind work at once for one principal in one process, of those that
            list or read sessions, turns and files; others wait in order. Default 4: a caller who asks for much delays
            itself more than others.
        requests_per_second: limit per principal in one process; 429 above. Default 0: no limit, because without
            authentication all callers are one principal. Bursts of up to ten seconds' worth are allowed.
    """

    wait_seconds: float = 200.0
    max_request_bytes: int = 4 * 1024 * 1024
    max_upload_bytes: int = 32 * 1024 * 1024
    max_import_bytes: int = 1024 * 1024 * 1024
    max_queued_turns: int = 50
    max_receipts: int = 200
    receipt_seconds: float = 7 * 24 * 3600.0
    lease_seconds: float = 30.0
    approval_timeout_seconds: float = 6 * 24 * 3600.0
    activity_attempts: int = 3
    turn_timeout_seconds: float = 1800.0
    model_attempts: int = 5
    model_retry_seconds: float = 0.5
    model_retry_most_seconds: float = 30.0
    turn_log: str = ""
    turn_log_retention_hours: float = 168.0
    kept_call_bytes: int = RecordingLimits.call_bytes
    kept_turn_bytes: int = RecordingLimits.turn_bytes
    segments: str = ""
    encryption_keys: str = field(default="", repr=False)
    encryption_plaintext: str = READ_PLAINTEXT
    turn_retention_hours: float = 24.0
    session_ttl_seconds: float = 0.0
    piece_grace_seconds: float = 3600.0
    maintenance_schedule: str = "0 */15 * * * *"
    adopt_sessions: str = ANYBODY
    session_names: str = SHARED_NAMES
    stream_heartbeat_seconds: float = 15.0
    max_answer_bytes: int = ResponseLimits.answer_bytes
    max_line_bytes: int = ResponseLimits.line_bytes
    max_turn_bytes: int = ResponseLimits.turn_bytes
    answer_seconds: float = ResponseLimits.answer_seconds
    max_model_calls: int = ResponseLimits.model_calls
    max_calls_at_once: int = ResponseLimits.calls_at_once
    max_argument_bytes: int = ResponseLimits.argument_bytes
    max_tool_result_bytes: int = ResponseLimits.tool_result_bytes
    max_stream_readers: int = 100
    max_arriving_bytes: int = 256 * 1024 * 1024
    max_reads_at_once: int = 4
    requests_per_second: float = 0.0

    def __post_init__(self) -> None:
        """Refuse invalid values in settings that a program creates."""
        for setting in fields(self):
            value = getattr(self, setting.name)
            choices = _CHOICES.get(setting.name)
            if choices is not None and value not in choices and not (ANYBODY in choices and _is_role(value)):
                raise SettingError(f"Settings.{setting.name} is {value!r}: give {_join_choices(choices)}")
            if isinstance(setting.default, str):
                if not isinstance(value, str):
                    raise SettingError(f"Settings.{setting.name} is {value!r}: give a text")
                if setting.name == "maintenance_schedule" and (problem := _problem_of_schedule(value)):
                    raise SettingError(f"Settings.{setting.name} is {value!r}, and {problem}")
                continue
            kinds = int if isinstance(setting.default, int) else (int, float)
            minimum = 0 if setting.name in _MAY_BE_ZERO else None
            if isinstance(value, bool) or not isinstance(value, kinds) or not _is_within(value, minimum):
                kind = "whole number" if kinds is int else "number"
                raise SettingError(f"Settings.{setting.name} is {value!r}: give a {kind} {_range(minimum)}")

    @property
    def recording_limits(self) -> RecordingLimits:
        """How much is kept of model calls."""
        return RecordingLimits(self.kept_call_bytes, self.kept_turn_bytes)

    @property
    def model_bounds(self) -> ResponseLimits:
        """Limits on a turn."""
        return ResponseLimits(
            answer_bytes=self.max_answer_bytes,
            line_bytes=self.max_line_bytes,
            turn_bytes=self.max_turn_bytes,
            answer_seconds=self.answer_seconds,
            model_calls=self.max_model_calls,
            calls_at_once=self.max_calls_at_once,
            argument_bytes=self.max_argument_bytes,
            tool_result_bytes=self.max_tool_result_bytes,
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> "Settings":
        """Read the settings.

        Args:
            environment: variable names to values; a name close to a setting's is treated as a misspelling.

        Returns:
            The settings, with defaults for those not set.

        Raises:
            SettingError: a value is not a number above zero, a count is not a whole number, the approval timeout
                exceeds the retention of a turn's log, or a name is not a setting's.
        """
        _reject_unknown(environment)
        retention_hours = _number(environment, "TURN_LOG_RETENTION_HOURS", cls.turn_log_retention_hours)
        approval_timeout = _number(environment, "APPROVAL_TIMEOUT_SECONDS", cls.approval_timeout_seconds)
        if approval_timeout > retention_hours * 3600 and PREFIX + "APPROVAL_TIMEOUT_SECONDS" in environment:
            raise SettingError(
                f"{PREFIX}APPROVAL_TIMEOUT_SECONDS is {approval_timeout:.12g}, and a turn's log is kept for "
                f"{retention_hours * 3600:g} s: set it to at most that, or raise {PREFIX}TURN_LOG_RETENTION_HOURS"
            )
        return cls(
            wait_seconds=_number(environment, "WAIT_SECONDS", cls.wait_seconds),
            max_request_bytes=_count(environment, "MAX_REQUEST_BYTES", cls.max_request_bytes),
            max_upload_bytes=_count(environment, "MAX_UPLOAD_BYTES", cls.max_upload_bytes),
            max_import_bytes=_count(environment, "MAX_IMPORT_BYTES", cls.max_import_bytes),
            max_queued_turns=_count(environment, "MAX_QUEUED_TURNS", cls.max_queued_turns),
            max_receipts=_count(environment, "MAX_RECEIPTS", cls.max_receipts),
            receipt_seconds=_number(environment, "RECEIPT_SECONDS", cls.receipt_seconds),
            lease_seconds=_number(environment, "LEASE_SECONDS", cls.lease_seconds),
            approval_timeout_seconds=approval_timeout,
            activity_attempts=_count(environment, "ACTIVITY_ATTEMPTS", cls.activity_attempts),
            turn_timeout_seconds=_number(environment, "TURN_TIMEOUT_SECONDS", cls.turn_timeout_seconds),
            model_attempts=_count(environment, "MODEL_ATTEMPTS", cls.model_attempts),
            model_retry_seconds=_number(environment, "MODEL_RETRY_SECONDS", cls.model_retry_seconds),
            model_retry_most_seconds=_number(environment, "MODEL_RETRY_MOST_SECONDS", cls.model_retry_most_seconds),
            turn_log=environment.get(PREFIX + "TURN_LOG", "").strip(),
            turn_log_retention_hours=retention_hours,
            kept_call_bytes=_count(environment, "KEPT_CALL_BYTES", cls.kept_call_bytes, minimum=0),
            kept_turn_bytes=_count(environment, "KEPT_TURN_BYTES", cls.kept_turn_bytes),
            segments=environment.get(PREFIX + "SEGMENTS", "").strip(),
            encryption_keys=environment.get(PREFIX + "ENCRYPTION_KEYS", "").strip(),
            encryption_plaintext=_plaintext(environment, "ENCRYPTION_PLAINTEXT", cls.encryption_plaintext),
            turn_retention_hours=_number(environment, "TURN_RETENTION_HOURS", cls.turn_retention_hours),
            session_ttl_seconds=_number(environment, "SESSION_TTL_SECONDS", cls.session_ttl_seconds, minimum=0.0),
            piece_grace_seconds=_number(environment, "PIECE_GRACE_SECONDS", cls.piece_grace_seconds),
            maintenance_schedule=_schedule(environment, "MAINTENANCE_SCHEDULE", cls.maintenance_schedule),
            adopt_sessions=_adopters(environment, "ADOPT_SESSIONS", cls.adopt_sessions),
            session_names=_choice(environment, "SESSION_NAMES", cls.session_names, SHARED_NAMES, OWN_NAMES),
            stream_heartbeat_seconds=_number(environment, "STREAM_HEARTBEAT_SECONDS", cls.stream_heartbeat_seconds),
            answer_seconds=_number(environment, "ANSWER_SECONDS", cls.answer_seconds),
            requests_per_second=_number(environment, "REQUESTS_PER_SECOND", cls.requests_per_second, minimum=0.0),
            **{name: _count(environment, name.upper(), getattr(cls, name)) for name in _BOUNDS},
        )


def _reject_unknown(environment: Mapping[str, str]) -> None:
    known_names = {PREFIX + field.name.upper() for field in fields(Settings)} | _FOR_TESTS
    for name in sorted(environment):
        has_prefix = name.upper().startswith(PREFIX)
        if name not in known_names and (has_prefix or "AGENT" in name.upper()):
            nearness = 0.5 if has_prefix else _NEARNESS_OF_OTHERS
            similar = get_close_matches(name.upper(), sorted(known_names - _FOR_TESTS), n=1, cutoff=nearness)
            if not has_prefix and not similar:
                continue
            hint = (
                f"did you mean {similar[0]}?" if similar else f"there are {', '.join(sorted(known_names - _FOR_TESTS))}"
            )
            raise SettingError(f"there is no setting {name}: {hint} Correct it, or remove it")


def _number(environment: Mapping[str, str], field: str, default: float, *, minimum: float | None = None) -> float:
    """Parse a number above 0, or of at least ``minimum``."""
    text = environment.get(PREFIX + field, "").strip()
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not _is_within(value, minimum):
        raise SettingError(
            f"{PREFIX}{field} is {text!r}; set it to a number {_range(minimum)}, or leave it out for {default:.12g}"
        )
    return value


def _is_within(value: float, minimum: float | None) -> bool:
    return 0 < value < float("inf") or value == minimum


def _range(minimum: float | None) -> str:
    return "above 0" if minimum is None else f"of {minimum:g} or more"


def _is_role(text: object) -> bool:
    return isinstance(text, str) and text.startswith(_ROLE) and text != _ROLE


def _join_choices(choices: tuple[str, ...]) -> str:
    return " or ".join(map(repr, choices))


def _schedule(environment: Mapping[str, str], field: str, default: str) -> str:
    text = environment.get(PREFIX + field, "").strip() or default
    if problem := _problem_of_schedule(text):
        raise SettingError(
            f"{PREFIX}{field} is {text!r}, and {problem}; set it to {_SCHEDULE_FIELDS!r}, to {NO_MAINTENANCE!r}, "
            f"or leave it out for {default!r}"
        )
    return text


def _problem_of_schedule(text: str) -> str:
    if text == NO_MAINTENANCE:
        return ""
    try:
        parse_cron(text).next_after(datetime.now(UTC))
    except ScheduleError as error:
        return str(error)
    return ""


def _adopters(environment: Mapping[str, str], field: str, default: str) -> str:
    text = environment.get(PREFIX + field, "").strip() or default
    if text not in {ANYBODY, NOBODY} and not _is_role(text):
        raise SettingError(
            f"{PREFIX}{field} is {text!r}; set it to {ANYBODY!r}, {NOBODY!r} or '{_ROLE}NAME', or leave it out "
            f"for {default!r}"
        )
    return text


def _plaintext(environment: Mapping[str, str], field: str, default: str) -> str:
    text = _choice(environment, field, default, READ_PLAINTEXT, REJECT_PLAINTEXT)
    if text == REJECT_PLAINTEXT and not environment.get(PREFIX + "ENCRYPTION_KEYS", "").strip():
        raise SettingError(
            f"{PREFIX}{field} is {text!r}, and nothing is encrypted: set {PREFIX}ENCRYPTION_KEYS, or leave it out"
        )
    return text


def _choice(environment: Mapping[str, str], field: str, default: str, *choices: str) -> str:
    text = environment.get(PREFIX + field, "").strip() or default
    if text not in choices:
        raise SettingError(
            f"{PREFIX}{field} is {text!r}; set it to {_join_choices(choices)}, or leave it out for {default!r}"
        )
    return text


def _count(environment: Mapping[str, str], field: str, default: int, *, minimum: float | None = None) -> int:
    value = _number(environment, field, default, minimum=minimum)
    if value != int(value):
        raise SettingError(f"{PREFIX}{field} is {value:g}; set it to a whole number, or leave it out for {default}")
    return int(value)
