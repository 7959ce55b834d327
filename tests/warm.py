"""Builds, when it is imported, the parsers of the Responses API's events, which each host builds before its first turn.

Forks have them from their server. That a host builds them is tested in a process from nothing, in
`tests/durable_agent_host/agent/test_warm_up.py`.
"""

import asyncio

from durable_agent_host.providers.openai.provider import warm_up

asyncio.run(warm_up())
