"""Stored history outside the entity: immutable blobs, named by the hash of their bytes."""
