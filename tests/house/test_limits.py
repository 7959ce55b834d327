"""The table of limits is what the code holds."""

import re
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module
from typing import NamedTuple

from durable_agent_host.settings import PREFIX, Settings
from functions_host.web.connection_limits import ConnectionLimits
from tests.house.source import ROOT

UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
CONNECTION = "functions_host.web.connection_limits.ConnectionLimits"
FIXED = {
    "URL of a request": f"{CONNECTION}.line_bytes",
    "headers of a request, together": f"{CONNECTION}.header_bytes",
    "headers of a request": f"{CONNECTION}.headers",
    "time until the headers are complete": f"{CONNECTION}.read_seconds",
    "bytes of a body in a second": f"{CONNECTION}.body_bytes_per_second",
    "requests on one connection that wait for the answers before theirs": (
        "functions_host.web.connection.MOST_PIPELINED"
    ),
    "time in which a client reads nothing of its answer": f"{CONNECTION}.write_seconds",
    "what comes after a refusal or behind an answer that ends the connection": f"{CONNECTION}.drain_bytes",
    "time without a request on a connection": "functions_host.web.server.KEEP_ALIVE_SECONDS",
    "connections": "functions_host.web.connection_limits.MOST_CONNECTIONS",
    "parts of a form": "http.multipart.MAX_FORM_PARTS",
    "headers of a part of a form": "http.multipart.MAX_PART_HEADER_BYTES",
    "parts of a message": "turn.message_parts.MAX_PARTS",
    "URL in a part of a message": "turn.message_parts._MAX_URL_CHARACTERS",
    "id of a session or turn": "model.ids.MAX_SESSION_ID_CHARACTERS",
    "`Idempotency-Key`": "http.parse._MAX_KEY_CHARACTERS",
    "name of a file": "turn.file_names.MAX_NAME_CHARACTERS",
    "`options` of a turn": "turn.request_options._MAX_BYTES",
    "`response_format` of a turn": "turn.answer_schema.MAX_SCHEMA_CHARACTERS",
    "objects in a `response_format`": "turn.answer_schema.MAX_SCHEMA_OBJECTS",
    "time to hold an answer against its `response_format`": "agent.answer_checks.CHECK_SECONDS",
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


def _value(shown: str) -> float:
    number, unit = re.fullmatch(r"([\d,]+)(?: (\w+)|: .*)?", shown).groups()
    return int(number.replace(",", "")) * UNITS.get(unit or "", 1)


def _constant(name: str) -> float:
    module, _, constant = name.rpartition(".")
    if module == CONNECTION:
        return getattr(ConnectionLimits(), constant)
    package = "" if module.startswith("functions_host.") else "durable_agent_host."
    return getattr(import_module(package + module), constant)


def _held(row: Row) -> float:
    name = row.setting.strip("`")
    if not name or name in OF_THE_HOST:
        return _constant(OF_THE_HOST[name] if name else FIXED[row.limit])
    return getattr(Settings(), name.lower())


def test_every_limit_is_the_one_that_holds():
    """Each row has the default of its setting, or the value of its constant, and says what a caller gets."""
    for row in _rows():
        assert _value(row.default) == _held(row), row
        assert row.beyond, row


def test_every_limit_is_in_the_table():
    """No setting of a most and no named constant is left out."""
    rows = list(_rows())
    shown = {row.setting.strip("`") for row in rows}
    names = {field.name.upper() for field in fields(Settings) if field.name.startswith("max_")}
    assert names | set(OF_THE_HOST) <= shown
    assert {row.limit for row in rows if not row.setting} == set(FIXED)
    of_connections = {f"{CONNECTION}.{field.name}" for field in fields(ConnectionLimits)}
    assert of_connections - set(FIXED.values()) == {f"{CONNECTION}.drain_seconds"}, "named beside the drained bytes"
    settings = (ROOT / "docs/reference/settings.md").read_text()
    assert all(f"`{PREFIX}{name}`" in settings for name in shown - set(OF_THE_HOST) if name)
