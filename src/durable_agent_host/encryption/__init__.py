"""Encryption at rest: wraps the stores and the task hub, which do not know of it."""
