"""What a turn writes to its log while its agent runs."""

from collections.abc import Callable
from typing import Self

from agent_framework import AgentResponseUpdate

from durable_agent_host.codec.turn import encode_turn_outcome
from durable_agent_host.log.log import TurnLog
from durable_agent_host.log.writer import TurnLogWriter
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.log_entry import OUTCOME, LogEntry
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turns.events import FinishedCalls, LiveEvents, turn_restarted, turn_started

OpenLog = Callable[[], TurnLog]
"""Gives the process's turn log; the store is opened at the first call."""


class LiveTurn:
    """One attempt of a turn, as its clients see it. Made by `LiveTurn.open`.

    Args:
        writer: of the turn's log.
        finished_calls: what only the provider's own part of an update says.
    """

    def __init__(self, writer: TurnLogWriter, finished_calls: FinishedCalls) -> None:
        self._writer = writer
        self._events = LiveEvents(finished_calls)

    @classmethod
    async def open(cls, log: TurnLog, request: TurnRequest, finished_calls: FinishedCalls) -> Self:
        """Begin an attempt; earlier ones cannot write any more.

        Args:
            log: of the process.
            request: what was asked.
            finished_calls: what only the provider's own part of an update says.

        Returns:
            The attempt; its clients know that the turn has begun, or begins anew.

        Raises:
            LogError: the store does not answer.
        """
        log_id = turn_log_id(request.agent, request.session_id, request.turn_id)
        attempt = await log.open(log_id)
        live = cls(TurnLogWriter(log, log_id, attempt), finished_calls)
        begin = turn_started(request) if attempt == 1 else turn_restarted(0)
        await live._writer.put(*begin)
        return live

    async def on_update(self, update: AgentResponseUpdate) -> None:
        """Tell of an update of the agent.

        Raises:
            FencedError: a later attempt has begun; this one has to stop.
            LogError: the store does not answer.
        """
        for event in self._events.feed(update):
            await self._writer.put(*event)

    async def end(self, outcome: TurnOutcome) -> None:
        """Tell the rest, and note how the attempt ended; both are durable when this returns.

        Args:
            outcome: what the activity returns.

        Raises:
            FencedError: a later attempt has begun; the outcome is void.
            LogError: the store does not answer.
        """
        if outcome.status == "completed":
            for event in self._events.finish(outcome.text):
                await self._writer.put(*event)
        await self._writer.commit(LogEntry(OUTCOME, encode_turn_outcome(outcome)))

    async def close(self) -> None:
        """Stop writing; what was told is durable."""
        await self._writer.close()
