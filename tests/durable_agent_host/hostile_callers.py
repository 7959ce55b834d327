"""Callers who are not a session's owner, and what each route is asked: a row for each route, or a test fails."""

import hashlib
from collections.abc import Mapping
from typing import NamedTuple

import requests

from durable_agent_host.http.routes import Route
from tests.kit import AgentHost

FILE = hashlib.sha256(b"a file").hexdigest()
OWNER = {"x-who": "ada@contoso"}
RELATIONS: Mapping[str, Mapping[str, str]] = {
    "same tenant": {"x-who": "eve@contoso"},
    "same name in another tenant": {"x-who": "ada@fabrikam"},
    "stranger": {"x-who": "bob@fabrikam:admin,owner"},
    "anonymous": {},
    "key only": {"x-functions-key": "0123456789abcdef"},
    "platform's header, which the app does not trust": {
        "x-ms-client-principal-id": "ada",
        "x-ms-client-principal": "e30=",
    },
}
"""Relation to the owner → headers."""

UNKNOWN = frozenset({"anonymous", "key only", "platform's header, which the app does not trust"})
"""Those who are not identified: they are sent away before anything is read."""


class RouteRequest(NamedTuple):
    """How a route is asked.

    Attributes:
        body: of the request.
        query: parameters.
        headers: further ones.
    """

    body: bytes = b""
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}


_JSON = {"content-type": "application/json"}
ROWS: Mapping[str, RouteRequest | None] = {
    "http-run": RouteRequest(b"SECRET of a stranger", {"session_id": "{session}"}),
    "http-agents": None,
    "http-sessions": None,
    "http-pending": None,
    "http-callback": None,
    "http-workflow-answers": None,
    "http-health": None,
    "http-session": RouteRequest(),
    "http-export": RouteRequest(),
    "http-import": RouteRequest(b'{"schemaVersion": "1.1.0", "data": {"conversationHistory": []}}', {}, _JSON),
    "http-verify": RouteRequest(),
    "http-repair": RouteRequest(),
    "http-fork": RouteRequest(b"{}", {}, _JSON),
    "http-delete": RouteRequest(),
    "http-files": RouteRequest(),
    "http-upload": RouteRequest(b"SECRET of a stranger", {"name": "s.txt"}),
    "http-file": RouteRequest(),
    "http-turn": RouteRequest(),
    "http-steps": RouteRequest(),
    "http-calls": RouteRequest(),
    "http-call": RouteRequest(),
    "http-events": RouteRequest(),
    "http-cancel": RouteRequest(),
    "http-resume": RouteRequest(),
    "http-answers": RouteRequest(b'{"call_id": "call_1", "approved": true}', {}, _JSON),
}
"""Route → how it is asked; None for a route that is about no single session."""

BEGINNERS = frozenset({"http-run", "http-import", "http-upload"})
"""Routes that create a missing session; for another caller's session they respond as if it did not exist."""


def send(
    host: AgentHost,
    route: Route,
    names: Mapping[str, str],
    caller_headers: Mapping[str, str],
    row: RouteRequest | None = None,
) -> requests.Response:
    """Ask a route as somebody, as its row says."""
    row = row or ROWS[route.name] or RouteRequest()
    parts = {"agent": "Echo", "call": "1.0", "body": "request", "token": "cb_x", "workflow": "w", "run": "r", **names}
    path = route.template.format(**parts)
    query = {name: value.format(**names) for name, value in row.query.items()}
    headers = {**row.headers, **caller_headers}
    return requests.request(route.method, f"{host.url}/api/{path}", params=query, data=row.body, headers=headers)


def describe_response(response: requests.Response, names: Mapping[str, str]) -> str:
    """Give all that an answer says, with the ids that were asked for as words."""
    headers = sorted((name.lower(), value) for name, value in response.headers.items() if name.lower() != "date")
    text = repr((response.status_code, headers, response.content))
    for name, value in names.items():
        text = text.replace(value, f"<{name}>")
    return text
