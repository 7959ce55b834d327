"""Gemini behind the port: its client is adapted; all else is neutral."""

from typing import Any, Final

from agent_framework import Message

from durable_agent_host.errors import RequestError
from durable_agent_host.providers.gemini.client import adapt_client
from durable_agent_host.providers.neutral import NeutralProvider


class GeminiProvider(NeutralProvider):
    """Clients of Google's Gemini, whose parts are kept and sent back."""

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep its parts."""
        return adapt_client(client)

    def check_message(self, message: Message, /) -> None:
        """Refuse ids of files, which the client leaves out."""
        if any(content.type == "hosted_file" for content in message.contents):
            raise RequestError("the agent's client sends no ids of files: send the file's bytes, or its URL at Gemini")


GEMINI: Final = GeminiProvider()
