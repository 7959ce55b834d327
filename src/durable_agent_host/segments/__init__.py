"""Stored history outside the entity: immutable pieces by the hash of their bytes."""
