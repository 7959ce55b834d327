"""Queries of instances and entities for the management API: read-only SQL with filters and pages."""

from dataclasses import dataclass
from typing import Any

from functions_host.engine.sqlite_store import INSTANCE_COLUMNS, SqliteStore, read_instance
from functions_host.engine.store_records import EntityRecord, InstanceRecord


@dataclass(frozen=True, slots=True)
class InstanceFilter:
    """Which instances; None and empty mean all. ``after_key`` continues a list."""

    created_from: float | None = None
    created_to: float | None = None
    statuses: frozenset[str] = frozenset()
    prefix: str = ""
    after_key: int = 0
    limit: int = -1


def list_instances(store: SqliteStore, instance_filter: InstanceFilter) -> list[InstanceRecord]:
    """List instances in the order of their creation."""
    clauses, values = _conditions(instance_filter)
    sql = f"SELECT {INSTANCE_COLUMNS} FROM instances WHERE {clauses} ORDER BY key LIMIT ?"  # noqa: S608 - values are bound
    return [read_instance(row) for row in store.read(sql, [*values, instance_filter.limit])]


def list_ended(store: SqliteStore, instance_filter: InstanceFilter) -> list[tuple[int, str]]:
    """List the rows and ids of the instances that have ended, in the order of their creation."""
    clauses, values = _conditions(instance_filter)
    sql = (
        f"SELECT key, id FROM instances WHERE {clauses} AND status NOT IN ('Pending', 'Running')"  # noqa: S608 - bound
        " ORDER BY key LIMIT ?"
    )
    return [(key, instance_id) for key, instance_id in store.read(sql, [*values, instance_filter.limit])]


def list_entities(
    store: SqliteStore, name: str | None = None, *, used_from: float | None = None, used_to: float | None = None
) -> list[EntityRecord]:
    """List the entities that exist, of one name or of all, by id; those alone that were last used within a time."""
    prefix = f"@{name.lower()}@" if name else "@"
    clauses = ["substr(id, 1, ?) = ?"]
    values = list[Any]([len(prefix), prefix])
    for operator, bound in ((">=", used_from), ("<=", used_to)):
        if bound is not None:
            clauses.append(f"updated_at {operator} ?")
            values.append(bound)
    where = " AND ".join(clauses)
    sql = f"SELECT id, state, updated_at FROM entities WHERE {where} ORDER BY id"  # noqa: S608 - values are bound
    return [EntityRecord(*row) for row in store.read(sql, values)]


def _conditions(instance_filter: InstanceFilter) -> tuple[str, list[Any]]:
    clauses = ["key > ?"]
    values = list[Any]([instance_filter.after_key])
    if instance_filter.created_from is not None:
        clauses.append("created_at >= ?")
        values.append(instance_filter.created_from)
    if instance_filter.created_to is not None:
        clauses.append("created_at <= ?")
        values.append(instance_filter.created_to)
    if instance_filter.prefix:
        clauses.append("substr(id, 1, ?) = ?")
        values += [len(instance_filter.prefix), instance_filter.prefix]
    if instance_filter.statuses:
        runtime_status_sql = "CASE WHEN suspended AND status IN ('Pending', 'Running') THEN 'Suspended' ELSE status END"
        clauses.append(f"{runtime_status_sql} IN ({', '.join('?' * len(instance_filter.statuses))})")
        values += sorted(instance_filter.statuses)
    return " AND ".join(clauses), values
