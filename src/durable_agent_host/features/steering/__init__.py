"""Messages that are sent to a running turn."""
