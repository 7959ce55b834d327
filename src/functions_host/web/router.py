"""Routes each request to one of the host's own endpoints or to an HTTP function."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from functions_host.app.client_binding import MCP_PATH, WEBHOOK_PATH, ClientAddresses
from functions_host.app.function import AppFunction
from functions_host.app.invoker import Datum, Invoker, client_inputs
from functions_host.engine.durable_functions import Raised
from functions_host.errors import StartupError
from functions_host.triggers.http import ResponseError, read_request, write_failure, write_response
from functions_host.web.admin_api import ADMIN_PATH
from functions_host.web.foreign_pages import PageRules
from functions_host.web.keys import Keys
from functions_host.web.problems import problem
from functions_host.web.route_templates import RouteError, RouteTable, compile_template
from functions_host.web.streaming import LoopBridge, StreamingCall

_logger = logging.getLogger(__name__)
_FRONT_PAGE = "The functions host is up and running.\n"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The host's own endpoints: management API, ``/admin``, and MCP when the app has tools."""

    manage: Callable[[Request], Awaitable[Response]]
    admin: Callable[[Request], Awaitable[Response]]
    mcp: Callable[[Request], Awaitable[Response]] | None = None


class Router:
    """The ASGI app of the host.

    Args:
        functions: of the app.
        invoker: calls them.
        endpoints: of the host.
        addresses: for the app's durable clients.
        route_prefix: of every route.
        streaming: runs HTTP functions with a web framework's request; None without such functions.
        keys: required of callers; None for no authentication.
        pages: decides which web pages may call.
    """

    def __init__(
        self,
        functions: Iterable[AppFunction],
        invoker: Invoker,
        endpoints: Endpoints,
        addresses: ClientAddresses,
        *,
        route_prefix: str,
        streaming: LoopBridge | None = None,
        keys: Keys | None = None,
        pages: PageRules,
    ) -> None:
        self._pages = pages
        self._invoker = invoker
        self._endpoints = endpoints
        self._addresses = addresses
        self._streaming = streaming
        self._keys = keys
        self._routes = _make_routes(functions, route_prefix)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        try:
            answer = await self._answer(Request(scope, receive))
        except ClientDisconnect:
            return
        if isinstance(answer, StreamingCall):
            assert self._streaming is not None
            await self._streaming.forward(answer, scope, receive, send)
        else:
            await answer(scope, receive, send)

    async def _answer(self, request: Request) -> Response | StreamingCall:
        if (refusal := self._pages.find_refusal(request)) is not None:
            return refusal
        endpoint = self._find_endpoint(request)
        if endpoint is not None:
            return await endpoint(request)
        raw_path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
        found = self._routes.find(request.method, raw_path)
        if found is None:
            if raw_path == "/":
                return PlainTextResponse(_FRONT_PAGE)
            return problem(HTTPStatus.NOT_FOUND, f"No function takes {request.method} {raw_path}.")
        function, values = found
        assert function.http is not None
        if self._keys is not None and not self._keys.open_function(request, function.http.auth_level):
            return await _reject(request)
        clients = client_inputs(function, self._addresses.seen_by(request))
        if self._streaming is not None:
            return StreamingCall(function, values, clients)
        return await self._invoke(function, request, values, clients)

    def _find_endpoint(self, request: Request) -> Callable[[Request], Awaitable[Response]] | None:
        """Return the host's own endpoint for a request; the app's own calls have their key in the path."""
        path = str(request.scope["path"])
        own_prefix = self._addresses.own_prefix
        is_own_call = bool(own_prefix) and path.startswith(own_prefix + WEBHOOK_PATH)
        if is_own_call:
            for key in ("path", "raw_path"):
                request.scope[key] = request.scope[key][len(own_prefix) :]
            path = path[len(own_prefix) :]
        if path.lower().startswith(f"{ADMIN_PATH}/"):
            is_open = self._keys is None or self._keys.open_function(request, "ADMIN")
            return self._endpoints.admin if is_open else _reject
        if path.startswith(WEBHOOK_PATH):
            endpoint = self._endpoints.manage
        elif path.rstrip("/") == MCP_PATH and self._endpoints.mcp is not None:
            endpoint = self._endpoints.mcp
        else:
            return None
        return endpoint if is_own_call or self._keys is None or self._keys.open_system(request) else _reject

    async def _invoke(
        self,
        function: AppFunction,
        request: Request,
        values: Mapping[str, str],
        clients: Iterable[tuple[str, Datum]],
    ) -> Response:
        inputs = [(function.parameter, read_request(request, values, await request.body())), *clients]
        result = await self._invoker.invoke(function, inputs)
        failure = result.failure
        if failure is None:
            try:
                return write_response(result.return_value)
            except ResponseError as error:
                failure = Raised("ResponseError", str(error))
        _logger.error("Function %r failed: %s", function.name, f"{failure.text}\n{failure.trace}".rstrip())
        return write_failure(failure)


async def _reject(_: Request) -> Response:
    return problem(
        HTTPStatus.UNAUTHORIZED,
        "This needs a key that allows it; send it as header x-functions-key or as query parameter code. The keys are "
        "in keys.json of the host's data directory.",
    )


def _make_routes(functions: Iterable[AppFunction], prefix: str) -> RouteTable[AppFunction]:
    routes = [
        (f"{prefix}/{function.http.route.lstrip('/')}", function.http.methods, function)
        for function in functions
        if function.http is not None
    ]
    for index, (template, methods, function) in enumerate(routes):
        try:
            compile_template(template)
        except RouteError as error:
            raise StartupError(f"Function {function.name!r} cannot be served: {error}.") from error
        for other_template, other_methods, other in routes[:index]:
            is_shared = not methods or not other_methods or methods & other_methods
            if is_shared and template.strip("/").lower() == other_template.strip("/").lower():
                raise StartupError(
                    f"Functions {other.name!r} and {function.name!r} have the same route {template!r}; change one of "
                    "the routes, or give them different methods."
                )
    return RouteTable(routes)
