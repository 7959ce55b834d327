"""Pieces in a SQLite file."""
