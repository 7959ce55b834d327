"""Large answers: encoded off the event loop and in parts, so that other requests proceed."""

import json
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, cast

import azure.functions as func

from durable_agent_host.loops.aside import aside
from durable_agent_host.loops.giving_way import give_way


async def large_answer(
    count: int, view: Callable[[], Mapping[str, Any]], headers: Mapping[str, str]
) -> func.HttpResponse:
    """Answer 200 with JSON.

    Args:
        count: number of things in it; an answer about few is encoded on the loop.
        view: builds the body; touches nothing that the loop changes at the same time.
        headers: further headers.

    Raises:
        Exception: whatever the view raises.
    """
    text = await aside(count, lambda: _written(view()))
    return func.HttpResponse(text, status_code=int(HTTPStatus.OK), mimetype="application/json", headers=dict(headers))


def _written(value: Any) -> str:
    """Encode JSON as `json.dumps` does, pausing between the parts of its lists."""
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        return f"{{{', '.join([f'{json.dumps(name)}: {_written(one)}' for name, one in members.items()])}}}"
    if not isinstance(value, list):
        return json.dumps(value)
    parts: list[str] = []
    for one in cast("list[Any]", value):
        give_way()
        parts.append(json.dumps(one))
    return f"[{', '.join(parts)}]"
