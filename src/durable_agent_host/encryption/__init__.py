"""Encryption at rest: around the stores and the task hub, which know nothing of it."""
