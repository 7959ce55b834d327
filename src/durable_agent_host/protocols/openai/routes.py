"""The routes of clients of the Responses API."""

from typing import Final

from durable_agent_host.http.request_handling import Route

ROUTES: Final[tuple[Route, ...]] = ()
