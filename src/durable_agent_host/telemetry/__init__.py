"""Reports turns to the app's operators: traces, metrics and log lines."""

from typing import Final

DEV: Final = "DURABLE_HOST_DEV"
"""The environment variable by which ``durable-agent-host dev`` has its host show short lines of each turn."""
