"""Turn logs: one append-only log per turn, with live events for clients and the journal for recovery.

`journal` orders and reads the finished steps, `writer` appends steps and events of one attempt, `protocol` defines what
a store guarantees, `stores` opens the one that the settings name: `sqlite`, `blob` or `redis`.
"""
