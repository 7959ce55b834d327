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
    "line of an `import`": "segments.conversation_lines.MAX_LINE_BYTES",
    "parts of a message": "turn.message_input.MAX_PARTS",
    "id of a session or turn": "model.ids.MAX_SESSION_ID_CHARACTERS",
    "`Idempotency-Key`": "model.ids.MAX_KEY_CHARACTERS",
    "`response_format` of a turn": "turn.response_format.MAX_SCHEMA_CHARACTERS",
    "time to check an answer against its `response_format`": "features.response_format.worker.CHECK_SECONDS",
    "uploads of a session that no message has used": "segments.uploads.MAX_UPLOADS",
    "sessions in a list": "http.parse.DEFAULT_LIMIT",
    "messages in a page": "http.parse.MAX_LIMIT",
    "time for the next 16 KiB of a body": "http.arriving_bodies.STALL_SECONDS",
    "contents of conversations over 64 KiB that running turns have in memory, about 3 KB each": (
        "agent.run_messages.CONTENTS_AT_ONCE"
    ),
    "imports at once": "http.request_handling.IMPORTS_AT_ONCE",
    "bytes of a page of messages": "segments.conversation_pages.PAGE_BYTES",
    "characters that models send in one attempt of a turn": "agent.response_limits.MAX_TURN_CHARACTERS",
}
"""A limit without a setting → the constant that holds it; of `durable_agent_host` where it names no package."""
OF_THE_HOST = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "functions_host.web.body_limit.DEFAULT_BODY_BYTES"}
"""A setting of the embedded host → the constant that is its default."""


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


def _value(text: str) -> float:
    number, unit = re.fullmatch(r"([\d,]+)(?: (\w+)|: .*)?", text).groups()
    return int(number.replace(",", "")) * UNITS.get(unit or "", 1)


def _constant(name: str) -> float:
    module, _, constant = name.rpartition(".")
    package = "" if module.startswith("functions_host.") else "durable_agent_host."
    return getattr(import_module(package + module), constant)


def _configured_value(row: Row) -> float:
    name = row.setting.strip("`")
    if not name or name in OF_THE_HOST:
        return _constant(OF_THE_HOST[name] if name else FIXED[row.limit])
    return getattr(Settings(), name.lower())


def test_every_limit_is_the_one_that_holds():
    """Each row has the default of its setting, or the value of its constant, and says what a caller gets."""
    for row in _rows():
        assert _value(row.default) == _configured_value(row), row
        assert row.beyond, row


def test_every_limit_is_in_the_table():
    """No setting of a most and no named constant is left out."""
    rows = list(_rows())
    table_settings = {row.setting.strip("`") for row in rows}
    names = {field.name.upper() for field in fields(Settings) if field.name.startswith("max_")}
    assert names | set(OF_THE_HOST) <= table_settings
    assert {row.limit for row in rows if not row.setting} == set(FIXED)
    settings = (ROOT / "docs/reference/settings.md").read_text()
    assert all(f"`{PREFIX}{name}`" in settings for name in table_settings - set(OF_THE_HOST) if name)
