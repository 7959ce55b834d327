"""What only one model provider's clients know: their live items and their errors."""
