"""When a timer fires, as the Functions host reads it: a check of NCRONTAB expressions of six fields. Pure.

Source: NCrontab 3.4 (``CrontabFieldImpl.cs``, ``CrontabField.cs``), by which azure-webjobs-sdk-extensions reads timers.
Refused beyond what it refuses: a reversed range, whose ends it swaps; a step of 0, which it takes for 1; a day that no
month has; names of fewer than three letters, which the embedded host does not take.
"""

import re
from typing import Final

FORM: Final = "{second} {minute} {hour} {day} {month} {weekday}"
"""What the fields of a schedule are."""

_MONTHS: Final = (
    *("january", "february", "march", "april", "may", "june"),
    *("july", "august", "september", "october", "november", "december"),
)
_WEEKDAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_FIELDS: Final[tuple[tuple[str, int, int, tuple[str, ...]], ...]] = (
    ("second", 0, 59, ()),
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 6, _WEEKDAYS),
)
_DAYS: Final = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART: Final = re.compile(r"(\*|([0-9]{1,2}|[a-zA-Z]{3,})(?:-([0-9]{1,2}|[a-zA-Z]{3,}))?)(?:/([0-9]{1,4}))?")


def problem_of_schedule(text: str) -> str:
    """Say what is wrong with a schedule. Guarantee: pure.

    Args:
        text: an NCRONTAB expression with seconds; intervals (``00:15:00``) run on App Service plans alone, and are
            refused.

    Returns:
        A clause that names the field, such as "the weekday field has 'XX'"; empty when all is well.
    """
    parts = [part for part in text.split(" ") if part]
    if len(parts) != len(_FIELDS):
        return f"it has {len(parts)} {'field' if len(parts) == 1 else 'fields'} instead of {len(_FIELDS)}"
    allowed: list[set[int]] = []
    for part, (name, least, most, names) in zip(parts, _FIELDS, strict=True):
        values: set[int] = set()
        for one in part.split(","):
            found = _values(one, least, most, names)
            if isinstance(found, str):
                return f"the {name} field has {found}"
            values.update(found)
        allowed.append(values)
    if not any(min(allowed[3]) <= _DAYS[month - 1] for month in allowed[4]):
        return "none of its months has any of its days"
    return ""


def _values(text: str, least: int, most: int, names: tuple[str, ...]) -> range | str:
    """Read one part of a field's list: its values, or what is wrong with it."""
    what = f"numbers of {least} to {most}" + (f" and names such as {names[1][:3].upper()!r}" if names else "")
    found = _PART.fullmatch(text)
    if found is None:
        return f"{text!r}, which is no '*', value or range A-B, with or without a step /N: values are {what}"
    span, first_text, last_text, step = found.groups()
    if step and not int(step):
        return f"the step 0 in {text!r}: leave it out, or give 1 or more"
    if span == "*":
        return range(least, most + 1, int(step or 1))
    first, last = (_value(one, least, most, names) for one in (first_text, last_text or first_text))
    if first is None or last is None:
        return f"{(first_text if first is None else last_text)!r}: values are {what}"
    if last < first:
        return f"the range {span!r}, which ends before it begins: write its two parts as a list"
    return range(first, (last if last_text or not step else most) + 1, int(step or 1))


def _value(text: str, least: int, most: int, names: tuple[str, ...]) -> int | None:
    if text.isdecimal():
        return value if least <= (value := int(text)) <= most else None
    return next((place for place, name in enumerate(names, least) if name.startswith(text.lower())), None)
