"""Stores: one technology, one file."""
