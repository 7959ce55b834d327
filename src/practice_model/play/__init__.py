"""What the model answers."""
