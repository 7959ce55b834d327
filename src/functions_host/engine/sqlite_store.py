"""The engine's state in SQLite: reads, and the transactions that commit work items."""

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from functions_host.engine.database import Database
from functions_host.engine.decision import ActivityWork
from functions_host.engine.events import TERMINAL_STATUSES, Caller, Operation, Status
from functions_host.engine.schema import (
    SCHEMA,
    SCHEMA_VERSION,
    append_history,
)
from functions_host.engine.store_records import (
    ActivityItem,
    Arrival,
    EntityCommit,
    EntityRecord,
    EpisodeCommit,
    InstanceRecord,
    NewInstance,
    Parent,
    QueuedOperation,
)

INSTANCE_COLUMNS = (
    "key, id, name, version, execution_id, status, suspended, input, output, custom_status,"
    " parent_id, parent_execution, parent_task, created_at, updated_at"
)
_ADD_ARRIVAL = (
    "INSERT INTO arrivals(instance, seq, due_at, task, event)"
    " VALUES(?1, (SELECT ifnull(max(seq), 0) + 1 FROM arrivals WHERE instance = ?1), ?2, ?3, ?4)"
)
_FIND_LIVE = "SELECT key FROM instances WHERE id = ? AND execution_id = ? AND status IN ('Pending', 'Running')"
_ADD_OPERATION = (
    "INSERT INTO operations(entity, seq, name, input, caller_id, caller_execution, caller_task, request_id)"
    " VALUES(?1, (SELECT ifnull(max(seq), 0) + 1 FROM operations WHERE entity = ?1), ?2, ?3, ?4, ?5, ?6, ?7)"
)


def read_instance(row: tuple[Any, ...]) -> InstanceRecord:
    """Read a row of ``INSTANCE_COLUMNS``."""
    parent = None if row[10] is None else Parent(row[10], row[11], row[12])
    key, instance_id, name, version, execution_id, status, is_suspended, input_json, output_json, custom_status = row[
        :10
    ]
    return InstanceRecord(
        key=key,
        instance_id=instance_id,
        name=name,
        version=version,
        execution_id=execution_id,
        status=status,
        is_suspended=bool(is_suspended),
        input_json=input_json,
        output_json=output_json,
        custom_status_json=custom_status,
        parent=parent,
        created_at=row[13],
        updated_at=row[14],
    )


class SqliteStore:
    """The engine's state in one file.

    Guarantee: every public method that writes is one transaction.
    """

    def __init__(self, path: Path, max_bytes: int | None = None) -> None:
        self._db = Database(path, SCHEMA, SCHEMA_VERSION, max_bytes)
        self.read = self._db.read
        self.check_files = self._db.check_files
        self.check_free_space = self._db.check_free_space
        self.prove = self._db.prove
        self.erase = self._db.erase
        self._transaction = self._db.transaction

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # --- instances ---------------------------------------------------------------------------

    def find_instance(self, instance_id: str) -> InstanceRecord | None:
        """Read one instance."""
        sql = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE id = ?"  # noqa: S608 - a constant
        rows = self.read(sql, (instance_id,))
        return read_instance(rows[0]) if rows else None

    def create_instance(self, new: NewInstance, at: float) -> None:
        """Create an instance, in the place of one with the same id."""
        with self._transaction("start") as db:
            _replace_instance(db, new, at)

    def set_suspended(self, key: int, is_suspended: bool, at: float) -> None:
        """Suspend or resume an instance."""
        sql = "UPDATE instances SET suspended = ?, updated_at = ? WHERE key = ?"
        with self._transaction("suspend") as db:
            db.execute(sql, (int(is_suspended), at, key))

    def end_instance(
        self, key: int, status: Status, output_json: str | None, at: float, reply: tuple[Parent, str] | None
    ) -> None:
        """End an instance from outside; drops what it waited for and notifies its parent."""
        with self._transaction("end") as db:
            sql = "UPDATE instances SET status = ?, suspended = 0, output = ?, updated_at = ? WHERE key = ?"
            db.execute(sql, (status, output_json, at, key))
            db.execute("DELETE FROM arrivals WHERE instance = ?", (key,))
            db.execute("DELETE FROM activities WHERE instance = ?", (key,))
            if reply is not None:
                _answer(db, reply[0], reply[1])

    def purge_instances(self, keys: Iterable[int]) -> None:
        """Delete instances and all their rows."""
        with self._transaction("purge") as db:
            for key in keys:
                _delete_instance(db, key)

    def read_history(self, key: int) -> list[str]:
        """Read the history of an instance, oldest event first."""
        sql = "SELECT event FROM history WHERE instance = ? ORDER BY seq"
        return [row[0] for row in self.read(sql, (key,))]

    def live_instance_ids(self) -> list[str]:
        """List the instances that have not ended."""
        sql = "SELECT id FROM instances WHERE status IN ('Pending', 'Running') ORDER BY key"
        return [row[0] for row in self.read(sql)]

    # --- arrivals ----------------------------------------------------------------------------

    def read_arrivals(self, key: int, now: float) -> list[Arrival]:
        """Read the due arrivals of an instance, oldest first."""
        sql = "SELECT seq, event FROM arrivals WHERE instance = ? AND (due_at IS NULL OR due_at <= ?) ORDER BY seq"
        return [Arrival(*row) for row in self.read(sql, (key, now))]

    def add_arrival(self, key: int, text: str) -> None:
        """Store an external event for an instance."""
        with self._transaction("event") as db:
            db.execute(_ADD_ARRIVAL, (key, None, None, text))

    def pending_timers(self) -> list[tuple[float, str]]:
        """List the stored timers as due times and instance ids."""
        sql = "SELECT due_at, id FROM arrivals JOIN instances ON key = instance WHERE due_at IS NOT NULL"
        return [(due_at, instance_id) for due_at, instance_id in self.read(sql)]

    # --- work items --------------------------------------------------------------------------

    def commit_episode(self, commit: EpisodeCommit) -> list[ActivityItem]:
        """Commit one orchestration episode; returns the activities to run."""
        with self._transaction("episode") as db:
            _delete_arrivals(db, commit.key, commit.consumed_seqs)
            for task_id in commit.cancelled_timers:
                db.execute("DELETE FROM arrivals WHERE instance = ? AND task = ?", (commit.key, task_id))
            items = _insert_work(db, commit)
            if commit.renewal is not None:
                _renew_instance(db, commit, *commit.renewal)
            elif commit.status in TERMINAL_STATUSES:
                _finish_instance(db, commit)
            else:
                _continue_instance(db, commit)
            if commit.parent_reply is not None:
                _answer(db, commit.parent_reply.parent, commit.parent_reply.text)
        return items

    def commit_activity(self, item: ActivityItem, text: str) -> str | None:
        """Commit the answer of an activity; returns the instance to wake, None when it no longer waits."""
        with self._transaction("answer") as db:
            db.execute("DELETE FROM activities WHERE seq = ?", (item.seq,))
            sql = "SELECT id FROM instances WHERE key = ? AND execution_id = ? AND status IN ('Pending', 'Running')"
            row = db.execute(sql, (item.instance_key, item.execution_id)).fetchone()
            if row is not None:
                db.execute(_ADD_ARRIVAL, (item.instance_key, None, item.activity.task_id, text))
        return None if row is None else row[0]

    def pending_activities(self) -> list[ActivityItem]:
        """List the activities without an answer, oldest first."""
        sql = "SELECT seq, instance, execution_id, task, name, input FROM activities ORDER BY seq"
        rows = self.read(sql)
        return [
            ActivityItem(seq, key, execution_id, ActivityWork(task_id, name, input_json))
            for seq, key, execution_id, task_id, name, input_json in rows
        ]

    # --- entities ----------------------------------------------------------------------------

    def find_entity(self, entity_id: str) -> EntityRecord | None:
        """Read one entity; None when it does not exist."""
        rows = self.read("SELECT id, state, updated_at FROM entities WHERE id = ?", (entity_id,))
        return EntityRecord(*rows[0]) if rows else None

    def add_operation(self, entity_id: str, operation: Operation) -> None:
        """Queue an operation for an entity."""
        with self._transaction("operation") as db:
            db.execute(_ADD_OPERATION, _operation_row(entity_id, operation))

    def read_operations(self, entity_id: str, limit: int) -> list[QueuedOperation]:
        """Read the head of an entity's queue, oldest first."""
        sql = (
            "SELECT seq, name, input, caller_id, caller_execution, caller_task, request_id FROM operations"
            " WHERE entity = ? ORDER BY seq LIMIT ?"
        )
        return [
            QueuedOperation(row[0], Operation(row[1], row[2], None if row[3] is None else Caller(*row[3:])))
            for row in self.read(sql, (entity_id, limit))
        ]

    def pending_entity_ids(self) -> list[str]:
        """List the entities with queued operations."""
        return [row[0] for row in self.read("SELECT DISTINCT entity FROM operations")]

    def delete_entity(self, entity_id: str) -> bool:
        """Delete the state of an entity; returns whether there was one. Queued operations stay."""
        with self._transaction("purge") as db:
            return db.execute("DELETE FROM entities WHERE id = ?", (entity_id,)).rowcount > 0

    def commit_entity(self, commit: EntityCommit) -> bool:
        """Commit one entity batch: state, replies, and the removal of its operations.

        Returns:
            Whether it ended the entity.
        """
        is_deleted = False
        with self._transaction("batch") as db:
            db.execute("DELETE FROM operations WHERE entity = ? AND seq <= ?", (commit.entity_id, commit.last_seq))
            if commit.exists:
                sql = (
                    "INSERT INTO entities(id, state, updated_at) VALUES(?, ?, ?) ON CONFLICT(id)"
                    " DO UPDATE SET state = excluded.state, updated_at = excluded.updated_at"
                )
                db.execute(sql, (commit.entity_id, commit.state_json, commit.at))
            elif not commit.keep_state:
                sql = "DELETE FROM entities WHERE id = ?"
                is_deleted = db.execute(sql, (commit.entity_id,)).rowcount > 0
            for reply, text in commit.replies:
                _answer(db, reply.caller, text)
        return is_deleted


def _operation_row(entity_id: str, operation: Operation) -> Sequence[Any]:
    caller = operation.caller
    sender = (
        (None,) * 4 if caller is None else (caller.instance_id, caller.execution_id, caller.task_id, caller.request_id)
    )
    return (entity_id, operation.name, operation.input_json, *sender)


def _answer(db: sqlite3.Connection, asker: Parent | Caller, text: str) -> None:
    """Deliver an answer, unless the instance that asked has ended or begun anew."""
    row = db.execute(_FIND_LIVE, (asker.instance_id, asker.execution_id)).fetchone()
    if row is not None:
        db.execute(_ADD_ARRIVAL, (row[0], None, asker.task_id, text))


def _delete_arrivals(db: sqlite3.Connection, key: int, seqs: Iterable[int]) -> None:
    db.executemany("DELETE FROM arrivals WHERE instance = ? AND seq = ?", ((key, seq) for seq in seqs))


def _delete_instance(db: sqlite3.Connection, key: int) -> None:
    for sql in (
        "DELETE FROM history WHERE instance = ?",
        "DELETE FROM arrivals WHERE instance = ?",
        "DELETE FROM activities WHERE instance = ?",
        "DELETE FROM instances WHERE key = ?",
    ):
        db.execute(sql, (key,))


def _replace_instance(db: sqlite3.Connection, new: NewInstance, at: float) -> None:
    row = db.execute("SELECT key FROM instances WHERE id = ?", (new.instance_id,)).fetchone()
    if row is not None:
        _delete_instance(db, row[0])
    parent = new.parent
    sender = (None,) * 3 if parent is None else (parent.instance_id, parent.execution_id, parent.task_id)
    db.execute(
        "INSERT INTO instances(id, name, version, execution_id, status, input, created_at, updated_at,"
        " parent_id, parent_execution, parent_task) VALUES(?, ?, ?, ?, 'Pending', ?, ?, ?, ?, ?, ?)",
        (new.instance_id, new.name, new.version, new.execution_id, new.input_json, at, at, *sender),
    )


def _insert_work(db: sqlite3.Connection, commit: EpisodeCommit) -> list[ActivityItem]:
    for arrival in commit.own_arrivals:
        db.execute(_ADD_ARRIVAL, (commit.key, arrival.due_at, arrival.task_id, arrival.text))
    for child in commit.children:
        _replace_instance(db, child, commit.at)
    for pending_work in commit.operations:
        db.execute(_ADD_OPERATION, _operation_row(pending_work.entity_id, pending_work.operation))
    items: list[ActivityItem] = []
    for pending_work in commit.activities:
        sql = (
            "INSERT INTO activities(instance, execution_id, task, name, input)"
            " SELECT key, execution_id, ?, ?, ? FROM instances WHERE key = ? RETURNING seq, execution_id"
        )
        seq, execution_id = db.execute(
            sql, (pending_work.task_id, pending_work.name, pending_work.input_json, commit.key)
        ).fetchone()
        items.append(ActivityItem(seq, commit.key, execution_id, pending_work))
    return items


def _continue_instance(db: sqlite3.Connection, commit: EpisodeCommit) -> None:
    append_history(db, commit.key, commit.first_seq, commit.history)
    sql = "UPDATE instances SET custom_status = ?, updated_at = ? WHERE key = ?"
    db.execute(sql, (commit.custom_status_json, commit.at, commit.key))
    if not commit.first_seq:  # later it is set, and setting it again would write the index of live instances
        db.execute("UPDATE instances SET status = ? WHERE key = ?", (commit.status, commit.key))


def _finish_instance(db: sqlite3.Connection, commit: EpisodeCommit) -> None:
    append_history(db, commit.key, commit.first_seq, commit.history)
    sql = "UPDATE instances SET status = ?, custom_status = ?, output = ?, updated_at = ? WHERE key = ?"
    db.execute(sql, (commit.status, commit.custom_status_json, commit.output_json, commit.at, commit.key))
    db.execute("DELETE FROM arrivals WHERE instance = ?", (commit.key,))


def _renew_instance(
    db: sqlite3.Connection, commit: EpisodeCommit, execution_id: str, input_json: str, event_texts: Sequence[str]
) -> None:
    # External events that no wait has taken are carried over; answers to the old generation are not.
    db.execute("DELETE FROM history WHERE instance = ?", (commit.key,))
    db.execute("DELETE FROM arrivals WHERE instance = ? AND task IS NOT NULL", (commit.key,))
    for text in reversed(event_texts):  # before those that have arrived since
        db.execute(
            "INSERT INTO arrivals(instance, seq, event)"
            " SELECT ?1, ifnull(min(seq), 1) - 1, ?2 FROM arrivals WHERE instance = ?1",
            (commit.key, text),
        )
    db.execute(
        "UPDATE instances SET execution_id = ?, input = ?, status = 'Running', updated_at = ? WHERE key = ?",
        (execution_id, input_json, commit.at, commit.key),
    )
