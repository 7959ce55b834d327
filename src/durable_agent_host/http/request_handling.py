"""What every handler receives, and how a request reaches it: through the gate, with errors turned into answers."""

import asyncio
import inspect
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from http import HTTPStatus
from typing import Any, Final, Literal, NamedTuple, cast
from urllib.parse import urlsplit

from azurefunctions.extensions.http.fastapi import Request, Response
from starlette.requests import ClientDisconnect

from durable_agent_host.agent.agent_options import AgentOptions
from durable_agent_host.agent.agent_runner import AgentRunner
from durable_agent_host.durable.turn_client import ClientFor, TurnClient, is_store_error
from durable_agent_host.errors import (
    AgentClientError,
    BodiesTooLargeError,
    BodyStalledError,
    DurableAgentHostError,
    NotFoundError,
    RequestTooLargeError,
)
from durable_agent_host.http.arriving_bodies import ArrivingBodies, end_stalled
from durable_agent_host.http.gate import Action, Authorizer, IncomingRequest, wait_for_even_time
from durable_agent_host.http.parse import (
    MAX_UPLOAD,
    BodyLimit,
    RunParameters,
    check_session_parameters,
    parse_run,
    read_body,
)
from durable_agent_host.http.problem_details import PROBLEM, problem, problem_of_error, problem_response
from durable_agent_host.http.response_types import HostedAgentWire
from durable_agent_host.model.access import RequestContext
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.model.log_entry import LogRecord
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.settings import Settings
from durable_agent_host.turn.step_types import ShowEntry
from durable_agent_host.turn.trace_ids import traceparent_in
from durable_agent_host.turn.turn_events import ProblemWire
from durable_agent_host.turn_log.protocol import TurnLog

logger = logging.getLogger(__name__)
CALLER_LEFT: Final = 499
"""The caller has left before its request was read. Source: nginx."""
NOT_FOR_CACHES: Final = "private, no-store"
"""Shared caches do not know the caller, and store a 404 as well. Source: RFC 9111, sections 3 and 4.2.2."""
IMPORTS_AT_ONCE: Final = 4
_WITHOUT_SESSIONS: Final = frozenset[Action]({"health.read", "agents.list"})
"""What shows nothing that is stored, and is answered without the key of it, too."""
_MAY_HAVE_STARTED: Final = "check the session, or send it again with the same Idempotency-Key"
_STORE_UNAVAILABLE: Final = (
    "the durable store does not respond, or refuses: the host's log says more. The request may have begun: "
    f"{_MAY_HAVE_STARTED}"
)


@dataclass(frozen=True)
class HandlerContext:
    """The app, as handlers see it.

    Attributes:
        descriptions: of the agents reachable by HTTP, by name; a live view.
        agents: all hosted agents, by name; a live view.
        settings: limits and timeouts.
        open_log: returns the turn log of the process; the first call opens its store.
        gate: identifies callers.
        options: of the agents, by name; a live view.
        allows_client_tools: whether requests may bring tools that the client runs.
        list_hosted_agents: lists all agents with how they are reached, as upstream's health route does.
        workflows: hosted by ``workflows=``, by name.
        feature_views: shows the entries of each feature, also of those that an agent no longer uses.
    """

    descriptions: Mapping[str, str | None]
    agents: Mapping[str, AgentRunner]
    settings: Settings
    open_log: Callable[[], TurnLog]
    gate: Authorizer
    options: Mapping[str, AgentOptions]
    allows_client_tools: bool
    list_hosted_agents: Callable[[], list[HostedAgentWire]]
    workflows: Collection[str]
    feature_views: Mapping[str, ShowEntry]

    @cached_property
    def imports(self) -> asyncio.Semaphore:
        """The imports that run."""
        return asyncio.Semaphore(IMPORTS_AT_ONCE)

    def agent(self, name: str) -> str:
        """Find an agent by the name in a URL, ignoring case.

        Raises:
            NotFoundError: no such agent is reachable by HTTP.
        """
        agent = next((agent for agent in self.descriptions if agent.casefold() == name.casefold()), None)
        if agent is not None:
            return agent
        agent_names = ", ".join(sorted(self.descriptions)) or "none"
        raise NotFoundError(f"there is no agent {name!r} here; hosted are: {agent_names}")


class RouteRequest:
    """One request to a route.

    Args:
        request: as the worker passes it.

    Attributes:
        owner: of the session that the request may begin, or its future owner; None where nobody is identified.
        body: set by `read_body`.
    """

    def __init__(self, request: Request) -> None:
        self._request = request
        self.owner: Owner | None = None
        self.body = b""

    @property
    def span(self) -> tuple[int, int] | None:
        """Trace id and flags of the span that FastAPI (0.165) makes for a request of an app with a tracer, if any."""
        span: Any = getattr(self._request.scope.get("fastapi.telemetry"), "span", None)
        if span is None or not (context := span.get_span_context()).is_valid:
            return None
        return context.trace_id, int(context.trace_flags)

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The headers, with names in lower case."""
        return headers_of(self._request)

    @cached_property
    def query(self) -> Mapping[str, str]:
        """The query's parameters."""
        return query_of(self._request)

    @property
    def method(self) -> str:
        """The HTTP method, in upper case."""
        return self._request.method.upper()

    @property
    def incoming(self) -> IncomingRequest:
        """The request as the gate sees it."""
        return IncomingRequest(self.headers, self.query, self.method, urlsplit(self._url).path)

    async def read_body(self, limit: BodyLimit, arriving: ArrivingBodies) -> None:
        """Read the body, once; raises as `durable_agent_host.http.parse.read_body` does."""
        with arriving.count_body() as count:
            self.body = await read_body(self.headers, self.stream(), limit, count)

    def stream(self) -> AsyncIterator[bytes]:
        """Read the body fragment by fragment, for a route that streams it; only once."""
        return end_stalled(self._request.stream())

    def path_part(self, name: str) -> str:
        """Return a part of the path by its name in the route's template, decoded; empty when absent."""
        return str(self._request.path_params.get(name, ""))

    @property
    def base_url(self) -> str:
        """The URL of the app's routes, prefix included, without a trailing slash; not below other paths."""
        return self._url.partition("/agents")[0].removesuffix("/pending")

    def base_url_before(self, path: str) -> str:
        """The URL of the app's routes, for a route whose path begins so."""
        return self._url.partition(f"/{path}/")[0]

    @property
    def line(self) -> str:
        """Method and URL for the log, without the query, which may contain a key."""
        return f"{self._request.method} {self._url}"

    @property
    def _url(self) -> str:
        return url_of(self._request).partition("?")[0]

    @cached_property
    def run(self) -> RunParameters:
        """What a call of ``run`` asks for; raises as `parse_run` and `check_session_parameters` do."""
        check_session_parameters(self._request.query_params.multi_items())
        return parse_run(self.body, self.headers, self.query)


def headers_of(request: Request) -> dict[str, str]:
    """Join repeated headers by commas."""
    return _join_repeated(request.headers.items())


def query_of(request: Request) -> dict[str, str]:
    """Join repeated query parameters by commas; leave out empty ones."""
    return _join_repeated(item for item in request.query_params.multi_items() if item[1])


def _join_repeated(items: Iterable[tuple[str, str]]) -> dict[str, str]:
    values: dict[str, str] = {}
    for name, value in items:
        values[name] = f"{values[name]},{value}" if name in values else value
    return values


def url_of(request: Request) -> str:
    """Return the URL as sent, escapes included; without an origin where there is no connection."""
    path = request.scope.get("raw_path", b"").decode("latin-1").partition("?")[0] or request.url.path
    query = request.scope.get("query_string", b"").decode("latin-1")
    origin = f"{request.url.scheme}://{request.url.netloc}" if request.url.netloc else ""
    return f"{origin}{path}{'?' if query else ''}{query}"


Handler = Callable[[HandlerContext, RouteRequest, TurnClient], Awaitable[Response]]
"""Answers a request; the client has the request's context."""


def named_session(host: HandlerContext, call: RouteRequest) -> tuple[str, str]:
    """Read agent and session from the path.

    Returns:
        The agent's registered name, and the session's id.

    Raises:
        NotFoundError: no such agent is reachable by HTTP.
        RequestError: the session id is not usable.
    """
    agent = host.agent(call.path_part("agent"))
    return agent, check_session_id(call.path_part("session"))


async def read_log(host: HandlerContext, request: TurnRequest) -> AsyncGenerator[Sequence[LogRecord]]:
    """Read the log of a turn from its beginning, page by page."""
    offset = 0
    has_more = True
    while has_more:
        page = await host.open_log().read(request.log_id, offset)
        yield page.records
        offset = page.next_offset
        has_more = page.has_more


class Parameter(NamedTuple):
    """A parameter of a request's query, or a header.

    Attributes:
        name: of the parameter.
        type: of its value.
        meaning: in a sentence.
        place: where it is.
    """

    name: str
    type: Any
    meaning: str
    place: Literal["query", "header"] = "query"


RoutePart = Literal["agents", "health", "workflows", "openai", "agui", "aisdk", "mcp"]
"""A part of an app, which has it or not."""


class Route(NamedTuple):
    """One route.

    Attributes:
        name: of the function that serves it.
        method: HTTP method.
        template: path after the prefix.
        action: what the gate checks.
        handler: answers requests that pass the gate; its docstring begins with method and path, and what it does.
        replies: the statuses of its answers, each with what may be the body: types of JSON, and media types.
        problems: statuses of its problems, besides those that every route has.
        parameters: of the query, and headers.
        bodies: what may be the request's body, likewise.
        part: of the app, which serves it.
        is_open: needs no key of the app and no known caller: health, and callbacks, whose path has a token.
        streams_body: the handler reads the body fragment by fragment.
        body_kind: ``form`` when a form with files may exceed the usual limit, ``file`` when every body may.
        may_begin: the request may begin the session on the path, and reads its body after checking that.
        show_problem: makes the answer for a problem, where a protocol has another form of errors; it gets the problem,
            and the answer that it would be.
    """

    name: str
    method: str
    template: str
    action: Action
    handler: Handler
    replies: Mapping[int, Sequence[Any]]
    problems: Sequence[int] = ()
    parameters: Sequence[Parameter] = ()
    bodies: Sequence[Any] = ()
    part: RoutePart = "agents"
    streams_body: bool = False
    body_kind: Literal["json", "form", "file"] = "json"
    may_begin: bool = False
    is_open: bool = False
    show_problem: Callable[[Mapping[str, Any], Response], Response] | None = None

    @property
    def summary(self) -> str:
        """What it does, from the docstring of its handler."""
        return (inspect.getdoc(self.handler) or "").partition("\n\n")[0].partition("``: ")[2]

    def body_limit(self, settings: Settings) -> BodyLimit:
        """Return the largest body that is read; larger ones are answered with 413."""
        if self.method in {"GET", "DELETE"} or self.streams_body:
            return BodyLimit(0)
        if self.body_kind == "file":
            return BodyLimit(settings.max_upload_bytes, setting=MAX_UPLOAD)
        forms = max(settings.max_upload_bytes, settings.max_request_bytes) if self.body_kind == "form" else 0
        return BodyLimit(settings.max_request_bytes, forms)

    async def serve(self, host: HandlerContext, request: Request, client_for: ClientFor) -> Response:
        """Answer a request: through the gate, by its handler. Raises nothing.

        Returns:
            The handler's answer, or a problem; unexpected errors are logged and not shown.
        """
        call = RouteRequest(request)

        async def answer() -> Response:
            context = await self._identify(host, call)
            return await self._answer(host, call, client_for(context))

        response = await handle_errors(call.line, answer)
        if self.show_problem is not None and response.media_type == PROBLEM:
            response = self.show_problem(json.loads(bytes(response.body)), response)
        response.headers.setdefault("cache-control", NOT_FOR_CACHES)
        return response

    async def serve_app(self, host: HandlerContext, request: Request, client: TurnClient) -> Response:
        """Answer a request of the app's own code, whose client has its context. Raises nothing."""
        call = RouteRequest(request)
        return await handle_errors(call.line, lambda: self._answer(host, call, client))

    async def _identify(self, host: HandlerContext, call: RouteRequest) -> RequestContext:
        if self.is_open:
            return host.gate.open_context(self.action)
        return _in_trace(await host.gate.identify(call.incoming, self.action), call.span)

    async def _answer(self, host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
        """Answer a request of a caller who is known."""
        started_at = time.monotonic()
        try:
            await self._find_session(host, call, client)
            await call.read_body(self.body_limit(host.settings), host.gate.arriving)
            return await self.handler(host, call, client)
        except NotFoundError:
            if client.context.access.is_restricted:
                await wait_for_even_time(started_at)
            raise

    async def _find_session(self, host: HandlerContext, call: RouteRequest, client: TurnClient) -> None:
        """Check that what is stored can be read, and find whose session a request may begin."""
        if self.action not in _WITHOUT_SESSIONS:  # not all that is stored is read in a way that would tell
            await client.check_keys()
        if self.may_begin:
            call.owner = (await client.claims.resolve_session(*named_session(host, call))).owner


async def handle_errors(line: str, answer: Callable[[], Awaitable[Response]]) -> Response:
    """Answer a request, or say as a problem what is wrong. Raises nothing."""
    try:
        return await answer()
    except (RequestTooLargeError, BodiesTooLargeError, BodyStalledError) as error:
        # Otherwise the server reads the rest of the body in order to reuse the connection.
        return problem_of_error(error, headers={"connection": "close"})
    except ClientDisconnect:
        return Response(status_code=CALLER_LEFT)
    except AgentClientError as error:
        if not error.problem:
            logger.warning("%s: %s", line, error)
            return problem_of_error(error)
        headers = {"Retry-After": error.retry_after} if error.retry_after else None
        return problem_response(cast("ProblemWire", error.problem), headers)
    except DurableAgentHostError as error:
        return problem_of_error(error)
    except Exception as error:
        if is_store_error(error):
            logger.warning("%s: the durable store does not answer, or refuses: %s", line, error)
            return problem(HTTPStatus.SERVICE_UNAVAILABLE, _STORE_UNAVAILABLE, headers={"Retry-After": "5"})
        logger.exception("%s failed", line)
        return problem_of_error(error)


def _in_trace(context: RequestContext, span: tuple[int, int] | None) -> RequestContext:
    """Put the caller's request into the trace of its HTTP span, if it has one."""
    if span is None:
        return context
    return replace(context, traceparent=traceparent_in(context.traceparent, *span))
