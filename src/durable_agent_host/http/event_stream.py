"""A turn as a stream: its log, followed, and how it ended.

Theory of operation: entries are sent as the log receives them; the end is not in the log, it is the outcome of the
turn's orchestration. So a stream follows the log and waits for the orchestration at the same time. Once the outcome is
there, nothing more is appended: the stream sends the rest of the log, then one terminal event, whose id is the offset
after the last entry. The next page is read when the client has taken the previous one, so a slow client costs one page.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Container, Mapping
from contextlib import aclosing, suppress
from typing import Any, Final

from azurefunctions.extensions.http.fastapi import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from durable_agent_host.durable.turn_client import TurnClient, is_store_error
from durable_agent_host.errors import LogError, StateError, TurnTimedOutError
from durable_agent_host.http.response_views import terminal_event, turn_urls, with_file_urls
from durable_agent_host.http.sse import HEARTBEAT, OPENING, STREAM_HEADERS, encode_event
from durable_agent_host.model.log_entry import EVENT, OUTCOME, LogPage
from durable_agent_host.model.turn import Turn, TurnOutcome, TurnRequest
from durable_agent_host.turn.turn_events import CALL_PENDING, TURN_QUEUED, ProblemWire, RunAnswerWire, turn_queued
from durable_agent_host.turn_log.protocol import TurnLog

_LOGGER = logging.getLogger(__name__)

PAGE_BYTES: Final = 64 * 1024
HEARTBEAT_SECONDS: Final = 15.0
"""Longest silence on a stream: proxies commonly give up after 30 or 60 s."""
FIRST_SIGN_SECONDS: Final = 1.0
"""The answer's status waits this long for a sign of the turn, so that a refusal is a status and not an event."""

_LONG_WAIT_SECONDS: Final = 60.0
_FIRST_POLL_SECONDS: Final = 2.0
_MAX_POLL_SECONDS: Final = 10.0
"""Slowest poll. The orchestration and the log announce nearly every end; only one made by an operator needs polling."""
_AWAY_SECONDS: Final = 1.0
_REST_SECONDS: Final = 5.0
_MAX_CACHED_CHARACTERS: Final = 64 * 1024


class PartStream(StreamingResponse):
    """A body that is sent as its client reads it; if it cannot be completed, the response breaks off.

    It releases its resources when the client leaves.

    Args:
        parts: of the body.
        headers: all headers.
    """

    def __init__(self, parts: AsyncGenerator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(parts, headers=headers)
        self.parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the parts as they come."""
        async with aclosing(self.parts):
            await super().__call__(scope, receive, send)

    async def aclose(self) -> None:
        """Release the resources, for a reader of the parts."""
        await self.parts.aclose()


class EventStream(PartStream):
    """A stream of events, with heartbeats while it is silent.

    Args:
        events: as bytes.
        headers: further headers.
    """

    def __init__(self, events: AsyncGenerator[bytes], headers: Mapping[str, str]) -> None:
        super().__init__(events, {**STREAM_HEADERS, **headers})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come, and heartbeats until the last."""
        loop = asyncio.get_running_loop()
        sent_at = math.inf

        async def send_part(message: Message) -> None:
            nonlocal sent_at
            is_end = message["type"] == "http.response.body" and not message.get("more_body")
            sent_at = math.inf if is_end else loop.time()
            await send(message)

        async def send_heartbeats() -> None:
            while True:
                await asyncio.sleep(HEARTBEAT_SECONDS / 2)
                if loop.time() - sent_at >= HEARTBEAT_SECONDS / 2:
                    await send_part({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})

        heartbeats = asyncio.create_task(send_heartbeats())
        try:
            await super().__call__(scope, receive, send_part)
        finally:
            await _cancel(heartbeats)


async def first_sign(log: TurnLog, client: TurnClient, request: TurnRequest) -> TurnOutcome | None:
    """Wait for the first sign of a turn: it runs, was refused, or stands behind a turn that waits.

    Returns:
        The outcome when the turn never ran; None when it runs, has run, or is behind a turn that waits.

    Raises:
        LogError: the log's store does not answer.
    """
    log_id = request.log_id
    async with aclosing(log.follow(log_id, max_bytes=1)) as pages:
        sign = asyncio.ensure_future(anext(pages, None))
        wait = client.wait(request.turn_id, seconds=FIRST_SIGN_SECONDS, first_poll_seconds=FIRST_SIGN_SECONDS / 2)
        end = asyncio.create_task(wait)
        block = asyncio.create_task(client.wait_for_block(request, seconds=FIRST_SIGN_SECONDS))
        either = asyncio.create_task(_wait_for_either(end, block))
        try:
            await asyncio.wait({sign, either}, return_when=asyncio.FIRST_COMPLETED)
            if sign.done():
                sign.result()
                return None
            if either.result() is not None:
                return None
            outcome = end.result().outcome
        except TurnTimedOutError:
            return None
        finally:
            await _cancel(sign, end, block, either)
    has_run = bool((await log.read(log_id, max_bytes=1)).records)
    return None if has_run else outcome


async def follow_turn(
    log: TurnLog,
    client: TurnClient,
    request: TurnRequest,
    first_offset: int,
    *,
    base_url: str,
    has_ended: bool,
    hidden_events: Container[str],
) -> AsyncGenerator[bytes]:
    """Stream a turn's past and future events, and how it ends.

    Yields:
        Bytes of the stream; the terminal event comes last and once. When the log is closed because the process ends,
        or an entry is damaged, the stream ends without a terminal event, and the client reconnects.

    Raises:
        LogError: the turn has an answer, but the rest of its log cannot be read; the client reconnects.
    """
    log_id = request.log_id
    offset = first_offset
    has_run = False
    yield OPENING
    end = asyncio.create_task(_wait_for_end(client, request, has_ended=has_ended))
    try:
        async with aclosing(_follow_queued(log, client, request, first_offset, end)) as pages:
            async for page in pages:
                if isinstance(page, bytes):
                    yield page
                    continue
                offset = page.next_offset
                has_run = page.records[-1].entry.kind == OUTCOME
                if has_run:
                    client.hint(request.turn_id)
                if data := _encode_page(page, request, base_url, hidden_events):
                    yield data
        if not end.done():
            return
        turn = end.result()
        while not has_run and (page := await _read_rest(log, log_id, offset, turn)).records:
            offset = page.next_offset
            if data := _encode_page(page, request, base_url, hidden_events):
                yield data
        end_id = await _end_id(log, log_id, offset, turn, first_offset)
        yield encode_event(*await _terminal_event(client, request, turn, base_url), end_id)
    except Exception as error:  # noqa: BLE001 - raised again unless it is known
        _cut_off(request, error)
    finally:
        await _cancel(end)


def _cut_off(request: TurnRequest, error: Exception) -> None:
    """Log why a stream ends before the turn's end is sent; raise what no reconnection would explain."""
    if not isinstance(error, StateError) and not is_store_error(error):
        raise error
    reason = "something stored cannot be read" if isinstance(error, StateError) else "the durable store does not answer"
    _LOGGER.warning("a stream of turn %s was cut off: %s: %s", request.turn_id, reason, error)


async def check_readable(log: TurnLog, request: TurnRequest, first_offset: int) -> None:
    """Check that a stream can begin: afterwards, it can only be cut off.

    Raises:
        StateError: the first page cannot be read. The stream itself waits for a store that does not answer.
    """
    with suppress(LogError):
        await log.read(request.log_id, first_offset, max_bytes=PAGE_BYTES)


async def has_all_events(log: TurnLog, request: TurnRequest, outcome: TurnOutcome, last_event_id: int) -> bool:
    """Return whether a client that has an event of an ended turn also has the terminal one.

    Returns:
        True for the terminal event's id, and for greater ones; False also when the log is gone, which had the ids.

    Raises:
        StateError: the log cannot be read.
    """
    if outcome.status == "rejected":  # it never had a log
        return True
    log_id = request.log_id
    try:
        async with asyncio.timeout(_REST_SECONDS):
            is_last = not (await log.read(log_id, last_event_id, max_bytes=1)).records
            return is_last and bool((await log.read(log_id, max_bytes=1)).records)
    except (LogError, TimeoutError):
        return False


async def _follow_queued(
    log: TurnLog, client: TurnClient, request: TurnRequest, offset: int, end: "asyncio.Task[Turn | None]"
) -> AsyncGenerator[LogPage | bytes]:
    """Follow a log until the turn ends; yield an event, too, if the turn first stands behind one that waits.

    That event has the id 0: the log's first entry, which no client gets.
    """
    log_id = request.log_id
    block = asyncio.create_task(client.wait_for_block(request, seconds=0.0 if offset else math.inf))
    until = asyncio.create_task(_wait_for_either(end, block))
    try:
        async with aclosing(_follow(log, log_id, offset, until)) as pages:
            async for page in pages:
                offset = page.next_offset
                yield page
        running = until.result() if until.done() else None
        if running is None:
            return
        data = turn_queued(request, running, may_read=await client.can_read(running.request))
        yield encode_event(TURN_QUEUED, data, 0)
        async with aclosing(_follow(log, log_id, offset, end)) as pages:
            async for page in pages:
                yield page
    finally:
        await _cancel(block, until)


async def _wait_for_either(end: asyncio.Task[Any], block: "asyncio.Task[Turn | None]") -> Turn | None:
    """Wait until a turn has ended, or stands behind a turn that waits, which is returned."""
    await asyncio.wait({end, block}, return_when=asyncio.FIRST_COMPLETED)
    if not end.done() and (running := block.result()) is not None:
        return running
    await asyncio.wait({end})
    return None


async def _follow(log: TurnLog, log_id: str, offset: int, end: "asyncio.Task[Turn | None]") -> AsyncGenerator[LogPage]:
    """Follow a log until the turn ends, also while its store does not answer."""
    while not end.done():
        try:
            async with aclosing(log.follow(log_id, offset, max_bytes=PAGE_BYTES, until=end)) as pages:
                async for page in pages:
                    offset = page.next_offset
                    yield page
        except LogError:
            await asyncio.wait({end}, timeout=_AWAY_SECONDS)
        else:
            return


async def _read_rest(log: TurnLog, log_id: str, offset: int, turn: Turn | None) -> LogPage:
    """Read the rest of an ended turn's log; nothing when the turn has no answer and the log cannot be read."""
    try:
        async with asyncio.timeout(_REST_SECONDS):
            return await log.read(log_id, offset, max_bytes=PAGE_BYTES)
    except (LogError, TimeoutError) as error:
        if turn is not None and turn.outcome is not None and turn.outcome.status in {"failed", "rejected"}:
            return LogPage((), offset)
        raise LogError("the turn log does not respond: reconnect for the rest") from error


async def _end_id(log: TurnLog, log_id: str, offset: int, turn: Turn | None, first_offset: int) -> int:
    """Return the id of the terminal event."""
    if offset == first_offset > 0 and not (await _read_rest(log, log_id, offset - 1, turn)).records:
        return offset - 1  # the client has the terminal event, or claims more than there is
    return offset


async def _wait_for_end(client: TurnClient, request: TurnRequest, *, has_ended: bool) -> Turn | None:
    """Wait until the turn has ended or no longer exists; return it if its answer is short.

    A slow reader keeps no long answer in memory: it is read when it is sent.
    """
    while not has_ended:
        with suppress(TurnTimedOutError):
            turn = await client.wait(
                request.turn_id,
                seconds=_LONG_WAIT_SECONDS,
                first_poll_seconds=_FIRST_POLL_SECONDS,
                max_poll_seconds=_MAX_POLL_SECONDS,
            )
            return turn if turn.outcome and len(turn.outcome.text) <= _MAX_CACHED_CHARACTERS else None
        has_ended = await client.find(request.agent, request.session_id, request.turn_id) is None
    return None


async def _terminal_event(
    client: TurnClient, request: TurnRequest, turn: Turn | None, base_url: str
) -> tuple[str, RunAnswerWire | ProblemWire]:
    turn = turn or await client.find(request.agent, request.session_id, request.turn_id)
    if turn is None or turn.outcome is None:
        deleted_error = {"type": "TurnError", "message": "the turn no longer exists: its session was deleted or reset"}
        return terminal_event(request, TurnOutcome(request.turn_id, "failed", error=deleted_error), base_url)
    return terminal_event(request, turn.outcome, base_url)


def _encode_page(page: LogPage, request: TurnRequest, base_url: str, hidden_events: Container[str]) -> bytes:
    return b"".join(
        encode_event(name, _with_urls(name, record.entry.data["data"], request, base_url), record.offset)
        for record in page.records
        if record.entry.kind == EVENT and (name := record.entry.data["event"]) not in hidden_events
    )


def _with_urls(name: str, data: Mapping[str, Any], request: TurnRequest, base_url: str) -> Mapping[str, Any]:
    """Add the URLs of files, and that for the answer to a pending call; no log has URLs."""
    if name == CALL_PENDING:
        return {**data, "answer_url": f"{turn_urls(base_url, request)['turn_url']}/answers"}
    return with_file_urls(data, request, base_url)


async def _cancel(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
