"""SQLite files of both hosts: connections, checkpoints, and erasure."""
