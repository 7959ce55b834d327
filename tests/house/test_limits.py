"""The table of limits is what the code holds."""

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from typing import NamedTuple

from durable_agent_host.settings import PREFIX, Settings
from tests.house.source import ROOT

UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
FIXED = {
    "parts of a form": "http.multipart.MAX_FORM_PARTS",
    "headers of a part of a form": "http.multipart.MAX_PART_HEADER_BYTES",
    "parts of a message": "turn.message_parts.MAX_PARTS",
    "URL in a part of a message": "turn.message_parts._MAX_URL_CHARACTERS",
    "id of a session or turn": "model.ids.MAX_SESSION_ID_CHARACTERS",
    "`Idempotency-Key`": "http.parse._MAX_KEY_CHARACTERS",
    "name of a file": "turn.file_names.MAX_NAME_CHARACTERS",
    "`options` of a turn": "turn.request_options._MAX_BYTES",
    "uploads of a session that no message has used": "segments.uploads.MAX_UPLOADS",
    "sessions in a list": "http.parse.DEFAULT_LIMIT",
    "messages in a page": "http.parse.MAX_LIMIT",
    "bytes of a page of messages": "segments.pages.PAGE_BYTES",
    "page of a stream of events": "http.stream.PAGE_BYTES",
    "lines of one event of a streamed answer": "agent.bounds.MOST_LINES",
    "ended turns that wait for a collector of telemetry that is away": "telemetry.delivery.MOST_TURNS",
    "requests kept of one model call": "agent.kept_calls.MOST_EXCHANGES",
    "body of a kept model call that is compared with the one before": "agent.kept_calls.MOST_COMPARED",
    "body of a kept model call in a JSON answer": "http.sent_calls.INLINE_CHARACTERS",
    "pauses of a model in one answer": "agent.model_calls._MOST_PAUSES",
}
"""A limit without a setting → the constant that holds it."""


class Row(NamedTuple):
    """A row of a table of limits."""

    limit: str
    default: str
    setting: str
    beyond: str


def _rows() -> Iterator[Row]:
    text = (ROOT / "docs/limits.md").read_text()
    for line in text.partition("## What to know")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and len(cells) == len(Row._fields) and cells[0] != "limit":
            yield Row(*cells)


def _value(shown: str) -> float:
    number, unit = re.fullmatch(r"([\d,]+)(?: (\w+)|: .*)?", shown).groups()
    return int(number.replace(",", "")) * UNITS.get(unit or "", 1)


def _constant(name: str) -> float:
    module, _, constant = name.rpartition(".")
    return getattr(import_module(f"durable_agent_host.{module}"), constant)


def test_every_limit_is_the_one_that_holds():
    """Each row has the default of its setting, or the value of its constant, and says what a caller gets."""
    defaults = Settings()
    for row in _rows():
        held = getattr(defaults, row.setting.strip("`").lower()) if row.setting else _constant(FIXED[row.limit])
        assert _value(row.default) == held, row
        assert row.beyond, row


def test_every_limit_is_in_the_table():
    """No setting of a most and no named constant is left out."""
    rows = list(_rows())
    shown = {row.setting.strip("`") for row in rows}
    names = {field.name.upper() for field in fields(Settings) if field.name.startswith("max_")}
    assert names <= shown
    assert {row.limit for row in rows if not row.setting} == set(FIXED)
    settings = (ROOT / "docs/reference/settings.md").read_text()
    assert all(f"`{PREFIX}{name}`" in settings for name in shown if name)
