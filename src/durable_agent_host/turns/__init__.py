"""Decisions about a turn, as pure functions."""
