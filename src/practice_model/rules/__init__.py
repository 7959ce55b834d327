"""What the live API refuses."""
