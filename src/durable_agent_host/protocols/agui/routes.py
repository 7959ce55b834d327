"""The routes of AG-UI's clients."""

from typing import Final

from durable_agent_host.http.request_handling import Route

ROUTES: Final[tuple[Route, ...]] = ()
