"""What a turn log says of a turn's finished and unfinished calls."""

import asyncio
import sqlite3
from contextlib import closing

import pytest

from durable_agent_host.errors import CorruptStateError, FencedError
from durable_agent_host.model.ids import turn_log_id
from durable_agent_host.model.journal_entry import ToolKey
from durable_agent_host.model.log_entry import EVENT, LogEntry, LogRecord
from durable_agent_host.turn_log.crash_points import CRASH_POINTS, planned_crash
from durable_agent_host.turn_log.journal import Journal, JournalState, read_journal
from durable_agent_host.turn_log.sqlite_log import OFFSETS, SqliteTurnLog
from durable_agent_host.turn_log.writer import TurnLogWriter

LOG_ID = turn_log_id("Agent", "session", "turn")


def noted(*entries: tuple[str, dict]) -> JournalState:
    """What these entries of a log say."""
    recorded = JournalState()
    for offset, (kind, data) in enumerate(entries):
        recorded.add(LogRecord(offset, 1, LogEntry(kind, data)))
    return recorded


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
        ([MODEL, event("approval.requested", call_id="c")], None),
        ([event("message.delta", text="a"), ("of a newer program", {})], 0),
        ([event("of.newer_program"), event("message.delta", text="a")], 1),
        ([event("of.newer_program")], None),
    ],
)
def test_what_clients_have_to_discard(entries, discard_from):
    """Events of a model call without a response are discarded from the first one on, and only once."""
    assert noted(*entries).discard_from == discard_from


def test_a_journal_is_read_back(tmp_path):
    """What one attempt has appended, the next one knows; a call without an end is begun, not finished."""

    async def scenario():
        log = SqliteTurnLog(tmp_path / "log.db")
        journal = await begin(log)
        assert journal.next_model_call() == (0, None)
        await journal._writer.put("message.delta", {"text": "a"})
        await journal.model_finished(0, {"messages": []})
        keys = [journal.next_tool_call(call_id)[0] for call_id in ("a", "b", "a")]
        assert keys == [ToolKey(0, "a", 0), ToolKey(0, "b", 0), ToolKey(0, "a", 1)]
        await asyncio.gather(*(journal.tool_started(key, "tool", {"n": 1}) for key in keys))
        await journal.tool_finished(keys[1], "success", {"items": []})
        again = await begin(log)
        assert again.next_model_call() == (0, {"messages": []})
        known = [again.next_tool_call(call_id) for call_id in ("a", "b", "a")]
        assert [key for key, _ in known] == keys
        assert [(tool.starts, tool.finished is not None) for _, tool in known] == [(1, False), (1, True), (1, False)]
        assert [again.idempotency_key(key) for key in keys] == [journal.idempotency_key(key) for key in keys]
        assert len({again.idempotency_key(key) for key in keys}) == 3
        assert not again.is_repeated(keys[0])
        assert again.is_repeated(keys[2])
        assert again.next_model_call() == (1, None)
        assert again.is_repeated(again.next_tool_call("b")[0])
        with pytest.raises(FencedError):
            await journal.tool_started(keys[0], "tool", {})
        await again.close({"status": "completed"})
        assert (await read_journal(log, LOG_ID)).outcome == {"status": "completed"}
        await log.close()

    asyncio.run(scenario())


def test_calls_that_begin_together_share_a_write(tmp_path):
    """The intents of a batch are next to each other, with nothing of another write between them."""

    async def scenario():
        log = SqliteTurnLog(tmp_path / "log.db")
        journal = await begin(log)
        journal.next_model_call()
        keys = [journal.next_tool_call(str(number))[0] for number in range(50)]
        await asyncio.gather(*(run(journal, key) for key in keys))
        page = await log.read(LOG_ID)
        kinds = [record.entry.kind for record in page.records if record.entry.kind.startswith("tool")]
        assert kinds == ["tool_started"] * 50 + ["tool_finished"] * 50
        await log.close()

    async def run(journal: Journal, key: ToolKey):
        await journal.tool_started(key, "tool", {})
        await journal.tool_finished(key, "success", {"items": []})

    asyncio.run(scenario())


def test_after_its_end_a_turn_begins_nothing(tmp_path):
    """What was left behind of a turn that has ended runs no tool."""

    async def scenario():
        log = SqliteTurnLog(tmp_path / "log.db")
        journal = await begin(log)
        await journal.close({"status": "cancelled"})
        before = (await log.read(LOG_ID)).next_offset
        with pytest.raises(FencedError):
            await journal.tool_started(ToolKey(0, "c", 0), "tool", {})
        assert (await log.read(LOG_ID)).next_offset == before
        await log.close()

    asyncio.run(scenario())


async def begin(log: SqliteTurnLog) -> Journal:
    """Begin an attempt."""
    attempt = await log.open(LOG_ID)
    return Journal(await read_journal(log, LOG_ID), TurnLogWriter(log, LOG_ID, attempt), LOG_ID)


def test_a_planned_crash_names_a_point():
    """A plan is a point and how often it is passed; what is no point is refused with all that are."""
    assert planned_crash("") == ("", 1)
    assert planned_crash("turn.after_open") == ("turn.after_open", 1)
    assert planned_crash("journal.tool.after_run:3") == ("journal.tool.after_run", 3)
    for wrong in ("nowhere", "turn.after_open:x"):
        with pytest.raises(ValueError, match=CRASH_POINTS[-1]):
            planned_crash(wrong)


def test_a_journal_that_has_lost_entries_is_an_error(tmp_path):
    """What is missing at the beginning or in the middle is said, and not taken for work that was never done."""

    async def scenario():
        for number, lost in enumerate([(0, 0), (0, 1), (1, 1), (1, 2), (0, 3)]):
            path = tmp_path / f"{number}.db"
            log = SqliteTurnLog(path)
            journal = await begin(log)
            journal.next_model_call()
            await journal.model_finished(0, {"messages": []})
            await journal.tool_started(journal.next_tool_call("a")[0], "tool", {})
            await log.close()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM entries WHERE place BETWEEN ? AND ?", [OFFSETS + one for one in lost])
            log = SqliteTurnLog(path)
            with pytest.raises(CorruptStateError, match=f"lost entries from {lost[0]} on|is damaged: its turn cannot"):
                await read_journal(log, LOG_ID)
            await log.close()

    asyncio.run(scenario())
