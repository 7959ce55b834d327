"""The HTTP edge: server, connections, limits, routing, and the host's own APIs."""
