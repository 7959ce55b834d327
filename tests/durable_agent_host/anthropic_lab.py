"""Turns of a client for Anthropic against the practice model in this process, run live or from JSON state."""

from dataclasses import dataclass

import anthropic
import httpx2
from agent_framework_anthropic import AnthropicClient

from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from tests.durable_agent_host.wire_lab import Lab


@dataclass
class AnthropicLab(Lab):
    """A practice model with fixed ids, and an agent that asks it by the Messages API."""

    provider = ANTHROPIC
    default_options = {"max_tokens": 1000}  # noqa: RUF012 - of the class, and read only

    def client(self, http):
        """Make the client of an agent."""
        sdk = anthropic.AsyncAnthropic(api_key="k", base_url="http://model/anthropic", http_client=http, max_retries=0)
        return AnthropicClient(model=self.model, anthropic_client=sdk)

    @staticmethod
    def bare_client():
        """Return a client that sends no requests."""
        return AnthropicClient(model="m", anthropic_client=anthropic.AsyncAnthropic(api_key="k"))

    async def expire_containers(self):
        """Let the service lose all containers."""
        transport = httpx2.ASGITransport(app=self.service.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://model") as http:
            (await http.post("/practice/anthropic/containers/expire")).raise_for_status()

    @property
    def sent(self):
        """The messages of every request that the model got."""
        return [body["messages"] for body in self.bodies]
