"""The routes for the app's own functions, without a connection: a transport of httpx."""

from collections.abc import AsyncGenerator, Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

import httpx2
from azurefunctions.extensions.http.fastapi import Request

from durable_agent_host.agent_client import AgentClient
from durable_agent_host.durable.turn_client import ClientFor
from durable_agent_host.http.event_stream import PartStream
from durable_agent_host.http.request_handling import HandlerContext
from durable_agent_host.http.routes import ROUTES
from durable_agent_host.model.access import Action, RequestContext

ContextFor = Callable[[Action, str | None], RequestContext]
"""Makes the context of a request from its action and its ``traceparent``."""


def client_of_routes(
    host: HandlerContext, client_for: ClientFor, context_for: ContextFor, *, base_url: str = "", **options: Any
) -> AgentClient:
    """Return a client whose requests the routes' own code answers.

    Args:
        host: the app.
        client_for: makes the turn client of a request.
        context_for: makes its context.
        base_url: of the app's routes, prefix included, for the URLs in answers; by default these begin with the path
            after the prefix.
        options: of `AgentClient`.
    """
    transport = _RouteTransport(host, client_for, context_for, urlsplit(base_url))
    return AgentClient("http://app/api", transport=transport, **options)


class _RouteTransport(httpx2.AsyncBaseTransport):
    """Answers requests as the routes do, for whom the context says."""

    def __init__(
        self, host: HandlerContext, client_for: ClientFor, context_for: ContextFor, base_url: SplitResult
    ) -> None:
        self._host = host
        self._base_url = base_url
        self._client_for = client_for
        self._context_for = context_for

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Answer a request."""
        path = request.url.raw_path.decode().partition("?")[0].removeprefix("/api/")
        for route in ROUTES:
            names = _match(route.template, path) if route.method == request.method else None
            if names is not None:
                break
        else:
            return httpx2.Response(HTTPStatus.NOT_FOUND)

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": await request.aread(), "more_body": False}

        scope = {
            "type": "http",
            "method": request.method,
            "scheme": self._base_url.scheme,
            "path": f"{self._base_url.path}/{path}",
            "query_string": request.url.query,
            "headers": [
                *((name.lower(), value) for name, value in request.headers.raw if name.lower() != b"host"),
                *([(b"host", self._base_url.netloc.encode())] if self._base_url.netloc else []),
            ],
            "path_params": names,
        }
        call = Request(scope, receive)
        context = self._context_for(route.action, request.headers.get("traceparent"))
        answer = await route.serve_app(self._host, call, self._client_for(context))
        if isinstance(answer, PartStream):
            return httpx2.Response(answer.status_code, headers=answer.raw_headers, stream=_Body(answer))
        return httpx2.Response(answer.status_code, headers=answer.raw_headers, content=bytes(answer.body))


def _match(template: str, path: str) -> dict[str, str] | None:
    """Return the decoded parts of a path by their names in a route's template; None for another route's path."""
    names, parts = template.split("/"), path.split("/")
    if len(names) != len(parts):
        return None
    pairs = [(name, unquote(part)) for name, part in zip(names, parts, strict=True)]
    if any(name != part for name, part in pairs if not name.startswith("{")):
        return None
    return {name.strip("{}"): part for name, part in pairs if name.startswith("{")}


class _Body(httpx2.AsyncByteStream):
    """The parts of an answer, as they are read."""

    def __init__(self, answer: PartStream) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async for part in self._answer.parts:
            yield part

    async def aclose(self) -> None:
        """Release what the answer holds."""
        await self._answer.aclose()
