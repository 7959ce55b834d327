"""The routes that show what a turn sent to the model, and what came back."""

import asyncio
import json
from collections.abc import Mapping
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Final, cast
from urllib.parse import quote, urlsplit

import azure.functions as func
from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.codec.strict_json import parse_strict
from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import NotFoundError
from durable_agent_host.http.answers import json_answer, turn_headers
from durable_agent_host.http.calls import Answer, Call, Host
from durable_agent_host.http.parse import parse_limit
from durable_agent_host.http.steps import parse_place
from durable_agent_host.http.turns import named_turn, turn_conflict
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.turn import Turn, TurnRequest
from durable_agent_host.turn.body_delta import Piece, whole_text
from durable_agent_host.turn.call_reader import BodyPlace, CallReader, Side, put_together
from durable_agent_host.turn.recorded_test import text_of_test, why_no_test
from durable_agent_host.turn.redactor import Redactor

INLINE_CHARACTERS: Final = 512 * 1024
"""Largest body, in characters, in the JSON answer; a larger one must be downloaded."""

_MOST_LOGS: Final = 1000
"""Maximum logs of earlier turns read for one body."""

_CALLS: Final = 100


async def list_calls(host: Host, call: Call, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/calls``: the model calls of a turn without their bodies; ``limit`` from ``cursor``."""
    limit, first = parse_limit(call.query.get("limit"), default=_CALLS), parse_place(call.query.get("cursor"))
    turn = await named_turn(host, call, client)
    request, redactor = turn.request, client.keeper.redactor_of(turn.request.agent)
    calls = [*(await _Bodies(host, turn).reader()).calls()]
    shown = [_shown(one, redactor) for one in calls[first : first + limit]]
    following = str(first + limit) if first + limit < len(calls) else None
    return json_answer(HTTPStatus.OK, {"calls": shown, "cursor": following}, turn_headers(request))


async def read_call(host: Host, call: Call, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/calls/{call}``: one call with both bodies, as far as they are kept."""
    turn = await named_turn(host, call, client)
    redactor, bodies = client.keeper.redactor_of(turn.request.agent), _Bodies(host, turn)
    view, name = await _named_call(call, bodies, turn)
    url = f"{_turn_url(call, turn.request)}/calls/{quote(name, safe='')}"
    view = _shown(view, redactor)
    for side in ("request", "answer"):
        if (known := await bodies.pieces(name, side)) is not None:
            said = cast("Mapping[str, Any]", view[side] or {})
            shown = await asyncio.to_thread(_body_view, *known, redactor)
            view[side] = {**said, **shown, "url": f"{url}/{side}"}
    return json_answer(HTTPStatus.OK, view, turn_headers(turn.request))


async def read_body(host: Host, call: Call, client: TurnClient) -> Answer:
    """``GET …/turns/{turn}/calls/{call}/{body}``: ``request`` or ``answer`` as a download; names what is not kept."""
    turn = await named_turn(host, call, client)
    redactor, bodies = client.keeper.redactor_of(turn.request.agent), _Bodies(host, turn)
    _, name = await _named_call(call, bodies, turn)
    asked = call.path_part("body")
    known = await bodies.pieces(name, asked) if asked in ("request", "answer") else None
    if known is None:
        raise NotFoundError(f"call {name!r} has no body {asked[:40]!r}: ask for 'request' or 'answer'")
    text, is_whole = await asyncio.to_thread(_text, known[0], redactor)
    headers = {
        "content-type": "application/json; charset=utf-8" if is_whole else "text/plain; charset=utf-8",
        "content-disposition": f'attachment; filename="{name}-{asked}.{"json" if is_whole else "txt"}"',
        "x-content-type-options": "nosniff",
        "cache-control": "private, no-store",
    }
    return Response(text.encode("utf-8", "replace"), headers=headers | turn_headers(turn.request))


async def read_test(host: Host, call: Call, client: TurnClient) -> func.HttpResponse:
    """``GET …/turns/{turn}/test``: the turn as a pytest test, with the model's answers as a recording."""
    turn = await named_turn(host, call, client)
    redactor, bodies = client.keeper.redactor_of(turn.request.agent), _Bodies(host, turn)
    if (reason := why_no_test(turn)) is not None:
        return turn_conflict(turn, reason)
    made: list[tuple[Any, Any]] = []
    for one in (await bodies.reader()).calls():
        if one["replayed"] or one["outcome"] != "completed":
            continue
        kept = [await bodies.pieces(one["name"], side) for side in ("request", "answer")]
        views = [await asyncio.to_thread(_body_text, known[0], redactor) if known else None for known in kept]
        if any(view is None for view in views):
            return turn_conflict(turn, f"call {one['name']} of the turn is not kept as a whole, so it cannot be played")
        made.append((json.loads(str(views[0])), json.loads(str(views[1]))))
    path = f"{urlsplit(call.base_url).path}/agents/{quote(turn.request.agent)}/run"
    text = text_of_test(turn, made, path)
    if text is None:
        return turn_conflict(turn, "the turn has no calls that are kept, or they are not of the Responses API")
    named = {"content-disposition": f'attachment; filename="test_turn_{turn.request.turn_id[:12]}.py"'}
    headers = turn_headers(turn.request) | (named if turn.request.turn_id.isalnum() else {})
    return func.HttpResponse(text, mimetype="text/x-python", charset="utf-8", headers=headers)


def _body_text(pieces: list[Piece], redactor: Redactor | None) -> str | None:
    text, is_whole = _text(pieces, redactor)
    return text if is_whole else None


async def _named_call(call: Call, bodies: "_Bodies", turn: Turn) -> tuple[dict[str, Any], str]:
    name = call.path_part("call")
    reader = await bodies.reader()
    for one in reader.calls():
        if one["name"] == name and not one["replayed"]:
            return one, name
    raise NotFoundError(f"turn {turn.request.turn_id!r} has no model call {name[:40]!r}, or it was not kept")


class _Bodies:
    """Reads bodies from the logs of a session's turns.

    Args:
        host: opens the log.
        turn: the turn whose calls are read.
    """

    def __init__(self, host: Host, turn: Turn) -> None:
        self._log = host.open_log()
        self._turn = turn
        self._readers: dict[str, CallReader] = {}

    async def reader(self, turn_id: str = "") -> CallReader:
        """Return the reader of a turn's log; read it once."""
        request = self._turn.request
        turn_id = turn_id or request.turn_id
        if (known := self._readers.get(turn_id)) is not None:
            return known
        is_own = turn_id == request.turn_id
        reader = CallReader(turn_id, has_ended=not is_own or self._turn.outcome is not None)
        offset, more = 0, True
        while more:
            page = await self._log.read(turn_log_id(request.agent, request.session_id, turn_id), offset)
            reader.read(page.records)
            offset, more = page.next_offset, page.has_more
        self._readers[turn_id] = reader
        return reader

    async def pieces(self, name: str, side: Side) -> tuple[list[Piece], str | None] | None:
        """Assemble a body, with the SHA-256 of the whole; None when nothing of it was kept."""
        chain: dict[BodyPlace, Mapping[str, Any]] = {}
        place: BodyPlace | None = BodyPlace(self._turn.request.turn_id, name, side)
        while place is not None and place not in chain and len(self._readers) <= _MOST_LOGS:
            reader = await self.reader(place.turn_id)
            if (body := reader.body(place.name, side)) is None:
                break
            chain[place] = body
            place = reader.base(place.name, side)
        if not chain:
            return None
        bodies = [*chain.values()]
        digest = bodies[0].get("sha256")
        pieces = await asyncio.to_thread(put_together, bodies[::-1])
        return pieces, digest if isinstance(digest, str) else None


def _shown(call: Mapping[str, Any], redactor: Redactor | None) -> dict[str, Any]:
    return dict(call) if redactor is None else {**call, "redacted": True}


def _body_view(pieces: list[Piece], digest: str | None, redactor: Redactor | None) -> dict[str, Any]:
    """Return a body: as JSON when it is complete, otherwise the known parts."""
    text = whole_text(pieces)
    is_complete = text is not None and sha256(text.encode("utf-8", "replace")).hexdigest() == digest
    missing = sum(piece for piece in pieces if isinstance(piece, int))
    said: dict[str, Any] = {"complete": is_complete} | ({"missing_characters": missing} if missing else {})
    shown, is_whole = _text(pieces, redactor)
    if len(shown) > INLINE_CHARACTERS:
        return said | {"body": None, "too_large": True}
    if is_whole:
        return said | {"body": json.loads(shown)}
    return said | {"body": None, "text": shown}


def _text(pieces: list[Piece], redactor: Redactor | None) -> tuple[str, bool]:
    """Return a body's redacted text, and whether it is a complete JSON document."""
    text = whole_text(pieces)
    if text is not None:
        try:
            value: Any = parse_strict(text)
        except (ValueError, RecursionError):
            return (text if redactor is None else redactor.text(text)), False
        return (text if redactor is None else json.dumps(redactor.value(value), ensure_ascii=False)), True
    told = "".join(one if isinstance(one, str) else f"\n[… {one} characters that are not kept …]\n" for one in pieces)
    return (told if redactor is None else redactor.text(told)), False


def _turn_url(call: Call, request: TurnRequest) -> str:
    session = f"{call.base_url}/agents/{quote(request.agent)}/sessions/{quote(request.session_id, safe='')}"
    return f"{session}/turns/{quote(request.turn_id, safe='')}"
