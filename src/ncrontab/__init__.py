"""Schedules of timer triggers: NCRONTAB expressions of five or six fields, and plain intervals.

Guarantee: pure.
Source: azure-webjobs-sdk-extensions, and the grammar of NCrontab 3.4 (``CrontabFieldImpl.cs``): day of month and day of
week must both match, days of the week are 0 (Sunday) to 6, names may have more than three letters, and a reversed range
is read forwards. Libraries for Python (croniter, cronsim) differ in these points. A step of 0 is refused.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, time, timedelta

_MONTHS = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_WEEKDAYS = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_SHORTEST_NAME = 3
_CRONTAB_FIELDS = 5
_HOURS_OF_DAY = 24
_SEARCHED_DAYS = 366 * 28  # the longest gap that a calendar has: 29 February on one day of the week
_INTERVAL = re.compile(r"(?:(\d+)\.)?(\d+):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,7}))?)?")


class ScheduleError(ValueError):
    """A malformed schedule; the message names the part."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A schedule with a fixed interval."""

    step: timedelta

    def next_after(self, moment: datetime) -> datetime:
        """Return the occurrence after a moment."""
        return moment + self.step


@dataclass(frozen=True, slots=True)
class Cron:
    """An NCRONTAB expression: the values that each field allows; times are sorted."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]

    def next_after(self, moment: datetime) -> datetime:
        """Return the first occurrence after a moment, in the wall time of its zone.

        Raises:
            ScheduleError: it has no occurrence, as for 30 February.
        """
        start = moment.replace(microsecond=0) + timedelta(seconds=1)
        for offset in range(_SEARCHED_DAYS):
            day = start.date() + timedelta(days=offset)
            weekday = day.isoweekday() % 7
            if day.month in self.months and day.day in self.days and weekday in self.weekdays:
                found = self._first_time(start.time() if offset == 0 else time.min)
                if found is not None:
                    return datetime.combine(day, found, moment.tzinfo)
        raise ScheduleError("the schedule has no occurrence")

    def _first_time(self, earliest: time) -> time | None:
        for hour in self.hours:
            if hour < earliest.hour:
                continue
            for minute in self.minutes:
                if (hour, minute) < (earliest.hour, earliest.minute):
                    continue
                for second in self.seconds:
                    if (hour, minute, second) >= (earliest.hour, earliest.minute, earliest.second):
                        return time(hour, minute, second)
        return None


type Schedule = Cron | Interval


def parse_schedule(text: str) -> Schedule:
    """Parse an NCRONTAB expression, or an interval such as ``00:05:00`` or ``1.00:00:00``.

    Raises:
        ScheduleError: it is neither.
    """
    found = _INTERVAL.fullmatch(text.strip())
    if found is not None:
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
        if hours >= _HOURS_OF_DAY:  # .NET reads 24:00:00 as 24 days, and so does the Functions host
            days = hours
            hours = minutes
            minutes = seconds
            seconds = 0
        step = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        step += timedelta(microseconds=int((found[5] or "").ljust(6, "0")[:6]))
        if not step:
            raise ScheduleError("the interval is zero")
        return Interval(step)
    if len(text.split()) == _CRONTAB_FIELDS:
        return parse_cron(f"0 {text}")
    return parse_cron(text)


def parse_cron(text: str) -> Cron:
    """Parse an NCRONTAB expression of six fields.

    Raises:
        ScheduleError: it is something else.
    """
    fields = text.split()
    if len(fields) != _CRONTAB_FIELDS + 1:
        raise ScheduleError(f"it has {len(fields)} {'field' if len(fields) == 1 else 'fields'} instead of 6")
    return Cron(
        seconds=tuple(sorted(_read_field("second", fields[0], 0, 59))),
        minutes=tuple(sorted(_read_field("minute", fields[1], 0, 59))),
        hours=tuple(sorted(_read_field("hour", fields[2], 0, 23))),
        days=frozenset(_read_field("day", fields[3], 1, 31)),
        months=frozenset(_read_field("month", fields[4], 1, 12, _MONTHS)),
        weekdays=frozenset(_read_field("weekday", fields[5], 0, 6, _WEEKDAYS)),
    )


def _read_field(field: str, text: str, low: int, high: int, names: Sequence[str] = ()) -> set[int]:
    values: set[int] = set()
    for part in text.split(","):
        span, slash, step_text = part.partition("/")
        if slash and (not step_text.isdecimal() or int(step_text) == 0):
            raise ScheduleError(f"the {field} field has the step {step_text!r} in {part!r}: give 1 or more")
        first_text, dash, last_text = span.partition("-")
        if span == "*":
            first = low
            last = high
        else:
            first = _read_value(field, first_text, low, high, names)
            last = _read_value(field, last_text, low, high, names) if dash else first
            if slash and not dash and int(step_text) > 1:
                last = high
        values.update(range(min(first, last), max(first, last) + 1, int(step_text or 1)))
    return values


def _read_value(field: str, text: str, low: int, high: int, names: Sequence[str]) -> int:
    if text.isascii() and text.isdecimal() and low <= int(text) <= high:
        return int(text)
    for value, name in enumerate(names, low):
        if len(text) >= _SHORTEST_NAME and name.startswith(text.lower()):
            return value
    expected = f"numbers of {low} to {high}" + (f" and names such as {names[1][:3].upper()!r}" if names else "")
    raise ScheduleError(f"the {field} field has {text!r}: values are {expected}")
