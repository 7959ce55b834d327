"""Durable sessions for Microsoft Agent Framework agents on Azure Functions."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 13):  # noqa: UP036 - an older interpreter gets a sentence instead of a syntax error
    raise SystemExit("durable-agent-host needs Python 3.13 or newer, and this is " + sys.version.split()[0])

if TYPE_CHECKING:
    from durable_agent_host.app import DurableAgentApp
    from durable_agent_host.durable.entity import DurableAgentEntity
    from durable_agent_host.history.coalescing import CoalescingHistoryProvider
    from durable_agent_host.settings import Settings
    from durable_agent_host.tool_calls import ToolCall, current_tool_call, durable_tool

__all__ = [
    "CoalescingHistoryProvider",
    "DurableAgentApp",
    "DurableAgentEntity",
    "Settings",
    "ToolCall",
    "current_tool_call",
    "durable_tool",
]


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that the command line need not load the framework."""
    home = {
        "CoalescingHistoryProvider": "durable_agent_host.history.coalescing",
        "DurableAgentApp": "durable_agent_host.app",
        "DurableAgentEntity": "durable_agent_host.durable.entity",
        "Settings": "durable_agent_host.settings",
        "ToolCall": "durable_agent_host.tool_calls",
        "current_tool_call": "durable_agent_host.tool_calls",
        "durable_tool": "durable_agent_host.tool_calls",
    }.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
