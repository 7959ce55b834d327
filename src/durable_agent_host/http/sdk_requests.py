"""Functions written for `azure.functions.HttpRequest`, in an app that streams.

Theory of operation: importing ``azurefunctions.extensions.http.fastapi`` switches the whole app to HTTP streaming. The
worker then passes every HTTP function a FastAPI request, expects a FastAPI response, and refuses to load functions with
other annotations. `adapt_http_function` wraps such a function in one that the worker loads. Functions annotated with
the extension's request are left alone. Source: ``http_v2.py`` and ``bindings/meta.py`` of azure-functions-runtime 1.3;
the classic worker does the same.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import azure.functions as func
from azure.functions.decorators.constants import HTTP_TRIGGER
from azurefunctions.extensions.http.fastapi import Request, Response
from starlette.requests import ClientDisconnect

from durable_agent_host.errors import DurableAgentHostError, RegistrationError
from durable_agent_host.http.calls import CALLER_LEFT, logger
from durable_agent_host.http.gate import Gate, IncomingRequest
from durable_agent_host.http.problems import problem, problem_of_error
from durable_agent_host.http.upstream_routes import Entrance, workflow_entrance

UserFunction = Callable[..., Any]
SecretOf = Callable[[str], Awaitable[str]]
"""Reads the app's secret for ids; takes the value of the durable client's binding."""

_UPSTREAM: Final = "agent_framework_azurefunctions"
_OUR_PACKAGES: Final = frozenset({"durable_agent_host", _UPSTREAM})
_CLIENT: Final = "durableClient"
_NOT_FOR_CACHES: Final = "private, no-store"
"""Shared caches do not know the caller, and store a 404 as well. Source: RFC 9111, sections 3 and 4.2.2."""
_FOREIGN_PAGE_HEADER = "x-functions-host-foreign-page"
_FOREIGN_PAGE = (
    "pages of other origins may not call this ({}): list the page's origin under Host.CORS in local.settings.json"
)
"""The embedded host lets such pages call anonymous functions, as `func start` does; our routes are not for them."""


def adapt_http_functions(functions: Iterable[Any], *, gate: Gate, secret_of: SecretOf) -> None:
    """Let FastAPI requests call an app's HTTP functions; upstream's functions pass the gate first.

    Args:
        functions: the app's, as built by the SDK; changed in place.
        gate: checks upstream's. Our own call it themselves; the app's own functions are not checked.
        secret_of: reads the secret on which the ids of runs depend.
    """
    for function in functions:
        trigger = function.get_trigger()
        if trigger is None or trigger.get_binding_name() != HTTP_TRIGGER:
            continue
        called = function.get_user_function()
        is_upstreams = called.__module__.partition(".")[0] == _UPSTREAM
        function._func = adapt_http_function(  # noqa: SLF001 - as the SDK's own decorators replace it
            called,
            trigger.name,
            entrance=workflow_entrance(str(trigger.route), gate) if is_upstreams else None,
            read_secret=_secret_reader(function, secret_of),
        )


def adapt_http_function(
    function: UserFunction,
    parameter: str,
    *,
    entrance: Entrance | None = None,
    read_secret: Callable[[Mapping[str, Any]], Awaitable[str]],
) -> UserFunction:
    """Let a FastAPI request call a function that takes `azure.functions.HttpRequest`.

    Args:
        function: of an HTTP trigger, ``async def`` or ``def``; the latter runs in a thread. Ours read the body
            themselves, once they know the caller.
        parameter: name of the trigger's parameter.
        entrance: called before the body is read; may change what the request names; what it raises becomes the answer.
        read_secret: reads what the entrance needs, from the function's arguments.

    Returns:
        A function with the same parameters; the given one when its request is annotated as FastAPI's, or when its
        annotations cannot be read, which the worker reports.
    """
    if not _takes_functions_request(function, parameter):
        return function

    package = function.__module__.partition(".")[0]
    is_ours, is_routes = package in _OUR_PACKAGES, package in _OUR_PACKAGES - {_UPSTREAM}

    async def answer(**arguments: Any) -> Response:
        page = arguments[parameter].headers.get(_FOREIGN_PAGE_HEADER)
        if is_ours and page is not None:
            return write_response(problem(HTTPStatus.FORBIDDEN, _FOREIGN_PAGE.format(page)))
        request = arguments[parameter]
        named = _query_of(request), {name: str(value) for name, value in request.path_params.items()}
        if entrance is not None:
            try:
                named = await entrance(incoming(request, named[0]), *named, partial(read_secret, arguments))
            except DurableAgentHostError as error:
                return write_response(problem_of_error(error))
            except Exception as error:  # noqa: BLE001 - an edge: recorded, and answered
                logger.exception("%s %s: the caller could not be identified", request.method, request.url.path)
                return write_response(problem_of_error(error))
        try:
            arguments[parameter] = await read_request(request, *named, has_body=not is_routes)
        except ClientDisconnect:
            return Response(status_code=CALLER_LEFT)
        if inspect.iscoroutinefunction(function):
            return write_response(await function(**arguments))
        return write_response(await asyncio.to_thread(function, **arguments))

    return _in_place_of(function, parameter, answer, is_ours=is_ours)


def _in_place_of(
    function: UserFunction, parameter: str, answer: Callable[..., Awaitable[Response]], *, is_ours: bool
) -> UserFunction:
    """Give the answering function the name and parameters of another, as the worker reads them."""

    @wraps(function)
    async def adapted(**arguments: Any) -> Response:
        answered = await answer(**arguments)
        if is_ours:
            answered.headers.setdefault("cache-control", _NOT_FOR_CACHES)
        return answered

    annotations = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
    adapted.__annotations__ = annotations | {parameter: Request}
    if "return" in inspect.get_annotations(function):
        adapted.__annotations__["return"] = Response
    return adapted


def _secret_reader(function: Any, secret_of: SecretOf) -> Callable[[Mapping[str, Any]], Awaitable[str]]:
    """Return what reads the app's secret from a function's arguments, which include a durable client."""
    client = next((one.name for one in function.get_bindings() if one.get_binding_name() == _CLIENT), "")
    return lambda arguments: secret_of(arguments[client])


def _takes_functions_request(function: UserFunction, parameter: str) -> bool:
    try:
        hint = get_type_hints(function).get(parameter, func.HttpRequest)
    except (NameError, TypeError):
        return False
    return inspect.isclass(hint) and issubclass(hint, func.HttpRequest)


class StreamedRequest(func.HttpRequest):
    """A request whose body can be read piece by piece if it was not read before.

    Args:
        method: HTTP method.
        url: as sent.
        stream: the body's pieces, once.
        span: trace id and flags of the request's own span, or None.
        more: arguments of the SDK's class.
    """

    def __init__(
        self,
        method: str,
        url: str,
        *,
        stream: Callable[[], AsyncGenerator[bytes]],
        span: tuple[int, int] | None,
        **more: Any,
    ) -> None:
        super().__init__(method, url, **more)
        self.stream = stream
        self.span = span


async def read_request(
    request: Request, query: Mapping[str, str], path_parts: Mapping[str, str], *, has_body: bool = True
) -> func.HttpRequest:
    """Read a FastAPI request into the form in which the Functions host passes it to functions.

    Args:
        request: the original one.
        query: its parameters.
        path_parts: the values of the route, by name.
        has_body: whether to read the body; otherwise it stays in the request's stream.

    Returns:
        The request.

    Raises:
        ClientDisconnect: the client disconnected.
    """
    return StreamedRequest(
        request.method,
        _url(request),
        headers=_headers_of(request),
        params=dict(query),
        route_params=dict(path_parts),
        body=await request.body() if has_body else b"",
        stream=request.stream,
        span=_span_of(request),
    )


def _headers_of(request: Request) -> dict[str, str]:
    """Join repeated headers by commas."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _span_of(request: Request) -> tuple[int, int] | None:
    """Return the trace of the span that FastAPI (0.165) makes for a request when the app has configured a tracer."""
    span: Any = getattr(request.scope.get("fastapi.telemetry"), "span", None)
    if span is None or not (context := span.get_span_context()).is_valid:
        return None
    return context.trace_id, int(context.trace_flags)


def _query_of(request: Request) -> dict[str, str]:
    """Join repeated query parameters by commas; leave out empty ones."""
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if value:
            query[name] = f"{query[name]},{value}" if name in query else value
    return query


def incoming(request: Request, query: Mapping[str, str]) -> IncomingRequest:
    """Return a request as the gate sees it. Guarantee: pure.

    Args:
        request: the original one.
        query: its parameters.
    """
    return IncomingRequest(_headers_of(request), query, request.method.upper(), request.url.path)


def _url(request: Request) -> str:
    """Return the URL as sent, escapes included."""
    path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{request.url.scheme}://{request.url.netloc}{path}{'?' if query else ''}{query}"


def write_response(returned: Any) -> Response:
    """Convert what a function returned to a FastAPI response.

    Guarantee: pure.

    Args:
        returned: a response of either kind, a text, or None.

    Returns:
        The response; a text is ``text/plain``, None is an empty response.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(returned, Response):
        return returned
    if returned is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    if isinstance(returned, str):
        return Response(returned, media_type="text/plain")
    if not isinstance(returned, func.HttpResponse):
        raise TypeError(f"an HTTP function returned {type(returned).__name__}: return azure.functions.HttpResponse")
    response = Response(returned.get_body(), status_code=int(returned.status_code))
    for name, value in returned.headers.items():
        if name.lower() != "content-length":
            response.headers.append(name, value)
    if "content-type" not in response.headers:
        text = returned.mimetype.startswith("text/")
        response.headers["content-type"] = (
            f"{returned.mimetype}; charset={returned.charset}" if text else returned.mimetype
        )
    return response


def check_auth_level(level: Any) -> func.AuthLevel:
    """Return the auth level of an app's routes, given as a level or by name.

    Guarantee: pure.

    Args:
        level: a level, or its name in any case.

    Raises:
        RegistrationError: there is no such level.
    """
    found = func.AuthLevel.__members__.get(level.upper()) if isinstance(level, str) else level
    if not isinstance(found, func.AuthLevel):
        names = ", ".join(f"func.AuthLevel.{name}" for name in func.AuthLevel.__members__)
        raise RegistrationError(f"http_auth_level is {level!r}: give one of {names}")
    return found
