"""The tables of the engine's file.

Rows of an instance or an entity stand next to each other, so a commit touches few pages: each page that it touches is
written to the log as a whole.
"""

import sqlite3
from collections.abc import Iterable

SCHEMA_VERSION = 3
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
"""


def append_history(db: sqlite3.Connection, key: int, first_seq: int, texts: Iterable[str]) -> None:
    """Add events to the history of an instance."""
    rows = ((key, seq, text) for seq, text in enumerate(texts, first_seq))
    db.executemany("INSERT INTO history(instance, seq, event) VALUES(?, ?, ?)", rows)
