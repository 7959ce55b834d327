"""Turn logs in a SQLite file."""
