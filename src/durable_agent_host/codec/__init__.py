"""Values to JSON and back: what is stored in a session and what crosses the durable boundary. Pure."""
