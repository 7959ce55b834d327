"""What a turn log says of a turn's finished and unfinished calls."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from durable_agent_host.errors import CorruptStateError, FencedError
from durable_agent_host.model.call_path import AGENT_RUN, CallPath
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.journal_entry import ModelCallCompletedEntry
from durable_agent_host.model.log_entry import EVENT, LogEntry, LogRecord
from durable_agent_host.turn_log.journal import Journal, JournalState, read_journal
from durable_agent_host.turn_log.sqlite_log import OFFSETS, SqliteTurnLog
from durable_agent_host.turn_log.writer import TurnLogWriter

LOG_ID = turn_log_id("Agent", "session", "turn")


def read_state(*entries: tuple[str, dict]) -> JournalState:
    """What these entries of a log say."""
    state = JournalState()
    for offset, (kind, data) in enumerate(entries):
        state.add(LogRecord(offset, 1, LogEntry(kind, data)))
    return state


def event(name: str, **data) -> tuple[str, dict]:
    """An event's entry."""
    return EVENT, {"event": name, "data": data}


MODEL = ("model_finished", {"position": 0, "response": {}})
STARTED = ("tool_started", {"position": 0, "call_id": "c", "occurrence": 0, "name": "t", "arguments": {}})
FINISHED = ("tool_finished", {"position": 0, "call_id": "c", "occurrence": 0, "outcome": "success", "result": {}})


@pytest.mark.parametrize(
    ("entries", "discard_from"),
    [
        ([], None),
        ([event("turn.started")], None),
        ([event("turn.started"), event("message.delta", text="a"), event("message.delta", text="b")], 1),
        ([event("message.delta", text="a"), MODEL], None),
        ([event("message.delta", text="a"), MODEL, event("tool.started"), STARTED], None),
        ([MODEL, STARTED, event("tool.completed"), FINISHED, event("message.delta", text="a")], 4),
        ([event("message.delta", text="a"), event("turn.restarted", discard_from=0)], None),
        ([event("message.delta", text="a"), event("turn.restarted"), event("message.delta", text="b")], 2),
        ([MODEL, event("call.pending", call_id="c")], None),
        ([event("message.delta", text="a"), ("of a newer program", {})], 0),
        ([event("of.newer_program"), event("message.delta", text="a")], 1),
        ([event("of.newer_program")], None),
    ],
)
def test_what_clients_have_to_discard(entries, discard_from):
    """Events of a model call without a response are discarded from the first one on, and only once."""
    assert read_state(*entries).discard_from == discard_from


def test_a_completed_turn_starts_no_calls(tmp_path):
    """What was left behind of a turn that has ended runs no tool."""

    async def scenario():
        log = SqliteTurnLog(tmp_path / "log.db")
        journal = await begin(log)
        await journal.close({"status": "cancelled"})
        before = (await log.read(LOG_ID)).next_offset
        with pytest.raises(FencedError):
            await journal.tool_started(CallPath().model_call(0).tool_call("c"), "tool", {})
        assert (await log.read(LOG_ID)).next_offset == before
        await log.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("path", "key"),
    [
        (CallPath().model_call(0).tool_call("call_1"), "b178d65f94ab00cd94c13d91efd693fb"),
        (CallPath().model_call(3).tool_call("a/b#1", 2), "a93e7fb3c86727fa1d7e7fd0d982409b"),
        (AGENT_RUN, "c8adaa372bb8c6604e1b24c3947ae8ba"),
    ],
)
def test_the_idempotency_key_of_a_call_is_the_same_in_every_version(tmp_path, path, key):
    """A service that knows the key of a call recognizes the call after an update of the host."""

    async def scenario():
        log = SqliteTurnLog(tmp_path / "log.db")
        assert (await begin(log)).idempotency_key(path) == key
        await log.close()

    asyncio.run(scenario())


async def begin(log: SqliteTurnLog) -> Journal:
    """Begin an attempt."""
    attempt = await log.open(LOG_ID)
    return Journal(await read_journal(log, LOG_ID), TurnLogWriter(log, LOG_ID, attempt), LOG_ID)


def test_a_journal_that_has_lost_entries_is_an_error(tmp_path):
    """What is missing at the beginning or in the middle is said, and not taken for work that was never done."""

    async def scenario():
        for number, lost in enumerate([(0, 0), (0, 1), (1, 1), (1, 2), (0, 3)]):
            path = tmp_path / f"{number}.db"
            log = SqliteTurnLog(path)
            journal = await begin(log)
            model_call, _ = journal.next_model_call()
            await journal.append(ModelCallCompletedEntry(model_call, {"messages": []}))
            await journal.tool_started(journal.next_tool_call("a")[0], "tool", {})
            await log.close()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute(
                    "DELETE FROM entries WHERE place BETWEEN ? AND ?", [OFFSETS + offset for offset in lost]
                )
            log = SqliteTurnLog(path)
            with pytest.raises(CorruptStateError, match=f"lost entries from {lost[0]} on|is damaged: its turn cannot"):
                await read_journal(log, LOG_ID)
            await log.close()

    asyncio.run(scenario())
