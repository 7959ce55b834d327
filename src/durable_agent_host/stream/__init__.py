"""An agent's stream: folded into the final message, and as live events for clients.

Every function is pure, as far as the app's own redaction is.
"""
