"""Values to JSON and back: for session storage and the durable boundary. Pure."""
