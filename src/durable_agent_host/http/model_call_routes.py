"""The routes that show what a turn sent to the model, and what came back."""

import asyncio
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

import azure.functions as func
from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.strict_json import parse_strict
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import NotFoundError
from durable_agent_host.http.parse import parse_limit
from durable_agent_host.http.request_handling import Answer, HandlerContext, RouteRequest
from durable_agent_host.http.response_views import json_response, turn_headers
from durable_agent_host.http.step_routes import parse_step_cursor
from durable_agent_host.http.turn_routes import named_turn, turn_conflict
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.turn import Turn, TurnRequest
from durable_agent_host.turn.call_body import CallBody
from durable_agent_host.turn.event_folding import FinalResponse
from durable_agent_host.turn.model_call_reader import CallReader, Side
from durable_agent_host.turn.test_generator import generate_test, no_test_reason
from durable_agent_host.turn.turn_redactor import Redactor

INLINE_CHARACTERS: Final = 512 * 1024
"""Largest body, in characters, in the JSON answer; a larger one must be downloaded."""

_CALLS: Final = 100
"""Default number of calls in a page."""
_SIDES: Final[tuple[Side, Side]] = ("request", "answer")


async def list_calls(host: HandlerContext, call: RouteRequest, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/calls``: the model calls of a turn without their bodies; ``limit`` from ``cursor``."""
    limit = parse_limit(call.query.get("limit"), default=_CALLS)
    first = parse_step_cursor(call.query.get("cursor"))
    turn = await named_turn(host, call, client)
    request = turn.request
    redactor = client.storage.redactor_of(turn.request.agent)
    calls = (await _read_calls(host, turn)).calls()
    call_views = [_redacted_view(model_call, redactor) for model_call in calls[first : first + limit]]
    following = str(first + limit) if first + limit < len(calls) else None
    return json_response(HTTPStatus.OK, {"calls": call_views, "cursor": following}, turn_headers(request))


async def read_call(host: HandlerContext, call: RouteRequest, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/calls/{call}``: one call with both bodies, as far as they are kept."""
    turn = await named_turn(host, call, client)
    request = turn.request
    redactor = client.storage.redactor_of(turn.request.agent)
    reader = await _read_calls(host, turn)
    view = _redacted_view(_find_call(call, reader, turn), redactor)
    name = view["name"]
    final_response = host.final_response_of(request.agent)
    url = f"{_turn_url(call, request)}/calls/{quote(name, safe='')}"
    for side in _SIDES:
        body_view = await asyncio.to_thread(_body_view, reader, name, side, final_response, redactor)
        if body_view is not None:
            view[side] = {**(view[side] or {}), **body_view, "url": f"{url}/{side}"}
    return json_response(HTTPStatus.OK, view, turn_headers(request))


async def read_body(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Answer:
    """``GET …/turns/{turn}/calls/{call}/{body}``: ``request`` or ``answer`` as a download; names what is not kept."""
    turn = await named_turn(host, call, client)
    redactor = client.storage.redactor_of(turn.request.agent)
    reader = await _read_calls(host, turn)
    name = _find_call(call, reader, turn)["name"]
    side_name = call.path_part("body")
    side: Side | None = next((known_side for known_side in _SIDES if known_side == side_name), None)
    final_response = host.final_response_of(turn.request.agent)
    body = await asyncio.to_thread(reader.body, name, side, final_response) if side is not None else None
    if body is None:
        raise NotFoundError(f"call {name!r} has no body {side_name[:40]!r}: ask for 'request' or 'answer'")
    text, is_complete_json = await asyncio.to_thread(_text, body[0], redactor)
    headers = {
        "content-type": "application/json; charset=utf-8" if is_complete_json else "text/plain; charset=utf-8",
        "content-disposition": f'attachment; filename="{name}-{side_name}.{"json" if is_complete_json else "txt"}"',
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-store",
    }
    return Response(text.encode("utf-8", "replace"), headers=headers | turn_headers(turn.request))


async def read_test(host: HandlerContext, call: RouteRequest, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/test``: the turn as a pytest test, with the model's answers as a recording."""
    turn = await named_turn(host, call, client)
    redactor = client.storage.redactor_of(turn.request.agent)
    reader = await _read_calls(host, turn)
    if (reason := no_test_reason(turn)) is not None:
        return turn_conflict(turn, reason)
    final_response = host.final_response_of(turn.request.agent)
    exchanges: list[tuple[Any, Any]] = []
    for model_call in reader.calls():
        if model_call["replayed"] or model_call["outcome"] != "completed":
            continue
        name = model_call["name"]
        bodies = [await asyncio.to_thread(_document, reader, name, side, final_response, redactor) for side in _SIDES]
        if any(body is None for body in bodies):
            return turn_conflict(turn, f"call {name} of the turn is not kept as a whole, so it cannot be played")
        exchanges.append((json.loads(str(bodies[0])), json.loads(str(bodies[1]))))
    path = f"{urlsplit(call.base_url).path}/agents/{quote(turn.request.agent)}/run"
    text = generate_test(turn, exchanges, path)
    if text is None:
        return turn_conflict(turn, "the turn has no calls that are kept, or they are not of the Responses API")
    download_headers = {"content-disposition": f'attachment; filename="test_turn_{turn.request.turn_id[:12]}.py"'}
    headers = turn_headers(turn.request) | (download_headers if turn.request.turn_id.isalnum() else {})
    return func.HttpResponse(text, mimetype="text/x-python", charset="utf-8", headers=headers)


async def _read_calls(host: HandlerContext, turn: Turn) -> CallReader:
    """Read the log of a turn."""
    request = turn.request
    log = host.open_log()
    reader = CallReader(has_ended=turn.outcome is not None)
    offset = 0
    more = True
    while more:
        page = await log.read(turn_log_id(request.agent, request.session_id, request.turn_id), offset)
        reader.read(page.records)
        offset = page.next_offset
        more = page.has_more
    return reader


def _find_call(call: RouteRequest, reader: CallReader, turn: Turn) -> dict[str, Any]:
    name = call.path_part("call")
    for model_call in reader.calls():
        if model_call["name"] == name and not model_call["replayed"]:
            return model_call
    raise NotFoundError(f"turn {turn.request.turn_id!r} has no model call {name[:40]!r}, or it was not kept")


def _redacted_view(call: Mapping[str, Any], redactor: Redactor | None) -> dict[str, Any]:
    return dict(call) if redactor is None else {**call, "redacted": True}


def _body_view(
    reader: CallReader, name: str, side: Side, final_response: FinalResponse, redactor: Redactor | None
) -> dict[str, Any] | None:
    """Return a body: as JSON when it is complete, otherwise the known parts; None when there is none."""
    if (body_and_form := reader.body(name, side, final_response)) is None:
        return None
    body, form = body_and_form
    view: dict[str, Any] = {"form": form} if form else {}
    view["complete"] = body.is_complete
    if not body.is_complete:
        view["missing_characters"] = body.missing_characters
    text, is_complete_json = _text(body, redactor)
    if len(text) > INLINE_CHARACTERS:
        return view | {"body": None, "too_large": True}
    return view | ({"body": json.loads(text)} if is_complete_json else {"body": None, "text": text})


def _document(
    reader: CallReader, name: str, side: Side, final_response: FinalResponse, redactor: Redactor | None
) -> str | None:
    """Return a body's redacted JSON; None when it is not complete, or no JSON."""
    body_and_form = reader.body(name, side, final_response)
    text, is_complete_json = _text(body_and_form[0], redactor) if body_and_form is not None else ("", False)
    return text if is_complete_json else None


def _text(body: CallBody, redactor: Redactor | None) -> tuple[str, bool]:
    """Return a body's redacted text, and whether it is a complete JSON document."""
    if body.is_complete:
        try:
            value: Any = parse_strict(body.head)
        except (ValueError, RecursionError):
            return (body.head if redactor is None else redactor.text(body.head)), False
        return (body.head if redactor is None else json.dumps(redactor.value(value), ensure_ascii=False)), True
    text = f"{body.head}\n[… {body.missing_characters} characters that are not kept …]\n{body.tail}"
    return (text if redactor is None else redactor.text(text)), False


def _turn_url(call: RouteRequest, request: TurnRequest) -> str:
    session = f"{call.base_url}/agents/{quote(request.agent)}/sessions/{quote(request.session_id, safe='')}"
    return f"{session}/turns/{quote(request.turn_id, safe='')}"
