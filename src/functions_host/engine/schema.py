"""The tables of the engine's file.

Rows of an instance or an entity stand next to each other, so a commit touches few pages: each page that it touches is
written to the log as a whole.
"""

import sqlite3
from collections.abc import Iterable, Sequence

from functions_host.engine.packing import MAX_CHARACTERS, pack_history, pack_text, unpack_text

SCHEMA_VERSION = 2
SCHEMA = """
CREATE TABLE instances(
  key INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, version TEXT NOT NULL,
  execution_id TEXT NOT NULL, status TEXT NOT NULL, suspended INTEGER NOT NULL DEFAULT 0,
  input TEXT, output TEXT, custom_status TEXT, parent_id TEXT, parent_execution TEXT, parent_task INTEGER,
  created_at REAL NOT NULL, updated_at REAL NOT NULL);
CREATE INDEX live_instances ON instances(key) WHERE status IN ('Pending', 'Running');
CREATE INDEX created_instances ON instances(created_at);
CREATE TABLE history(
  instance INTEGER NOT NULL, seq INTEGER NOT NULL, event TEXT NOT NULL, PRIMARY KEY(instance, seq)) WITHOUT ROWID;
CREATE TABLE activities(
  seq INTEGER PRIMARY KEY, instance INTEGER NOT NULL, execution_id TEXT NOT NULL, task INTEGER NOT NULL,
  name TEXT NOT NULL, input TEXT NOT NULL);
CREATE TABLE arrivals(
  instance INTEGER NOT NULL, seq INTEGER NOT NULL, due_at REAL, task INTEGER, event TEXT NOT NULL,
  PRIMARY KEY(instance, seq)) WITHOUT ROWID;
CREATE TABLE operations(
  entity TEXT NOT NULL, seq INTEGER NOT NULL, name TEXT NOT NULL, input TEXT,
  caller_id TEXT, caller_execution TEXT, caller_task INTEGER, request_id TEXT,
  PRIMARY KEY(entity, seq)) WITHOUT ROWID;
CREATE TABLE entities(id TEXT PRIMARY KEY, state TEXT, updated_at REAL NOT NULL);
CREATE TABLE ended_histories(instance INTEGER PRIMARY KEY, packed BLOB NOT NULL);
"""


def append_history(db: sqlite3.Connection, key: int, first_seq: int, texts: Iterable[str]) -> None:
    """Add events to the history of an instance."""
    rows = ((key, seq, text) for seq, text in enumerate(texts, first_seq))
    db.executemany("INSERT INTO history(instance, seq, event) VALUES(?, ?, ?)", rows)


def pack_instance(db: sqlite3.Connection, key: int) -> None:
    """Compress what an instance that has ended was given and what it said."""
    sql = "SELECT input, output, custom_status FROM instances WHERE key = ?"
    texts = db.execute(sql, (key,)).fetchone()
    packed_texts = tuple(pack_text(unpack_text(text)) for text in texts)
    if packed_texts != texts:
        db.execute("UPDATE instances SET input = ?, output = ?, custom_status = ? WHERE key = ?", (*packed_texts, key))


def end_history(db: sqlite3.Connection, key: int, last: Sequence[str] = ()) -> None:
    """Add the last events to the history of an instance, and compress it unless it is too long."""
    texts: list[str] = []
    characters = sum(map(len, last))
    for (text,) in db.execute("SELECT event FROM history WHERE instance = ? ORDER BY seq", (key,)):
        texts.append(text)
        characters += len(text)
        if characters > MAX_CHARACTERS:
            first_seq = db.execute("SELECT max(seq) + 1 FROM history WHERE instance = ?", (key,)).fetchone()[0]
            append_history(db, key, first_seq, last)
            return
    db.execute("DELETE FROM history WHERE instance = ?", (key,))
    row = (key, pack_history([*texts, *last]))
    db.execute("INSERT OR REPLACE INTO ended_histories(instance, packed) VALUES(?, ?)", row)
