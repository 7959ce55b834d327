"""Removes from answers the mark that prefixes names in ids; see `durable_agent_host.session.ownership`.

A caller who chooses a taken name must see what a free name would show. The mark is a hash that nobody is shown, so
wherever it occurs in the caller's answer, it is the mark.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, cast

import azure.functions as func
from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.http.stream import DocumentStream, EventStream


def without_mark[AnswerT: (func.HttpResponse | Response)](answer: AnswerT, mark: str) -> AnswerT:
    """Remove the caller's mark from the ids in an answer.

    Args:
        answer: of a handler. Of files the headers alone are looked at: what they hold is what was said.
        mark: the caller's; empty when no id of the request can have it.

    Returns:
        The answer; the same object when it contains no mark.
    """
    if not mark:
        return answer
    if isinstance(answer, EventStream):
        answer.map(lambda events: _events_without(events, mark.encode()))
    if isinstance(answer, DocumentStream):
        answer.map(lambda parts: _parts_without(parts, mark.encode()))
    if isinstance(answer, Response):
        answer.raw_headers = [(name, value.replace(mark.encode(), b"")) for name, value in answer.raw_headers]
        return answer
    body, headers = answer.get_body(), cast("Any", answer.headers)
    if mark.encode() not in body and not any(mark in value for value in headers.values()):
        return answer
    told = {name: value.replace(mark, "") for name, value in headers.items()}
    return cast(
        "Any",
        func.HttpResponse(
            body.replace(mark.encode(), b""),
            status_code=answer.status_code,
            headers=told,
            mimetype=answer.mimetype,
            charset=answer.charset,
        ),
    )


async def _events_without(events: AsyncGenerator[bytes], mark: bytes) -> AsyncGenerator[bytes]:
    async with aclosing(events):
        async for told in events:  # each is one whole event
            yield told.replace(mark, b"")


async def _parts_without(parts: AsyncGenerator[bytes], mark: bytes) -> AsyncGenerator[bytes]:
    waiting = b""  # it may end with a part of the mark
    async with aclosing(parts):
        async for part in parts:
            whole = (waiting + part).replace(mark, b"")
            kept = max(0, len(whole) - len(mark) + 1)
            yield whole[:kept]
            waiting = whole[kept:]
    yield waiting
