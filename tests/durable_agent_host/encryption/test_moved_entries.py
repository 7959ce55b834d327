"""Entries of an encrypted turn log belong to their places."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.log_entry import EVENT, LogEntry
from durable_agent_host.turn_log.journal import read_journal
from durable_agent_host.turn_log.sqlite_log import OFFSETS
from tests.contract.conftest import EncryptedSqlite, Sqlite

LOG_ID, OTHER_LOG_ID = "a" * 32, "b" * 32
CHANGES = {
    "swapped": {(1, 1): (1, 2), (1, 2): (1, 1)},
    "repeated": {(1, 2): (1, 1)},
    "of another turn": {(1, 1): (2, 1)},
    "left out": {(1, 1): (1, 2), (1, 2): (1, 3), (1, 3): (1, 4)},
}
"""Log and offset of an entry, by the log and offset at which it is put."""


@pytest.mark.parametrize("change", CHANGES)
async def test_a_moved_entry_is_rejected(tmp_path: Path, change: str):
    """Entries that change places, come twice, are left out or come from another turn are an error, and no answer."""
    backend = EncryptedSqlite(tmp_path / "logs" / "turns.db")
    for log_id in (LOG_ID, OTHER_LOG_ID):
        log = backend.store()
        attempt = await log.open(log_id)
        for number in range(4):
            await log.append(log_id, [LogEntry(EVENT, {"event": "x", "data": {"number": number}})], attempt=attempt)
        assert [record.entry.data["data"]["number"] for record in (await log.read(log_id)).records[1:]] == [0, 1, 2, 3]
        await log.close()
    with closing(sqlite3.connect(backend.path)) as connection, connection:
        bodies = dict(connection.execute("SELECT place, body FROM entries").fetchall())
        for (to_log, to_offset), (from_log, from_offset) in CHANGES[change].items():
            body = bodies[from_log * OFFSETS + from_offset]
            connection.execute("UPDATE entries SET body = ? WHERE place = ?", (body, to_log * OFFSETS + to_offset))
    log = backend.store()
    with pytest.raises(CorruptStateError, match="moved"):
        await log.read(LOG_ID)
    assert len((await log.read(OTHER_LOG_ID)).records) == 5
    await log.close()


STATEMENTS = {
    "from the middle": "DELETE FROM entries WHERE place = :start + 2",
    "from the end": "DELETE FROM entries WHERE place = :start + 4",
    "for one that begins the attempt": "UPDATE entries SET body = :begins WHERE place = :start + 2",
    "for one that begins another attempt": "UPDATE entries SET body = :begins, attempt = 2 WHERE place = :start + 2",
}
"""What somebody who can write to the file does with an entry."""


@pytest.mark.parametrize("name", STATEMENTS)
async def test_a_missing_entry_is_detected(tmp_path: Path, name: str):
    """A log with an entry less, or one in the place of which there is an entry that nobody encrypts, is an error."""
    backend = EncryptedSqlite(tmp_path / "logs" / "turns.db")
    log = backend.store()
    attempt = await log.open(LOG_ID)
    for number in range(4):
        await log.append(LOG_ID, [LogEntry(EVENT, {"event": "x", "data": {"number": number}})], attempt=attempt)
    await log.close()
    with closing(sqlite3.connect(backend.path)) as connection, connection:
        attempt_body = connection.execute("SELECT body FROM entries WHERE place = ?", (OFFSETS,)).fetchone()[0]
        connection.execute(STATEMENTS[name], {"start": OFFSETS, "begins": attempt_body})
    log = backend.store()
    with pytest.raises(CorruptStateError, match=r"lost entries from|has been changed|is damaged"):
        await log.read(LOG_ID)
    with pytest.raises(CorruptStateError, match=r"lost entries from|has been changed|is damaged"):
        await read_journal(log, LOG_ID)
    await log.close()


async def test_an_unencrypted_entry_is_rejected(tmp_path: Path):
    """Where plaintext is refused, an entry of before the encryption is an error, for a reader and for a follower."""
    plain = Sqlite(tmp_path / "logs" / "turns.db").store()
    await plain.append(LOG_ID, [LogEntry(EVENT, {"event": "x", "data": {}})], attempt=await plain.open(LOG_ID))
    await plain.close()
    log = EncryptedSqlite(tmp_path / "logs" / "turns.db").store()
    with pytest.raises(CorruptStateError, match="DURABLE_AGENT_HOST_ENCRYPTION_PLAINTEXT"):
        await log.read(LOG_ID)
    with pytest.raises(CorruptStateError, match="entry 1 of the turn log"):
        await anext(aiter(log.follow(LOG_ID)))
    await log.close()
