"""Functions written for `azure.functions.HttpRequest`, in an app that streams.

Theory of operation: importing ``azurefunctions.extensions.http.fastapi`` switches the whole app to HTTP streaming. The
worker then gives every HTTP function a FastAPI request, takes a FastAPI response, and refuses to load functions that
are annotated otherwise. `adapt_http_function` puts such a function into one that the worker loads. Functions that are
annotated with the extension's request are left alone. Source: ``http_v2.py`` and ``bindings/meta.py`` of
azure-functions-runtime 1.3; the classic worker does the same.
"""

import asyncio
import inspect
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from functools import wraps
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import azure.functions as func
from azure.functions.decorators.constants import HTTP_TRIGGER
from azurefunctions.extensions.http.fastapi import Request, Response
from starlette.requests import ClientDisconnect

from durable_agent_host.errors import RequestTooLargeError
from durable_agent_host.http.bodies import BodyLimit, media_type_of
from durable_agent_host.http.gate import Gate
from durable_agent_host.http.problems import problem, problem_of_error
from durable_agent_host.http.upstream_routes import Entrance, workflow_entrance

UserFunction = Callable[..., Any]

_UPSTREAM: Final = "agent_framework_azurefunctions"
_OUR_PACKAGES: Final = frozenset({"durable_agent_host", _UPSTREAM})
_FOREIGN_PAGE_HEADER = "x-functions-host-foreign-page"
_FOREIGN_PAGE = (
    "pages of other origins may not call this ({}): list the page's origin under Host.CORS in local.settings.json"
)
"""The embedded host lets such pages call anonymous functions, as `func start` does; ours are not for them."""

_GONE = 499
"""The caller has left before its request was read. Source: nginx."""


def adapt_http_functions(functions: Iterable[Any], *, limits: Mapping[str, BodyLimit], gate: Gate) -> None:
    """Let the HTTP functions of an app be called with FastAPI requests; upstream's ask the gate before.

    Args:
        functions: the app's, as the SDK has built them; they are changed.
        limits: by function name; see `adapt_http_function`.
        gate: decides. Ours have asked it already when they run, and an app's own functions are its own matter.
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
            limit=limits.get(function.get_function_name() or ""),
            entrance=workflow_entrance(str(trigger.route), gate) if is_upstreams else None,
        )


def adapt_http_function(
    function: UserFunction,
    parameter: str,
    *,
    limit: BodyLimit | None = None,
    entrance: Entrance | None = None,
) -> UserFunction:
    """Let a function that takes `azure.functions.HttpRequest` be called with a FastAPI request.

    Args:
        function: of an HTTP trigger, ``async def`` or ``def``; the latter runs in a thread.
        parameter: the trigger's.
        limit: a larger body is answered with 413 and not read to its end; None takes what the host takes.
        entrance: asked before the function is called; what it raises is the answer.

    Returns:
        A function with the same parameters, or the same one when its request is annotated as FastAPI's, or when its
        annotations cannot be read, which the worker reports.
    """
    if not _takes_functions_request(function, parameter):
        return function

    is_ours = function.__module__.partition(".")[0] in _OUR_PACKAGES

    @wraps(function)
    async def adapted(**arguments: Any) -> Response:
        page = arguments[parameter].headers.get(_FOREIGN_PAGE_HEADER)
        if is_ours and page is not None:
            return write_response(problem(HTTPStatus.FORBIDDEN, _FOREIGN_PAGE.format(page)))
        try:
            arguments[parameter] = await read_request(arguments[parameter], limit)
        except RequestTooLargeError as error:
            # Without it the server reads the rest of the body, to use the connection again.
            return write_response(problem_of_error(error, headers={"connection": "close"}))
        except ClientDisconnect:
            return Response(status_code=_GONE)
        if entrance is not None:
            try:
                await entrance(arguments[parameter])
            except Exception as error:  # noqa: BLE001 - an edge: what the gate raises is the answer
                return write_response(problem_of_error(error))
        if inspect.iscoroutinefunction(function):
            return write_response(await function(**arguments))
        return write_response(await asyncio.to_thread(function, **arguments))

    annotations = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
    adapted.__annotations__ = annotations | {parameter: Request}
    if "return" in inspect.get_annotations(function):
        adapted.__annotations__["return"] = Response
    return adapted


def _takes_functions_request(function: UserFunction, parameter: str) -> bool:
    try:
        hint = get_type_hints(function).get(parameter, func.HttpRequest)
    except (NameError, TypeError):
        return False
    return inspect.isclass(hint) and issubclass(hint, func.HttpRequest)


class StreamedRequest(func.HttpRequest):
    """A request whose body can be read piece by piece, if it was not read.

    Args:
        method: of HTTP.
        url: as it was sent.
        stream: gives the body's pieces, once.
        more: as the SDK has it.
    """

    def __init__(self, method: str, url: str, *, stream: Callable[[], AsyncGenerator[bytes]], **more: Any) -> None:
        super().__init__(method, url, **more)
        self.stream = stream


async def read_request(request: Request, limit: BodyLimit | None = None) -> func.HttpRequest:
    """Read a FastAPI request as the Functions host gives it to functions.

    Args:
        request: with the values of the route in ``path_params``.
        limit: of the body; None reads any.

    Returns:
        The request. Headers and query parameters that come more than once are joined by commas, empty query
        parameters are left out.

    Raises:
        RequestTooLargeError: the body is over the limit; not more than the limit was read.
        ClientDisconnect: the caller left.
    """
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    query: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if value:
            query[name] = f"{query[name]},{value}" if name in query else value
    return StreamedRequest(
        request.method,
        _url(request),
        headers=headers,
        params=query,
        route_params={name: str(value) for name, value in request.path_params.items()},
        body=await _read_body(request, limit),
        stream=request.stream,
    )


async def _read_body(request: Request, limit: BodyLimit | None) -> bytes:
    if limit is None:
        return await request.body()
    max_bytes, setting = limit.of(media_type_of(request.headers))
    if max_bytes == 0:
        return b""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _too_large(f"{int(declared)} bytes", max_bytes, setting)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(f"more than {max_bytes} bytes", max_bytes, setting)
    return bytes(body)


def _too_large(size: str, max_bytes: int, setting: str) -> RequestTooLargeError:
    return RequestTooLargeError(f"the body has {size}, and {max_bytes} are allowed: send less, or raise {setting}")


def _url(request: Request) -> str:
    """Write the URL as it was sent, escapes included."""
    path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
    query = request.scope.get("query_string", b"").decode("latin-1")
    return f"{request.url.scheme}://{request.url.netloc}{path}{'?' if query else ''}{query}"


def write_response(returned: Any) -> Response:
    """Give what a function returned as a FastAPI response.

    Guarantee: pure.

    Args:
        returned: a response of either kind, a text, or None.

    Returns:
        The response; a text is ``text/plain``, None has no content.

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
