"""Answers that must fit a format."""
