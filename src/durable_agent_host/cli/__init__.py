"""The command ``durable-agent-host``."""
