"""One attempt of a turn at its log: what earlier attempts have left, and where this one writes."""

import asyncio
from typing import Self

from agent_framework import AgentResponseUpdate

from durable_agent_host.codec.turn import decode_turn_outcome, encode_turn_outcome
from durable_agent_host.errors import FencedError
from durable_agent_host.log.crash import reach
from durable_agent_host.log.journal import Journal, Recorded, read_journal
from durable_agent_host.log.log import TurnLog
from durable_agent_host.log.writer import TurnLogWriter
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turns.events import FinishedCalls, LiveEvents, turn_restarted, turn_started


class Attempt:
    """An attempt of a turn. Made by `Attempt.open`.

    Args:
        log: of the process.
        request: what was asked.
        number: of the attempt, from 1.
        finished_calls: what only the provider's own part of an update says.

    Attributes:
        log_id: the turn's log.
        recorded: what was there when the current run of the agent began.
    """

    def __init__(self, log: TurnLog, request: TurnRequest, number: int, finished_calls: FinishedCalls) -> None:
        self.log_id = _log_id(request)
        self.recorded = Recorded()
        self._log = log
        self._writer = TurnLogWriter(log, self.log_id, number, interval_seconds=log.interval_seconds)
        self._finished_calls = finished_calls
        self._events = LiveEvents(finished_calls)
        self._journal = Journal(self.recorded, self._writer, self.log_id)

    @classmethod
    async def open(cls, log: TurnLog, request: TurnRequest, finished_calls: FinishedCalls) -> Self:
        """Begin an attempt; earlier ones cannot write any more.

        Args:
            log: of the process.
            request: what was asked.
            finished_calls: what only the provider's own part of an update says.

        Returns:
            The attempt; its clients know that the turn has begun.

        Raises:
            LogError: the store does not answer.
        """
        number = await log.open(_log_id(request))
        reach("turn.after_open")
        attempt = cls(log, request, number, finished_calls)
        if number > 1:
            attempt.recorded = await read_journal(log, attempt.log_id)
        if not attempt.recorded.has_begun and attempt.outcome is None:
            await attempt._writer.put(*turn_started(request))
        return attempt

    @property
    def outcome(self) -> TurnOutcome | None:
        """How an earlier attempt ended the turn, or None."""
        return decode_turn_outcome(self.recorded.outcome) if self.recorded.outcome is not None else None

    async def read_again(self) -> Recorded:
        """Read what is recorded now, with all that this attempt has written."""
        await self._writer.flush()
        self.recorded = await read_journal(self._log, self.log_id)
        return self.recorded

    async def begin_run(self, *, tells_functions: bool) -> Journal:
        """Begin a run of the agent.

        Args:
            tells_functions: whether the agent's updates are all that tells of its function tools.

        Returns:
            The run's journal; clients know what they have to discard.
        """
        self._events = LiveEvents(self._finished_calls, tells_functions=tells_functions)
        if self.recorded.discard_from is not None:
            await self._writer.put(*turn_restarted(self.recorded.discard_from))
            self.recorded.discard_from = None
        self._journal = Journal(self.recorded, self._writer, self.log_id)
        return self._journal

    async def tell(self, update: AgentResponseUpdate, *, is_replayed: bool) -> None:
        """Tell clients of an update, unless they have been told.

        Raises:
            FencedError: a later attempt has begun; this one has to stop.
            LogError: the store does not answer.
        """
        for event in self._events.feed(update):
            if not is_replayed:
                await self._writer.put(*event)

    async def end(self, outcome: TurnOutcome) -> None:
        """Note how the attempt ended; all of it is durable when this returns.

        A turn that waits for a person has not ended: its next attempt goes on from the journal.

        Args:
            outcome: what the activity returns.

        Raises:
            FencedError: a later attempt has begun; the outcome is void.
            LogError: the store does not answer.
        """
        if outcome.status == "completed":
            for event in self._events.finish(outcome.text):
                await self._writer.put(*event)
        if outcome.status == "cancelled":
            for key, known in self.recorded.tools.items():
                if key.position >= 0 and known.starts and known.finished is None:
                    await self._writer.put("tool.completed", {"call_id": key.call_id, "outcome": "unknown"})
        if outcome.status != "suspended":
            await self._journal.close(encode_turn_outcome(outcome))
        await self._writer.close()

    async def is_cancel_requested(self) -> bool:
        """Look at the cancel mark."""
        return await self._log.is_cancel_requested(self.log_id)

    async def is_lost(self) -> bool:
        """Tell whether all that this attempt has written is gone: somebody emptied the store."""
        return not (await self._log.read(self.log_id, max_bytes=1)).records

    async def outcome_of_successor(self, timeout_seconds: float) -> TurnOutcome:
        """Wait for the attempt that has taken the turn over: two answers to one question have to be the same.

        Args:
            timeout_seconds: how long.

        Returns:
            How that attempt ended the turn.

        Raises:
            FencedError: it has not, in that time.
        """
        try:
            async with asyncio.timeout(timeout_seconds):
                async for page in self._log.follow(self.log_id):
                    for record in page.records:
                        self.recorded.note(record)
                    if self.outcome is not None:
                        return self.outcome
        except TimeoutError:
            pass
        raise FencedError("another process has taken the turn over")


def _log_id(request: TurnRequest) -> str:
    return turn_log_id(request.agent, request.session_id, request.turn_id)
