"""By which provider's wire the demo talks to the practice model. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class HeldBy:
    """One provider.

    Attributes:
        app: folder of the function app.
        settings: environment of the host; ``{root}`` is the practice model's address.
        without: environment variables that would lead elsewhere.
        agents: those of the demo's agents that the app has.
        calls_of_stream: how many model calls the streamed turn needs: a service that runs the model by itself goes on
            when the host dies, and is not asked again.
    """

    app: str
    settings: Mapping[str, str]
    without: tuple[str, ...] = ("AZURE_OPENAI_ENDPOINT",)
    agents: frozenset[str] = field(default=frozenset({"BugRepro", "Arithmetic", "Analyst"}))
    calls_of_stream: int = 3

    def environment(self, root: str) -> dict[str, str]:
        """Give the settings for a practice model at an address."""
        return {name: value.format(root=root) for name, value in self.settings.items()}


OPENAI = "openai"

PROVIDERS: Mapping[str, HeldBy] = {
    OPENAI: HeldBy(".", {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": "{root}/v1", "OPENAI_MODEL": "practice"}),
    "chat": HeldBy(
        "examples/chat-completions",
        {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": "{root}/v1", "OPENAI_MODEL": "practice"},
        agents=frozenset({"BugRepro", "Arithmetic"}),
    ),
    "anthropic": HeldBy(
        "examples/anthropic",
        {
            "ANTHROPIC_API_KEY": "practice",
            "ANTHROPIC_BASE_URL": "{root}/anthropic",
            "ANTHROPIC_CHAT_MODEL": "practice",
        },
    ),
    "gemini": HeldBy(
        "examples/gemini",
        {"GOOGLE_API_KEY": "practice", "GOOGLE_GEMINI_BASE_URL": "{root}/gemini", "GOOGLE_MODEL": "practice"},
        without=("GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT"),
    ),
    "azure-ai-agents": HeldBy(
        "examples/azure-ai-agents",
        {
            "AZURE_AI_AGENTS_KEY": "agents-key",
            "AZURE_AI_AGENTS_ENDPOINT": "{root}/agents",
            "AZURE_AI_AGENTS_MODEL": "practice",
        },
        calls_of_stream=2,
    ),
}
"""What ``--provider`` can be."""
