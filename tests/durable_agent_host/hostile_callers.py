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


class Asked(NamedTuple):
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
ROWS: Mapping[str, Asked | None] = {
    "http-run": Asked(b"SECRET of a stranger", {"session_id": "{session}"}),
    "http-agents": None,
    "http-metrics": None,
    "http-sessions": None,
    "http-health": None,
    "http-session": Asked(),
    "http-export": Asked(),
    "http-import": Asked(b'{"schemaVersion": "1.1.0", "data": {"conversationHistory": []}}', {}, _JSON),
    "http-verify": Asked(),
    "http-repair": Asked(),
    "http-fork": Asked(b"{}", {}, _JSON),
    "http-context-reset": Asked(),
    "http-delete": Asked(),
    "http-files": Asked(),
    "http-upload": Asked(b"SECRET of a stranger", {"name": "s.txt"}),
    "http-file": Asked(),
    "http-file-head": Asked(),
    "http-turn": Asked(),
    "http-steps": Asked(),
    "http-calls": Asked(),
    "http-call": Asked(),
    "http-call-body": Asked(),
    "http-turn-test": Asked(),
    "http-events": Asked(),
    "http-cancel": Asked(),
    "http-approvals": Asked(b'{"call_id": "call_1", "approved": true}', {}, _JSON),
}
"""Route → how it is asked; None for a route that is about no single session."""

BEGINNERS = frozenset({"http-run", "http-import", "http-upload"})
"""Routes that begin a session where there is none; of somebody else's they say what reading says of none."""


def send(
    host: AgentHost, route: Route, names: Mapping[str, str], who: Mapping[str, str], row: Asked | None = None
) -> requests.Response:
    """Ask a route as somebody, as its row says."""
    row = row or ROWS[route.name] or Asked()
    path = route.template.format(**{"agent": "Echo", "call": "1.0", "body": "request"} | names)
    query = {name: value.format(**names) for name, value in row.query.items()}
    headers = {**row.headers, **who}
    return requests.request(
        route.method, f"{host.url}/api/{path}", params=query, data=row.body, headers=headers, timeout=60
    )


def whole(answer: requests.Response, names: Mapping[str, str]) -> str:
    """Give all that an answer says, with the ids that were asked for as words."""
    headers = sorted((name.lower(), value) for name, value in answer.headers.items() if name.lower() != "date")
    said = repr((answer.status_code, headers, answer.content))
    for name, value in names.items():
        said = said.replace(value, f"<{name}>")
    return said
