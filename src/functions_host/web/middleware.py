"""Middleware around the host's app: request log, body limit, host names, and CORS.

As in the Core Tools, pages of the origins in ``Host.CORS`` of ``local.settings.json`` may call every route. They may
also read the headers of answers, unless they send credentials.
"""

import logging
import time
from dataclasses import dataclass
from http import HTTPStatus

from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from functions_host.host_names import HostNames, local_address, split_authority
from functions_host.settings import LocalHost
from functions_host.web.body_limit import BodyLimit
from functions_host.web.problems import problem

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MiddlewareSettings:
    """Settings of the middleware."""

    names: HostNames
    local: LocalHost
    max_body_bytes: int
    log_requests: bool = False


def add_middleware(app: ASGIApp, settings: MiddlewareSettings) -> ASGIApp:
    """Wrap an app with the middleware."""
    local = settings.local
    if local.cors_origins:
        app = CORSMiddleware(
            app,
            allow_origins=local.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            allow_credentials=local.cors_credentials,
            allow_private_network=True,
            expose_headers=["*"],
        )
    app = BodyLimit(HostNameCheck(app, settings.names), settings.max_body_bytes)
    return RequestLog(app) if settings.log_requests else app


class HostNameCheck:
    """ASGI middleware that refuses requests with a foreign ``Host``."""

    def __init__(self, app: ASGIApp, names: HostNames) -> None:
        self._app = app
        self._names = names

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, or refuse it."""
        refusal = self._find_rejection(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _find_rejection(self, scope: Scope) -> Response | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            return None
        if len(hosts) != 1 or split_authority(hosts[0]) is None:
            return problem(HTTPStatus.BAD_REQUEST, "The request needs one Host header with a name and a port.")
        if self._names.has(hosts[0], local_address(scope)):
            return None
        name = hosts[0]
        return problem(
            HTTPStatus.MISDIRECTED_REQUEST,
            f"This host does not answer to the name {name!r}; use localhost, or start it with --allow-host.",
        )


class RequestLog:
    """ASGI middleware that logs one line per request: method, path without query, status, milliseconds."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request, and log it after its response."""
        status = 0
        begin = time.perf_counter()

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watch)
        finally:
            if scope["type"] == "http":
                path = scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or scope["path"]
                took = (time.perf_counter() - begin) * 1000
                _logger.info("%s %s %s %.1f ms", scope["method"], path, status or "-", took)
