"""Functions written for `azure.functions.HttpRequest`, in an app that streams.

Theory of operation: importing ``azurefunctions.extensions.http.fastapi`` switches the whole app to HTTP streaming. The
worker then passes every HTTP function a FastAPI request, expects a FastAPI response, and refuses to load functions with
other annotations. `adapt_http_function` wraps such a function in one that the worker loads. Functions annotated with
the extension's request are left alone. Source: ``http_v2.py`` and ``bindings/meta.py`` of azure-functions-runtime 1.3;
the classic worker does the same.
"""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import copy_context
from functools import partial, wraps
from http import HTTPStatus
from typing import Any, Final, get_type_hints

import azure.functions as func
from azure.functions.decorators.constants import HTTP_TRIGGER
from azurefunctions.extensions.http.fastapi import Request, Response
from starlette.requests import ClientDisconnect

from durable_agent_host.app_functions import threads_of
from durable_agent_host.durable.turn_client import ClientFor
from durable_agent_host.errors import RegistrationError
from durable_agent_host.http.gate import Authorizer
from durable_agent_host.http.parse import BodyLimit
from durable_agent_host.http.request_handling import (
    CALLER_LEFT,
    NOT_FOR_CACHES,
    RouteRequest,
    handle_errors,
    headers_of,
    query_of,
    url_of,
)
from durable_agent_host.http.workflow_routes import WorkflowRequest, WorkflowRoute

UserFunction = Callable[..., Any]
ClientForBinding = Callable[[str], ClientFor]
"""Takes the value of the durable client's binding; returns what makes the turn client of a call."""

_UPSTREAM: Final = "agent_framework_azurefunctions"
_OUR_PACKAGES: Final = frozenset({"durable_agent_host", _UPSTREAM})
_CLIENT: Final = "durableClient"


def adapt_http_functions(
    functions: Iterable[Any], gate: Authorizer, client_for: ClientForBinding, max_request_bytes: int
) -> None:
    """Let FastAPI requests call an app's HTTP functions; upstream's functions pass the gate first."""
    for function in functions:
        trigger = function.get_trigger()
        if trigger is None or trigger.get_binding_name() != HTTP_TRIGGER:
            continue
        user_function = function.get_user_function()
        is_upstreams = user_function.__module__.partition(".")[0] == _UPSTREAM
        function._func = adapt_http_function(  # noqa: SLF001 - as the SDK's own decorators replace it
            user_function,
            trigger.name,
            route=WorkflowRoute(str(trigger.route), gate, BodyLimit(max_request_bytes)) if is_upstreams else None,
            client_for=_client_for(function, client_for),
        )


def adapt_http_function(
    function: UserFunction,
    parameter: str,
    *,
    route: WorkflowRoute | None,
    client_for: Callable[[Mapping[str, Any]], ClientFor],
) -> UserFunction:
    """Let a FastAPI request call a function that takes `azure.functions.HttpRequest`.

    Returns:
        A function with the same parameters; the given one when its request is annotated as FastAPI's, or when its
        annotations cannot be read, which the worker reports.
    """
    if not _accepts_functions_request(function, parameter):
        return function

    is_host_function = function.__module__.partition(".")[0] in _OUR_PACKAGES

    async def call(arguments: Mapping[str, Any], workflow_request: WorkflowRequest) -> Any:
        call_arguments = {**arguments, parameter: functions_request(arguments[parameter], workflow_request)}
        if inspect.iscoroutinefunction(function):
            return await function(**call_arguments)
        run = partial(copy_context().run, function, **call_arguments)
        return await asyncio.get_running_loop().run_in_executor(threads_of("route"), run)

    async def answer(**arguments: Any) -> Response:
        request = arguments[parameter]
        workflow_request = WorkflowRequest(
            query_of(request), {name: str(value) for name, value in request.path_params.items()}
        )
        if route is not None:
            route_request = RouteRequest(request)
            answer_request = partial(route.serve, route_request, workflow_request, partial(call, arguments))

            async def serve() -> Response:
                return write_response(await answer_request(client_for(arguments)))

            return await handle_errors(route_request.line, serve)
        try:
            workflow_request = workflow_request._replace(body=await request.body())
        except ClientDisconnect:
            return Response(status_code=CALLER_LEFT)
        return write_response(await call(arguments, workflow_request))

    return _in_place_of(function, parameter, answer, is_host_function=is_host_function)


def _in_place_of(
    function: UserFunction, parameter: str, answer: Callable[..., Awaitable[Response]], *, is_host_function: bool
) -> UserFunction:
    """Give the answering function the name and parameters of another, as the worker reads them."""

    @wraps(function)
    async def adapter(**arguments: Any) -> Response:
        response = await answer(**arguments)
        if is_host_function:
            response.headers.setdefault("cache-control", NOT_FOR_CACHES)
        return response

    annotations = {name: hint for name, hint in inspect.get_annotations(function).items() if name != "return"}
    adapter.__annotations__ = annotations | {parameter: Request}
    if "return" in inspect.get_annotations(function):
        adapter.__annotations__["return"] = Response
    return adapter


def _client_for(function: Any, client_for: ClientForBinding) -> Callable[[Mapping[str, Any]], ClientFor]:
    """Return what makes a turn client with a function's arguments, which include a durable client."""
    client = next((binding.name for binding in function.get_bindings() if binding.get_binding_name() == _CLIENT), "")
    return lambda arguments: client_for(arguments[client])


def _accepts_functions_request(function: UserFunction, parameter: str) -> bool:
    try:
        hint = get_type_hints(function).get(parameter, func.HttpRequest)
    except (NameError, TypeError):
        return False
    return inspect.isclass(hint) and issubclass(hint, func.HttpRequest)


def functions_request(request: Request, workflow_request: WorkflowRequest) -> func.HttpRequest:
    """Return a FastAPI request in the form in which the Functions host passes it to functions."""
    return func.HttpRequest(
        request.method,
        url_of(request),
        headers=headers_of(request),
        params=dict(workflow_request.query),
        route_params=dict(workflow_request.path),
        body=workflow_request.body,
    )


def write_response(result: Any) -> Response:
    """Convert what a function returned to a FastAPI response.

    Returns:
        The response; a text is ``text/plain``, None is an empty response.

    Raises:
        TypeError: it is something else.
    """
    if isinstance(result, Response):
        return result
    if result is None:
        return Response(status_code=HTTPStatus.NO_CONTENT)
    if isinstance(result, str):
        return Response(result, media_type="text/plain")
    if not isinstance(result, func.HttpResponse):
        raise TypeError(f"an HTTP function returned {type(result).__name__}: return azure.functions.HttpResponse")
    response = Response(result.get_body(), status_code=int(result.status_code))
    for name, value in result.headers.items():
        if name.lower() != "content-length":
            response.headers.append(name, value)
    if "content-type" not in response.headers:
        text = result.mimetype.startswith("text/")
        response.headers["content-type"] = f"{result.mimetype}; charset={result.charset}" if text else result.mimetype
    return response


def check_auth_level(level: Any) -> func.AuthLevel:
    """Return the auth level of an app's routes, given as a level or by name.

    Raises:
        RegistrationError: there is no such level.
    """
    auth_level = func.AuthLevel.__members__.get(level.upper()) if isinstance(level, str) else level
    if not isinstance(auth_level, func.AuthLevel):
        names = ", ".join(f"func.AuthLevel.{name}" for name in func.AuthLevel.__members__)
        raise RegistrationError(f"http_auth_level is {level!r}: give one of {names}")
    return auth_level
