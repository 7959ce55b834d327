"""The dialects that a host speaks beside its own API: whoever adds one adds a row, a setting and a part of an app."""

from collections.abc import Mapping, Sequence
from typing import Final

from durable_agent_host.http.request_handling import Route, RoutePart
from durable_agent_host.protocols.agui.routes import ROUTES as AGUI
from durable_agent_host.protocols.aisdk.routes import ROUTES as AISDK
from durable_agent_host.protocols.mcp.routes import ROUTES as MCP
from durable_agent_host.protocols.openai.routes import ROUTES as OPENAI

DIALECTS: Final[Mapping[RoutePart, Sequence[Route]]] = {"openai": OPENAI, "agui": AGUI, "aisdk": AISDK, "mcp": MCP}
DIALECT_ROUTES: Final = tuple(route for routes in DIALECTS.values() for route in routes)
