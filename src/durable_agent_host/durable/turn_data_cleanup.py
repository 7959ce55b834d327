"""Deletes what only a running turn needs, soon after its end, for apps that redact stored data.

The journal, the request and people's answers are kept unredacted, so that a turn cut off by a crash resumes with the
same bytes. Nobody needs them once the turn has ended. Clients that read its events get a few seconds to read the last
ones; later clients get only the answer.

The turns that end in a process within a few seconds are recorded in one log, a batch, and one orchestration deletes
everything they left: erasing text from a file costs the same for one turn as for many. An orchestration survives the
death of the process.
"""

import asyncio
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final
from uuid import uuid4

from azure.durable_functions import DurableOrchestrationClient, DurableOrchestrationContext

from durable_agent_host.durable.instance_status import has_ended
from durable_agent_host.errors import FencedError
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.log_entry import ENDED_TURN, LogEntry
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.segments.turn_data_storage import TurnDataStorage, unredacted_namespace
from durable_agent_host.turn_log.crash_points import reach
from durable_agent_host.turn_log.protocol import TurnLog

CLEANUP_ORCHESTRATION: Final = "forget_turn"
CLEANUP_ACTIVITY: Final = "forget_agent_turn"
READERS_SECONDS: Final = 10.0
"""Minimum time for clients that follow a turn to read its last events."""
BATCH_SECONDS: Final = 5.0
"""How long a batch accepts turns; their data is deleted `READERS_SECONDS` later."""

_PAUSES: Final = (BATCH_SECONDS + READERS_SECONDS, 10.0, 60.0, *(600.0,) * 144)
"""Pauses before each attempt: a store outage of a day delays it without ending it."""
_MAX_STATUS_READS: Final = 8
_MAX_DELETIONS: Final = 64


@dataclass(frozen=True)
class _Batch:
    """A log of ended turns, and until when it accepts more, by the monotonic clock."""

    log_id: str
    attempt: int
    until: float


class TurnDataCleanup:
    """Records the ended turns of this process.

    Args:
        open_log: returns the turn log of the process.
    """

    def __init__(self, open_log: Callable[[], TurnLog]) -> None:
        self._open_log = open_log
        self._opening = asyncio.Lock()
        self._batch: _Batch | None = None

    async def schedule(self, client: DurableOrchestrationClient, turn: Mapping[str, str]) -> None:
        """Schedule the deletion of an ended turn's data.

        Raises:
            LogError: the turn log does not answer.
            Exception: the SDK's: the orchestration could not be started.
        """
        entry = LogEntry(ENDED_TURN, dict(turn))
        log = self._open_log()
        batch = await self._open(client)
        try:
            await log.append(batch.log_id, [entry], attempt=batch.attempt)
        except FencedError:  # this process was suspended, and the batch was completed in the meantime
            self._batch = None
            batch = await self._open(client)
            await log.append(batch.log_id, [entry], attempt=batch.attempt)

    async def _open(self, client: DurableOrchestrationClient) -> _Batch:
        async with self._opening:
            if self._batch is None or self._batch.until < time.monotonic():
                log_id = uuid4().hex
                until = time.monotonic() + BATCH_SECONDS
                attempt = await self._open_log().open(log_id)
                await client.start_new(CLEANUP_ORCHESTRATION, log_id, {"batch": log_id})
                self._batch = _Batch(log_id, attempt, until)
            return self._batch


def run_cleanup(context: DurableOrchestrationContext) -> Generator[Any, Any, bool]:
    """Delete the data of turns, as an orchestration.

    Returns:
        Whether it is deleted; otherwise it goes with the retention of turn logs.
    """
    sdk: Any = context
    activity_input = sdk.get_input()
    for pause in _PAUSES:
        yield sdk.create_timer(sdk.current_utc_datetime + timedelta(seconds=pause))
        try:
            if (yield sdk.call_activity(CLEANUP_ACTIVITY, activity_input)):
                return True
        except Exception:  # noqa: BLE001, S112 - whatever it is, the next attempt begins where this one ended
            continue
    return False


async def delete_turn_data(
    wire: Mapping[str, Any], client: DurableOrchestrationClient, log: TurnLog, storage: TurnDataStorage
) -> bool:
    """Delete the logs of ended turns, and the pieces with what was said in them.

    Returns:
        False when one of them runs, perhaps again; the others' data is deleted.

    Raises:
        LogError: a store does not answer.
    """
    batch = wire["batch"]
    turns = await _turns_of(log, batch)
    are_over = await _have_ended(client, turns)
    ended_turns = [turn for turn, is_over in zip(turns, are_over, strict=True) if is_over]
    log_ids = [turn_log_id(turn["agent"], turn["session_id"], turn["turn_id"]) for turn in ended_turns]
    is_done = len(ended_turns) == len(turns)
    reach("forget.before_delete")
    await _delete_pieces(storage.open_store(), [unredacted_namespace(log_id) for log_id in log_ids])
    reach("forget.between")
    if is_done:
        log_ids.append(batch)  # with the others, so that one cleaning of the file is enough
    if log_ids:
        await log.delete(*log_ids)
    reach("forget.after_delete")
    return is_done


async def _turns_of(log: TurnLog, batch: str) -> list[Mapping[str, Any]]:
    """Read the turns that a batch names; none when it was completed before."""
    turns: dict[str, Mapping[str, Any]] = {}
    offset = 0
    has_more = True
    while has_more:
        page = await log.read(batch, offset)
        for record in page.records:
            if record.entry.kind == ENDED_TURN:
                turns[str(record.entry.data["turn_id"])] = record.entry.data
        offset = page.next_offset
        has_more = page.has_more
    return list(turns.values())


async def _delete_pieces(store: BlobStore, namespaces: Sequence[str]) -> None:
    """Delete all pieces of homes concurrently, so that the deletions share one cleaning of the file."""
    slots = asyncio.Semaphore(_MAX_DELETIONS)

    async def delete(namespace: str) -> None:
        async with slots:
            if names := [piece.name async for piece in store.list_blobs(namespace)]:
                await store.delete(namespace, names)

    await asyncio.gather(*map(delete, namespaces))


async def _have_ended(client: DurableOrchestrationClient, turns: Sequence[Mapping[str, Any]]) -> list[bool]:
    slots = asyncio.Semaphore(_MAX_STATUS_READS)

    async def ask(turn: Mapping[str, Any]) -> bool:
        async with slots:
            return await has_ended(client, str(turn["turn_id"]))

    return await asyncio.gather(*map(ask, turns))
