"""The live events of an attempt."""

import asyncio

from durable_agent_host.agent.event_writer import EventWriter
from durable_agent_host.agent.observer import AttemptEnded, ObservedTurn, ToolCallCompleted
from durable_agent_host.agent.run_result import AwaitingReplies, Cancelled
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from durable_agent_host.turn_log.writer import TurnLogWriter

TURN = ObservedTurn(TurnRequest("Agent", "session", "turn", "go"), 1)
LATE = ToolCallCompleted("c", "tool", "success", replayed=False, result="done")


def test_after_the_end_of_its_turn_a_tool_sends_no_events(tmp_path):
    """What was left behind of a turn that has ended is not told; a turn that waits has not ended."""

    async def scenario():
        log = SqliteTurnLog(tmp_path / "log.db")
        writer = TurnLogWriter(log, "log", await log.open("log"))
        events = EventWriter(writer)
        await events.observe(TURN, AttemptEnded(AwaitingReplies(()), TurnOutcome("turn", "suspended")))
        await events.observe(TURN, LATE)
        await events.observe(TURN, AttemptEnded(Cancelled(), TurnOutcome("turn", "cancelled")))
        await writer.flush()
        before = await log.read("log")
        data = before.records[-1].entry.data
        assert (data["event"], data["data"]) == (
            "tool.completed",
            {"call_id": "c", "outcome": "success", "result": "done"},
        )
        await events.observe(TURN, LATE)
        await writer.flush()
        assert (await log.read("log")).next_offset == before.next_offset
        await log.close()

    asyncio.run(scenario())
