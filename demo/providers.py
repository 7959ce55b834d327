"""The providers whose APIs the demo can use with the practice model. Data only."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Provider:
    """One provider.

    Attributes:
        app: folder of the function app.
        settings: environment variables of the host; ``{root}`` is the practice model's address.
        removed_variables: environment variables that would select another service.
        agents: the demo's agents that the app contains.
        stream_model_calls: number of model calls of the streamed turn. A service that runs the model itself continues
            when the host dies, and is not called again.
    """

    app: str
    settings: Mapping[str, str]
    removed_variables: tuple[str, ...] = ("AZURE_OPENAI_ENDPOINT",)
    agents: frozenset[str] = field(default=frozenset({"BugRepro", "Arithmetic", "Analyst"}))
    stream_model_calls: int = 3

    def environment(self, root: str) -> dict[str, str]:
        """Return the settings for a practice model at this address."""
        return {name: value.format(root=root) for name, value in self.settings.items()}


OPENAI = "openai"

PROVIDERS: Mapping[str, Provider] = {
    OPENAI: Provider(".", {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": "{root}/v1", "OPENAI_MODEL": "practice"}),
    "chat": Provider(
        "examples/chat-completions",
        {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": "{root}/v1", "OPENAI_MODEL": "practice"},
        agents=frozenset({"BugRepro", "Arithmetic"}),
    ),
    "anthropic": Provider(
        "examples/anthropic",
        {
            "ANTHROPIC_API_KEY": "practice",
            "ANTHROPIC_BASE_URL": "{root}/anthropic",
            "ANTHROPIC_CHAT_MODEL": "practice",
        },
    ),
    "gemini": Provider(
        "examples/gemini",
        {"GOOGLE_API_KEY": "practice", "GOOGLE_GEMINI_BASE_URL": "{root}/gemini", "GOOGLE_MODEL": "practice"},
        removed_variables=("GEMINI_API_KEY", "GOOGLE_GENAI_USE_VERTEXAI", "GOOGLE_CLOUD_PROJECT"),
    ),
    "azure-ai-agents": Provider(
        "examples/azure-ai-agents",
        {
            "AZURE_AI_AGENTS_KEY": "agents-key",
            "AZURE_AI_AGENTS_ENDPOINT": "{root}/agents",
            "AZURE_AI_AGENTS_MODEL": "practice",
        },
        stream_model_calls=2,
    ),
}
"""The values of ``--provider``."""
