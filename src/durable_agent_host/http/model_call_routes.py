"""The routes that show what a turn sent to the model, and what came back."""

import asyncio
import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.strict_json import parse_strict
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import NotFoundError
from durable_agent_host.http.parse import parse_limit, parse_position
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest, read_log
from durable_agent_host.http.response_views import json_response, turn_headers, turn_urls
from durable_agent_host.http.turn_routes import named_turn
from durable_agent_host.model.turn import Turn
from durable_agent_host.turn.call_body import CallBody
from durable_agent_host.turn.model_call_reader import (
    CallReader,
    ModelCallBodyWire,
    ModelCallPageWire,
    ModelCallWire,
    Side,
)
from durable_agent_host.turn.recorded_stream import FinalResponse
from durable_agent_host.turn.turn_redactor import Redactor

INLINE_CHARACTERS: Final = 512 * 1024
"""Largest body, in characters, in the JSON answer; a larger one must be downloaded."""

_CALLS: Final = 100
"""Default number of calls in a page."""
_SIDES: Final[dict[str, Side]] = {"request": "request", "answer": "answer"}


@dataclass(frozen=True)
class _TurnCalls:
    """The model calls of a turn, as its callers may see them."""

    turn: Turn
    reader: CallReader
    redactor: Redactor | None
    final_response: FinalResponse

    def views(self) -> list[ModelCallWire]:
        calls = self.reader.calls()
        return calls if self.redactor is None else [{**call, "redacted": True} for call in calls]

    def find(self, name: str) -> ModelCallWire:
        for view in self.views():
            if view["name"] == name and not view["replayed"]:
                return view
        raise NotFoundError(f"turn {self.turn.request.turn_id!r} has no model call {name[:40]!r}, or it was not kept")

    async def body(self, name: str, side: Side) -> "_Body | None":
        return await asyncio.to_thread(self._read_body, name, side)

    def _read_body(self, name: str, side: Side) -> "_Body | None":
        if (body_and_form := self.reader.body(name, side, self.final_response)) is None:
            return None
        body, form = body_and_form
        return _Body(body, form, *_text(body, self.redactor))


@dataclass(frozen=True)
class _Body:
    """A body with its redacted text, which is JSON when the body is a complete JSON document."""

    body: CallBody
    form: str
    text: str
    is_json: bool

    def view(self) -> ModelCallBodyWire:
        """Return the body: as JSON when it is complete, otherwise the known parts."""
        view: ModelCallBodyWire = {"complete": self.body.is_complete}
        if self.form:
            view["form"] = self.form
        if not self.body.is_complete:
            view["missing_characters"] = self.body.missing_characters
        if len(self.text) > INLINE_CHARACTERS:
            return {**view, "body": None, "too_large": True}
        if self.is_json:
            return {**view, "body": json.loads(self.text)}
        return {**view, "body": None, "text": self.text}


async def list_calls(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET …/turns/{turn}/calls``: the model calls of a turn without their bodies; ``limit`` from ``cursor``."""
    limit = parse_limit(call.query, default=_CALLS)
    first = parse_position(call.query) or 0
    calls = await _read_calls(host, call, client)
    views = calls.views()
    following = str(first + limit) if first + limit < len(views) else None
    body = ModelCallPageWire(calls=views[first : first + limit], cursor=following)
    return json_response(HTTPStatus.OK, body, turn_headers(calls.turn.request))


async def read_call(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET …/turns/{turn}/calls/{call}``: one call with both bodies, as far as they are kept."""
    calls = await _read_calls(host, call, client)
    request = calls.turn.request
    view = calls.find(call.path_part("call"))
    url = f"{turn_urls(call.base_url, request)['turn_url']}/calls/{quote(view['name'], safe='')}"
    for side in _SIDES.values():
        if (body := await calls.body(view["name"], side)) is not None:
            body_view = await asyncio.to_thread(body.view)
            body_view |= view.get(side) or ModelCallBodyWire()
            body_view["url"] = f"{url}/{side}"
            view[side] = body_view
    return json_response(HTTPStatus.OK, view, turn_headers(request))


async def read_body(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET …/turns/{turn}/calls/{call}/{body}``: ``request`` or ``answer`` as a download; names what is not kept."""
    calls = await _read_calls(host, call, client)
    name = calls.find(call.path_part("call"))["name"]
    side_name = call.path_part("body")
    side = _SIDES.get(side_name)
    body = await calls.body(name, side) if side is not None else None
    if body is None:
        raise NotFoundError(f"call {name!r} has no body {side_name[:40]!r}: ask for 'request' or 'answer'")
    headers = {
        "content-type": "application/json; charset=utf-8" if body.is_json else "text/plain; charset=utf-8",
        "content-disposition": f'attachment; filename="{name}-{side_name}.{"json" if body.is_json else "txt"}"',
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-store",
    }
    return Response(body.text.encode("utf-8", "replace"), headers=headers | turn_headers(calls.turn.request))


async def _read_calls(host: HandlerContext, call: RouteRequest, client: TurnClient) -> _TurnCalls:
    """Read the log of the turn named by the path."""
    turn = await named_turn(host, call, client)
    agent = turn.request.agent
    reader = CallReader(has_ended=turn.outcome is not None)
    async for records in read_log(host, turn.request):
        reader.read(records)
    return _TurnCalls(turn, reader, client.storage.redactor_of(agent), host.agents[agent].final_response)


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
