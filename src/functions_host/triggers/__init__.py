"""What starts a function: HTTP requests, timers, MCP tool calls."""
