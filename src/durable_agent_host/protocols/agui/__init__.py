"""Clients of AG-UI."""
