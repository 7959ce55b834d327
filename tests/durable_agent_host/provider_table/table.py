"""The table of docs/reference/providers.md."""

from collections.abc import Sequence

from tests.durable_agent_host.provider_lab import KINDS
from tests.durable_agent_host.provider_table import (
    agents_probes,
    anthropic_probes,
    chat_probes,
    gemini_probes,
    openai_probes,
)
from tests.durable_agent_host.provider_table.measuring import Found, Probe, with_framework, with_host

PROVIDERS: dict[str, tuple[str, Sequence[Probe]]] = {
    "openai": ("OpenAI Responses", openai_probes.PROBES),
    "anthropic": ("Anthropic Messages", anthropic_probes.PROBES),
    "gemini": ("Gemini", gemini_probes.PROBES),
    "chat": ("Chat Completions", chat_probes.PROBES),
    "azure-ai-agents": ("Azure AI Agents", agents_probes.PROBES),
}
"""Name of the client → title, and what is measured."""

_HEAD = """# What is kept, by provider

Made by `scripts/provider-table`; a test holds it. Each row puts a mark into one value of a block as the provider's
service writes it, streams it through the framework's own client, ends the process, and runs the next turn in another.

- *Streamed*: the mark is in the neutral contents.
- *Stored*: it is in what is stored.
- *Replayed*: it is in the next request; "refused" means that the request could not be sent, or that the service refuses
  it by its rules, as the practice model knows them.

The framework alone is an agent with its `AgentSession`, written as JSON and read again; "-" where its client for the
service cannot be imported with the framework's core that this host needs.
"""

_KEPT = """The service keeps the conversation in a thread, and the next request has only what is new. *Replayed* tells
what a new thread begins with when the service has lost the old one: there the conversation is told in words.
"""

_WORDS = {True: "yes", False: "no", None: "refused"}


async def write_table() -> str:
    """Measure everything, and give the page."""
    parts = [f"{_HEAD}\n"]
    for kind, (title, probes) in PROVIDERS.items():
        parts.append(f"## {title}\n")
        if KINDS[kind].keeps_conversation:
            parts.append(_KEPT)
        parts.append("| block | value | framework: streamed | stored | replayed | here: streamed | stored | replayed |")
        parts.append("|---|---|---|---|---|---|---|---|")
        for one in probes:
            cells = [*_cells(await with_framework(kind, one)), *_cells(await with_host(kind, one))]
            parts.append(f"| `{one.block}` | {_name(one.value)} | {' | '.join(cells)} |")
        parts.append("")
    return "\n".join(parts)


def _name(value: str) -> str:
    return f"`{value}`"


def _cells(found: Found | None) -> list[str]:
    if found is None:
        return ["-"] * 3
    return [_WORDS[found.streamed], _WORDS[found.stored], _WORDS[found.replayed]]
