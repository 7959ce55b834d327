"""Limits on what turns and sessions use."""
