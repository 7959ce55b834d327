"""Gemini behind the port: its client is adapted; all else is neutral."""

from typing import Any, Final

from durable_agent_host.providers.gemini.client import adapt_client
from durable_agent_host.providers.neutral import NeutralProvider


class GeminiProvider(NeutralProvider):
    """Clients of Google's Gemini, whose parts are kept and sent back."""

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep its parts."""
        return adapt_client(client)


GEMINI: Final = GeminiProvider()
