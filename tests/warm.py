"""Builds, when it is imported, the parsers of the Responses API's events, which each host builds before its first turn.

Forks have them from their server.
"""

import asyncio

from durable_agent_host.providers.openai.provider import RESPONSES

asyncio.run(RESPONSES.warm_up())
