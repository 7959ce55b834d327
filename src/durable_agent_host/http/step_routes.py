"""The route that shows what a turn has done, step by step."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import azure.functions as func

from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import parse_limit
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest
from durable_agent_host.http.response_views import large_json_response, turn_headers
from durable_agent_host.http.turn_routes import named_turn
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.log_entry import LogRecord
from durable_agent_host.turn.step_reader import StepReader, turn_summary
from durable_agent_host.turn.turn_redactor import Redactor

_STEPS: Final = 200
"""Default number of steps in a page."""


async def read_steps(host: HandlerContext, call: RouteRequest, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/steps``: attempts, model calls, tool calls, waits, retries; ``limit`` from ``cursor``."""
    limit = parse_limit(call.query.get("limit"), default=_STEPS)
    first = parse_step_cursor(call.query.get("cursor"))
    turn = await named_turn(host, call, client)
    request = turn.request
    reader = StepReader(turn, host.prices_of(request.agent))
    log = host.open_log()
    redactor = client.storage.redactor_of(request.agent)
    offset = 0
    more = True
    while more:
        page = await log.read(turn_log_id(request.agent, request.session_id, request.turn_id), offset)
        records = page.records if redactor is None else await asyncio.to_thread(_redact_records, page.records, redactor)
        for record in records:
            await asyncio.sleep(0)
            reader.read([record])
        offset = page.next_offset
        more = page.has_more
    steps = reader.steps()
    following = str(first + limit) if first + limit < len(steps) else None
    page_steps = steps[first : first + limit]
    view = turn_summary(turn) | {"steps": page_steps, "cursor": following}
    return await large_json_response(len(page_steps), lambda: view, turn_headers(request))


def _redact_records(records: Sequence[LogRecord], redactor: Redactor) -> list[LogRecord]:
    return [replace(record, entry=replace(record.entry, data=redactor.value(record.entry.data))) for record in records]


def parse_step_cursor(text: str | None) -> int:
    """Parse a cursor that counts, of this route or another.

    Raises:
        RequestError: it is not a cursor.
    """
    if text is None:
        return 0
    if not (text.isascii() and text.isdigit() and len(text) < 10):  # noqa: PLR2004 - no turn has a billion steps
        raise RequestError(
            f"'cursor' is {text!r}, which this route did not return: leave it out to start from the beginning"
        )
    return int(text)
