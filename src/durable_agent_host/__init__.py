"""Durable sessions for Microsoft Agent Framework agents on Azure Functions."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if sys.version_info < (3, 13):  # noqa: UP036 - an older interpreter gets a sentence instead of a syntax error
    raise SystemExit("durable-agent-host needs Python 3.13 or newer, and this is " + sys.version.split()[0])

if TYPE_CHECKING:
    from durable_agent_host.activities import agent_activity, agent_call
    from durable_agent_host.agent_client import AgentClient, PendingTurnCall, TurnEvent, TurnResult
    from durable_agent_host.app import DurableAgentApp
    from durable_agent_host.conversation_json import Conversation, decode, encode, fold
    from durable_agent_host.durable.session_entity import DurableAgentEntity
    from durable_agent_host.errors import AgentClientError, HostUnreachableError
    from durable_agent_host.features.histories.coalescing_provider import CoalescingHistoryProvider
    from durable_agent_host.features.notifications.notification import Notification
    from durable_agent_host.model.budget import Budget, Budgets
    from durable_agent_host.model.pending_call import PendingCall
    from durable_agent_host.model.principal import ANONYMOUS, THE_APP, Owner, Principal
    from durable_agent_host.redaction import redact_secrets
    from durable_agent_host.settings import Settings
    from durable_agent_host.tool_calls import DeferredCall, ToolCall, current_tool_call, durable_tool

__all__ = [
    "ANONYMOUS",
    "THE_APP",
    "AgentClient",
    "AgentClientError",
    "Budget",
    "Budgets",
    "CoalescingHistoryProvider",
    "Conversation",
    "DeferredCall",
    "DurableAgentApp",
    "DurableAgentEntity",
    "HostUnreachableError",
    "Notification",
    "Owner",
    "PendingCall",
    "PendingTurnCall",
    "Principal",
    "Settings",
    "ToolCall",
    "TurnEvent",
    "TurnResult",
    "agent_activity",
    "agent_call",
    "current_tool_call",
    "decode",
    "durable_tool",
    "encode",
    "fold",
    "redact_secrets",
]

_MODULES = {
    "ANONYMOUS": "model.principal",
    "THE_APP": "model.principal",
    "AgentClient": "agent_client",
    "AgentClientError": "errors",
    "Budget": "model.budget",
    "Budgets": "model.budget",
    "CoalescingHistoryProvider": "features.histories.coalescing_provider",
    "Conversation": "conversation_json",
    "DeferredCall": "tool_calls",
    "DurableAgentApp": "app",
    "DurableAgentEntity": "durable.session_entity",
    "HostUnreachableError": "errors",
    "Notification": "features.notifications.notification",
    "Owner": "model.principal",
    "PendingCall": "model.pending_call",
    "PendingTurnCall": "agent_client",
    "Principal": "model.principal",
    "Settings": "settings",
    "ToolCall": "tool_calls",
    "TurnEvent": "agent_client",
    "TurnResult": "agent_client",
    "agent_activity": "activities",
    "agent_call": "activities",
    "current_tool_call": "tool_calls",
    "decode": "conversation_json",
    "durable_tool": "tool_calls",
    "encode": "conversation_json",
    "fold": "conversation_json",
    "redact_secrets": "redaction",
}


def __getattr__(name: str) -> Any:
    """Load a public name on first use, so that the command line need not load the framework."""
    if (module_name := _MODULES.get(name)) is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module_name}"), name)
