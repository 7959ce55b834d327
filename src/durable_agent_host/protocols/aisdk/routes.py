"""The routes of the AI SDK's clients."""

from typing import Final

from durable_agent_host.http.request_handling import Route

ROUTES: Final[tuple[Route, ...]] = ()
