"""Stored history outside the entity: immutable pieces, named by the hash of their bytes."""
