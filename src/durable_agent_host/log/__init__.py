"""The turn log: what a turn streamed and finished, append-only."""
