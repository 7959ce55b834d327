"""NCRONTAB expressions and intervals."""

from datetime import datetime, timedelta

import pytest

from ncrontab import ScheduleError, parse_schedule

START = datetime(2026, 11, 20, 10, 30, 15, 400)  # noqa: DTZ001 - schedules are in wall time; a Friday

OCCURRENCES = [
    ("* * * * * *", "2026-11-20T10:30:16 2026-11-20T10:30:17"),
    ("*/15 * * * * *", "2026-11-20T10:30:30 2026-11-20T10:30:45 2026-11-20T10:31:00"),
    ("*/5 * * * *", "2026-11-20T10:35:00 2026-11-20T10:40:00"),
    ("0 */5 * * * *", "2026-11-20T10:35:00 2026-11-20T10:40:00"),
    ("0 0 9-17/4 * * *", "2026-11-20T13:00:00 2026-11-20T17:00:00 2026-11-21T09:00:00"),
    ("0 30 9 * * MON-FRI", "2026-11-23T09:30:00 2026-11-24T09:30:00"),
    ("0 30 9 * * Mon,wednesday", "2026-11-23T09:30:00 2026-11-25T09:30:00"),
    ("0 0 0 * * 0", "2026-11-22T00:00:00 2026-11-29T00:00:00"),
    ("0 0 12 13 * Fri", "2027-08-13T12:00:00 2028-10-13T12:00:00"),  # both the day and the weekday
    ("0 0 0 1 Jan,JULY *", "2027-01-01T00:00:00 2027-07-01T00:00:00"),
    ("0 0 0 29 2 *", "2028-02-29T00:00:00 2032-02-29T00:00:00"),
    ("0 0 0 29 2 0", "2032-02-29T00:00:00 2060-02-29T00:00:00"),
    ("10/20 30 10 * * *", "2026-11-20T10:30:30 2026-11-20T10:30:50 2026-11-21T10:30:10"),
    ("0 10-5 11 * * *", "2026-11-20T11:05:00 2026-11-20T11:06:00"),
    ("0 0 0 31 4-5 *", "2027-05-31T00:00:00"),
]


@pytest.mark.parametrize(("text", "expected"), OCCURRENCES, ids=[text for text, _ in OCCURRENCES])
def test_occurrences(text: str, expected: str):
    """The occurrences that follow a moment, in order."""
    schedule, moment, found = parse_schedule(text), START, []
    for _ in expected.split():
        moment = schedule.next_after(moment)
        found.append(moment.isoformat())
    assert found == expected.split()


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("00:05:00", timedelta(minutes=5)),
        ("24:00:00", timedelta(days=24)),  # as .NET reads it
        ("23:59", timedelta(hours=23, minutes=59)),
        ("00:00:00.5", timedelta(seconds=0.5)),
        ("1.02:03:04", timedelta(days=1, hours=2, minutes=3, seconds=4)),
    ],
)
def test_intervals(text: str, step: timedelta):
    """An interval counts from the moment itself."""
    assert parse_schedule(text).next_after(START) - START == step


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0 fields"),
        ("* * * *", "4 fields"),
        ("60 * * * * *", "second field has '60'"),
        ("0 0 24 * * *", "hour field has '24'"),
        ("0 0 0 0 * *", "day field has '0'"),
        ("0 0 0 * 13 *", "month field has '13'"),
        ("0 0 0 * * 7", "weekday field has '7'"),
        ("0 0 0 * * Mo", "weekday field has 'Mo'"),
        ("0 0 0 * * MONTAG", "weekday field has 'MONTAG'"),
        ("*/0 * * * * *", "step '0'"),
        ("1- * * * * *", "second field has ''"),
        ("@daily", "1 field "),
        ("00:00:00", "zero"),
    ],
)
def test_what_is_no_schedule(text: str, message: str):
    """The message names the part that is wrong."""
    with pytest.raises(ScheduleError, match=message):
        parse_schedule(text)


def test_a_schedule_without_an_occurrence():
    """30 February is found out."""
    with pytest.raises(ScheduleError, match="no occurrence"):
        parse_schedule("0 0 0 30 2 *").next_after(START)
