"""The values of all providers."""

from collections.abc import Mapping, Sequence

from tests.durable_agent_host.provider_table import (
    agents_probes,
    anthropic_probes,
    chat_probes,
    gemini_probes,
    openai_probes,
)
from tests.durable_agent_host.provider_table.probes import Probe

PROBES: Mapping[str, Sequence[Probe]] = {
    "openai": openai_probes.PROBES,
    "anthropic": anthropic_probes.PROBES,
    "gemini": gemini_probes.PROBES,
    "chat": chat_probes.PROBES,
    "azure-ai-agents": agents_probes.PROBES,
}
"""Name of the client → what its service may write."""
