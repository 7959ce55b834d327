"""Timer triggers: scheduled runs, never concurrent, with missed runs made up for after a restart.

Source: ``Extensions/Timers`` of azure-webjobs-sdk-extensions.
"""

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from functions_host.app.client_binding import ClientAddresses
from functions_host.app.function import AppFunction
from functions_host.app.invoker import Datum, Invoker, Retry, client_inputs
from functions_host.app.worker_messages import RpcRetryOptions
from functions_host.data_dir import open_private
from functions_host.errors import StartupError
from functions_host.settings import resolve_settings
from ncrontab import Schedule, ScheduleError, parse_schedule

_logger = logging.getLogger(__name__)
_FOLDER = "timers"
_NEVER = "0001-01-01T00:00:00"
_MAX_SLEEP_SECONDS = 30.0  # so that a changed or resumed system clock is noticed
_SHORTEST_MONITORED = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class TimerTrigger:
    """A timer function with its parsed schedule; ``is_monitored`` when its status is stored."""

    function: AppFunction
    schedule_text: str
    schedule: Schedule
    runs_on_startup: bool
    is_monitored: bool


def read_timer(function: AppFunction, environment: Mapping[str, str], now: datetime) -> TimerTrigger:
    """Parse the trigger of a timer function.

    Raises:
        StartupError: its schedule is malformed, or names a missing setting.
    """
    text, missing = resolve_settings(str(function.binding.get("schedule", "")), environment)
    if missing:
        raise StartupError(
            f"Timer function {function.name!r} takes its schedule from the app setting {missing[0]!r}, which is not "
            "set; add it to Values in local.settings.json."
        )
    try:
        schedule = parse_schedule(text)
        first = schedule.next_after(now)
        gap = schedule.next_after(first) - first
    except ScheduleError as error:
        raise StartupError(
            f"Timer function {function.name!r} has the schedule {text!r}, which cannot be read: {error}; write "
            "'{second} {minute} {hour} {day} {month} {weekday}' or an interval 'hh:mm:ss'."
        ) from error
    is_monitored = function.binding.get("useMonitor") is not False and gap >= _SHORTEST_MONITORED
    return TimerTrigger(function, text, schedule, function.binding.get("runOnStartup") is True, is_monitored)


@dataclass(slots=True)
class _Status:
    """Last and next run of a timer, as stored and as shown to the function."""

    schedule_text: str
    last: str
    next: datetime
    updated_at: str

    def encode(self) -> dict[str, str]:
        return {"Last": self.last, "Next": self.next.isoformat(), "LastUpdated": self.updated_at}


class Timers:
    """Runs the timer functions of an app, between ``start`` and ``stop``.

    Args:
        functions: of the app; those without a timer trigger are ignored.
        invoker: calls them.
        addresses: for their durable clients.
        data_dir: for their status.
        clock: seconds since the epoch.

    Raises:
        StartupError: a schedule is malformed.
    """

    def __init__(
        self,
        functions: Iterable[AppFunction],
        invoker: Invoker,
        addresses: ClientAddresses,
        data_dir: Path,
        clock: Callable[[], float],
    ) -> None:
        self._invoker = invoker
        self._addresses = addresses
        self._folder = data_dir / _FOLDER
        self._clock = clock
        self._timers = [
            read_timer(function, os.environ, self._now())
            for function in functions
            if function.trigger == "timerTrigger"
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._extra_runs: set[asyncio.Task[bool]] = set()

    def start(self) -> None:
        """Start the schedules."""
        self._tasks = [asyncio.create_task(self._run(timer)) for timer in self._timers]

    async def stop(self) -> None:
        """Stop; the next start makes up for a run that is interrupted."""
        tasks: list[asyncio.Task[Any]] = [*self._tasks, *self._extra_runs]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def run_now(self, function: AppFunction) -> None:
        """Start an extra run of a timer function; its schedule is unaffected."""
        task = asyncio.create_task(self.call(function, json.dumps(_occurrence(None, is_past_due=False))))
        self._extra_runs.add(task)
        task.add_done_callback(self._extra_runs.discard)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock()).astimezone()

    async def _run(self, timer: TimerTrigger) -> None:
        status = self._load(timer)
        is_past_due = status is not None and status.next <= self._now()
        if status is None:
            status = _Status(timer.schedule_text, _NEVER, self._next(timer), self._now().isoformat())
            self._save(timer, status)
        if is_past_due or timer.runs_on_startup:
            await self._occur(timer, status, is_past_due=is_past_due)
        while True:
            left = status.next.timestamp() - self._clock()
            if left > 0:
                await asyncio.sleep(min(left, _MAX_SLEEP_SECONDS))
            else:
                await self._occur(timer, status, is_past_due=False)

    def _next(self, timer: TimerTrigger) -> datetime:
        # The zone of wall times is fixed when they are made; looked up again, it follows summer time.
        found = timer.schedule.next_after(self._now())
        return found.replace(tzinfo=None).astimezone()

    async def _occur(self, timer: TimerTrigger, status: _Status, *, is_past_due: bool) -> None:
        last = self._now().isoformat()
        value = _occurrence(status if timer.is_monitored else None, is_past_due=is_past_due)
        await self.call(timer.function, json.dumps(value))
        status.last = last
        status.next = self._next(timer)
        status.updated_at = self._now().isoformat()
        self._save(timer, status)

    async def call(self, function: AppFunction, value_json: str) -> bool:
        """Call a timer function with its retry policy; returns whether it succeeded."""
        inputs = [(function.parameter, Datum(value_json, "json")), *client_inputs(function, self._addresses)]
        policy = function.retry
        for attempt in count():
            retry = None if policy is None else Retry(attempt, policy.max_retry_count)
            result = await self._invoker.invoke(function, inputs, retry)
            if result.failure is None:
                return True
            _logger.error("Function %r failed: %s\n%s", function.name, result.failure.text, result.failure.trace)
            if policy is None or attempt == policy.max_retry_count:  # -1 never ends
                break
            await asyncio.sleep(retry_delay(policy, attempt).total_seconds())
        return False

    # --- status ------------------------------------------------------------------------------

    def _path(self, timer: TimerTrigger) -> Path:
        return self._folder / f"{timer.function.name}.json"

    def _load(self, timer: TimerTrigger) -> _Status | None:
        if not timer.is_monitored:
            return None
        try:
            status_json: dict[str, Any] = json.loads(self._path(timer).read_text(encoding="utf-8"))
            status = _Status(
                status_json["Schedule"],
                status_json["Last"],
                datetime.fromisoformat(status_json["Next"]),
                status_json["LastUpdated"],
            )
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _logger.warning("The status of timer function %r is not readable: %s.", timer.function.name, error)
            return None
        return status if status.schedule_text == timer.schedule_text else None

    def _save(self, timer: TimerTrigger, status: _Status) -> None:
        if not timer.is_monitored:
            return
        self._folder.mkdir(mode=0o700, exist_ok=True)
        draft = self._path(timer).with_suffix(".new")
        with open_private(draft, "w") as file:
            json.dump({"Schedule": status.schedule_text, **status.encode()}, file)
        draft.replace(self._path(timer))


def _occurrence(status: _Status | None, *, is_past_due: bool) -> dict[str, object]:
    return {
        "Schedule": {"AdjustForDST": True},
        "ScheduleStatus": status.encode() if status else None,
        "IsPastDue": is_past_due,
    }


def retry_delay(policy: RpcRetryOptions, attempt: int) -> timedelta:
    """Return the delay after a failed attempt, counted from 0."""
    if policy.retry_strategy == "fixed_delay":
        return policy.delay_interval
    growing = policy.minimum_interval + timedelta(seconds=2 ** min(attempt, 30) - 1)
    return min(growing, policy.maximum_interval)
