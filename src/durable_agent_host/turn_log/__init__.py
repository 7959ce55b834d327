"""Turn logs: one append-only log per turn, with live events for clients and the journal for recovery.

`journal` orders and reads the finished steps, `writer` appends steps and events of one attempt, `protocol` defines the
guarantees of a store, which `sqlite_log`, `blob` and `redis_log` implement.
"""
