"""An agent's stream: folded into the final message, and as live events for clients. Pure."""
