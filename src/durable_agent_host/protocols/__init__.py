"""Dialects of the edge, over the same turns: a dialect translates, and decides and stores nothing."""
