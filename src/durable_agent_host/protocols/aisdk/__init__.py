"""Clients of the AI SDK."""
