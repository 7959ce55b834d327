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
    "head of a request: URL and headers": "functions_host.web.server.HEAD_BYTES",
    "time without a request on a connection": "functions_host.web.server.KEEP_ALIVE_SECONDS",
    "connections": "functions_host.web.server.MOST_CONNECTIONS",
    "parts of a form": "http.body_parsing.MAX_FORM_PARTS",
    "contents of a document of `import`": "segments.conversation_import.MAX_CONTENTS",
    "headers of a part of a form": "http.body_parsing.MAX_PART_HEADER_BYTES",
    "parts of a message": "turn.message_input.MAX_PARTS",
    "URL in a part of a message": "turn.message_input._MAX_URL_CHARACTERS",
    "id of a session or turn": "model.ids.MAX_SESSION_ID_CHARACTERS",
    "`Idempotency-Key`": "model.ids.MAX_KEY_CHARACTERS",
    "name of a file": "turn.file_names.MAX_NAME_CHARACTERS",
    "levels of JSON in the body of `run` and of an approval": "codec.strict_json.MAX_LEVELS",
    "levels of JSON in the arguments of a tool call": "codec.strict_json.MAX_LEVELS",
    "levels of JSON in an answer of a model, other than in texts": "codec.journal_entry.MOST_ANSWER_LEVELS",
    "`options` of a turn": "turn.request_options._MAX_BYTES",
    "`response_format` of a turn": "turn.response_format.MAX_SCHEMA_CHARACTERS",
    "objects in a `response_format`": "turn.response_format.MAX_SCHEMA_OBJECTS",
    "time to check an answer against its `response_format`": "features.response_format.worker.CHECK_SECONDS",
    "uploads of a session that no message has used": "segments.uploads.MAX_UPLOADS",
    "sessions in a list": "http.parse.DEFAULT_LIMIT",
    "messages in a page": "http.parse.MAX_LIMIT",
    "bytes of a page of messages": "segments.conversation_pages.PAGE_BYTES",
    "page of a stream of events": "http.event_stream.PAGE_BYTES",
    "lines of one event of a streamed answer": "agent.response_limits.MOST_LINES",
    "requests kept for one try of a model call": "agent.http_exchange.MOST_EXCHANGES",
    "body of a kept model call, before it is compressed": "agent.http_exchange.MAX_FULL_BODY_BYTES",
    "body of a kept model call in a JSON answer": "http.model_call_routes.INLINE_CHARACTERS",
    "pauses of a model in one answer": "agent.call_middleware._MOST_PAUSES",
}
"""A limit without a setting → the constant that holds it; of `durable_agent_host` where it names no package."""
OF_THE_HOST = {"FUNCTIONS_REQUEST_BODY_SIZE_LIMIT": "functions_host.web.body_limit.DEFAULT_BODY_BYTES"}
"""A setting of the embedded host → the constant that is its default."""


CONNECTIONS = "functions_host/web/test_connections.py"
LIMITS = "durable_agent_host/test_scenarios_limits.py"
RESPONSES = "durable_agent_host/test_scenarios_odd_responses.py"
MODELS = "durable_agent_host/test_scenarios_bounded_model.py"
SENT = f"{LIMITS}::test_requests_are_accepted_up_to_each_limit"
SCHEMAS = "durable_agent_host/turn/test_answer_schema.py"
TRIED = {
    "`response_format` of a turn": f"{SCHEMAS}::test_a_schema_that_is_too_deep_or_too_long_is_rejected",
    "objects in a `response_format`": f"{SCHEMAS}::test_a_schema_that_is_too_deep_or_too_long_is_rejected",
    "time to check an answer against its `response_format`": (
        "durable_agent_host/test_scenarios_turns.py::test_an_expensive_schema_does_not_block_other_turns"
    ),
    "body of any request": f"{CONNECTIONS}::test_a_body_that_is_allowed_arrives",
    "head of a request: URL and headers": f"{CONNECTIONS}::test_a_flood_is_not_buffered",
    "time without a request on a connection": f"{CONNECTIONS}::test_connections_have_limits",
    "connections": f"{CONNECTIONS}::test_connections_have_limits",
    "body that is not a form": SENT,
    "upload, form of `run`": SENT,
    "parts of a form": SENT,
    "headers of a part of a form": SENT,
    "document of `import`": SENT,
    "contents of a document of `import`": (
        "durable_agent_host/test_scenarios_import.py::test_a_document_of_too_many_contents_is_refused"
    ),
    "parts of a message": SENT,
    "URL in a part of a message": SENT,
    "id of a session or turn": SENT,
    "`Idempotency-Key`": SENT,
    "name of a file": SENT,
    "levels of JSON in the body of `run` and of an approval": (
        "durable_agent_host/test_scenarios_odd_requests.py::test_arguments_of_people_have_a_depth"
    ),
    "`options` of a turn": SENT,
    "uploads of a session that no message has used": f"{LIMITS}::test_uploads_of_a_session_are_limited",
    "waiting turns of a session": ("durable_agent_host/test_scenarios_turns.py::test_a_full_queue_has_a_retry_after"),
    "requests of one kind, of those that list or read sessions, turns and files, that work at once for one "
    "principal, per process": (
        "durable_agent_host/http/test_rates.py::test_few_requests_of_a_kind_work_at_once_and_others_wait_in_order"
    ),
    "requests per second of one principal, per process": (
        "durable_agent_host/test_scenarios_owners.py::test_a_principal_has_a_rate_of_its_own"
    ),
    "model calls kept: one request or answer, compressed": (
        f"{LIMITS}::test_model_calls_are_recorded_up_to_their_limits"
    ),
    "model calls kept: one attempt of a turn, in total, compressed": (
        f"{LIMITS}::test_model_calls_are_recorded_up_to_their_limits"
    ),
    "requests kept for one try of a model call": f"{LIMITS}::test_forty_requests_of_an_attempt_are_recorded",
    "body of a kept model call, before it is compressed": (
        f"{LIMITS}::test_the_start_and_end_of_a_large_body_are_recorded"
    ),
    "body of a kept model call in a JSON answer": f"{LIMITS}::test_model_calls_are_recorded_up_to_their_limits",
    "large bodies of one principal that are arriving, together, per process": (
        f"{LIMITS}::test_incomplete_bodies_are_limited_in_memory"
    ),
    "clients streaming one turn, per process": f"{LIMITS}::test_stream_readers_of_a_turn_are_limited",
    "sessions in a list": f"{LIMITS}::test_lists_and_pages_are_limited",
    "messages in a page": f"{LIMITS}::test_lists_and_pages_are_limited",
    "bytes of a page of messages": (
        "durable_agent_host/test_scenarios_hundred_megabytes.py::test_a_session_of_a_hundred_megabytes_is_supported"
    ),
    "page of a stream of events": (
        "durable_agent_host/test_scenarios_streaming.py::test_readers_that_do_not_read_hold_nothing_up"
    ),
    "ended turns that a session remembers": f"{LIMITS}::test_receipts_of_a_session_are_limited",
    "one answer of a model's service": f"{MODELS}::test_a_misbehaving_model_fails_the_turn",
    "one line of a streamed answer": f"{MODELS}::test_a_misbehaving_model_fails_the_turn",
    "lines of one event of a streamed answer": f"{MODELS}::test_a_misbehaving_model_fails_the_turn",
    "all answers in one attempt of a turn": f"{MODELS}::test_all_responses_of_a_turn_count",
    "time of one answer": f"{MODELS}::test_a_slow_stream_fails_at_the_response_timeout",
    "time of a turn": (
        "durable_agent_host/test_scenarios_hostile_model.py::test_an_endless_stream_fails_at_the_turn_timeout"
    ),
    "model calls of a turn, sub-agents' included": f"{MODELS}::test_a_misbehaving_model_fails_the_turn",
    "pauses of a model in one answer": ("durable_agent_host/test_wire_anthropic.py::test_endless_pauses_fail_the_turn"),
    "tool calls of one answer": f"{MODELS}::test_a_misbehaving_model_fails_the_turn",
    "arguments of a tool call": f"{MODELS}::test_a_misbehaving_model_fails_the_turn",
    "levels of JSON in the arguments of a tool call": (
        f"{RESPONSES}::test_deep_arguments_leave_the_conversation_intact"
    ),
    "levels of JSON in an answer of a model, other than in texts": (
        f"{RESPONSES}::test_structured_arguments_over_the_depth_limit_fail_the_turn"
    ),
    "result of a tool call": f"{MODELS}::test_a_gigantic_result_is_not_sent_to_the_model",
}
"""A limit → the test that passes it."""


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


def test_every_limit_is_tried():
    """Each row has a test that passes it."""
    assert sorted(TRIED) == sorted(row.limit for row in _rows())
    for name in TRIED.values():
        path, _, test = name.partition("::")
        assert re.search(rf"^(async )?def {test}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE), name


def test_every_limit_is_in_the_table():
    """No setting of a most and no named constant is left out."""
    rows = list(_rows())
    table_settings = {row.setting.strip("`") for row in rows}
    names = {field.name.upper() for field in fields(Settings) if field.name.startswith("max_")}
    assert names | set(OF_THE_HOST) <= table_settings
    assert {row.limit for row in rows if not row.setting} == set(FIXED)
    settings = (ROOT / "docs/reference/settings.md").read_text()
    assert all(f"`{PREFIX}{name}`" in settings for name in table_settings - set(OF_THE_HOST) if name)
