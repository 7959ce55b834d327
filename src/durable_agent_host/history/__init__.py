"""Where the conversation comes from when a turn begins."""
