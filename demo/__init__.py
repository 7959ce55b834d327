"""The demo that ./scripts/demo runs; not part of the package, not deployed."""
