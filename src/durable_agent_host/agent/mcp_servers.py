"""MCP servers whose tools an agent has: a lost connection is made again, and a call without an answer is in doubt.

Theory of operation. The framework connects to a server once, for all runs, and recognizes few ways in which the
connection can end: after most of them each call fails until the process ends. A hosted agent gets views of its servers.
Before a run and before a call, a view connects again if the connection has ended, and so loads the server's tools as
they are now. A call that ends with its connection, or with something else than an answer of the server, may have taken
effect, so it is not made again here: by `ConnectionLostError` it is a call in doubt. The SDK says of any HTTP error
only that there was one, so hooks of its client record whether a request was sent, and the status: 4xx is refused before
a tool runs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, cast

from agent_framework import FunctionTool
from agent_framework.exceptions import ToolException

from durable_agent_host.agent.declarations import CAN_LOSE_SERVER, IS_HARMLESS
from durable_agent_host.agent.dynamic_subclass import overridden_class
from durable_agent_host.agent.tool_invocation import ConnectionLostError, UnreachableError
from durable_agent_host.errors import TurnError

_LOGGER = logging.getLogger(__name__)
_UNKNOWN_SESSION: Final = "Session terminated"
"""What the MCP SDK says of a request that a server refused because it does not know the session."""

_CUT: Final = ("Connection closed", "SSE stream ")
"""How it begins when a request was sent and its connection or stream ended."""

_NO_ANSWER: Final = (
    *("Server returned an error response", "Unexpected content type", "Failed to parse ", "Request 'tools/call' timed"),
    "server answered a request with 202",
)
"""How it begins when a request was sent and what came back, if anything, is no answer of the protocol."""

_EXCHANGE: Final[ContextVar["_Exchange | None"]] = ContextVar("durable_agent_host_exchange", default=None)
"""The HTTP requests of the current call of an MCP tool."""

_HARMLESS: Final = ("read_only_hint", "idempotent_hint", "readOnlyHint", "idempotentHint")
"""Annotations of tools that may be run again, by their names in the MCP SDK 2 and 1."""


def with_reconnection(servers: Sequence[Any]) -> list[Any]:
    """Return views of MCP servers that connect again when a connection was lost."""
    views: list[Any] = []
    for server in servers:
        view: Any = object.__new__(overridden_class(cast("type[Any]", type(server)), _Reconnecting))
        view.__dict__ = server.__dict__
        view.__dict__.setdefault("_reconnecting", asyncio.Lock())
        views.append(view)
    return views


class _Reconnecting:
    """The override; stands before the server's own class in the method resolution order."""

    name: str
    _connection: Any
    _reconnecting: asyncio.Lock

    async def _prepare_for_run(self, kwargs: Any) -> None:
        server: Any = super()
        prepare = server._prepare_for_run  # noqa: SLF001 - the override calls what it overrides
        await prepare(kwargs)
        connection = self._connection
        if await self.live_connection() is not connection:
            await prepare(kwargs)

    def get_mcp_client(self) -> Any:
        server: Any = super()
        client = server.get_mcp_client()
        hooks: Any = getattr(self.__dict__.get("_httpx_client"), "event_hooks", None)
        if hooks is not None and _record_status not in hooks["response"]:
            hooks["request"].append(_trace_request)
            hooks["response"].append(_record_status)
        return client

    async def call_tool(self, tool_name: str, **kwargs: Any) -> Any:
        server: Any = super()
        return await self._call(lambda: server.call_tool(tool_name, **kwargs))

    async def get_prompt(self, prompt_name: str, **kwargs: Any) -> Any:
        server: Any = super()
        return await self._call(lambda: server.get_prompt(prompt_name, **kwargs))

    def _is_connection_loss(self, exception: Exception) -> bool:
        del exception
        return False  # the framework would make the call again, whether or not it has taken effect

    async def live_connection(self) -> Any:
        """Return the connection, made again if it has ended."""
        connection = self._connection
        if connection is None or _has_ended(connection):
            await self._connect_again(connection)
        return self._connection

    @property
    def _function_load_callback(self) -> Callable[[FunctionTool, Any], None]:
        return self._mark

    @_function_load_callback.setter
    def _function_load_callback(self, callback: Any) -> None:
        self.__dict__["_function_load_callback"] = callback

    def _mark(self, tool: FunctionTool, annotations: Any) -> None:
        """Mark a tool of the server, and whether it may be run again; the framework keeps no annotations."""
        properties = cast("dict[str, Any]", tool.additional_properties)
        properties[CAN_LOSE_SERVER] = True
        if any(getattr(annotations, hint, None) is True for hint in _HARMLESS):
            properties[IS_HARMLESS] = True
        else:
            properties.pop(IS_HARMLESS, None)
        if (callback := self.__dict__.get("_function_load_callback")) is not None:
            callback(tool, annotations)

    async def _call(self, call: Callable[[], Awaitable[Any]]) -> Any:
        connection = await self.live_connection()
        exchange = _Exchange()
        token = _EXCHANGE.set(exchange)
        try:
            try:
                return await call()
            except ToolException as error:
                if _reason(error) != _UNKNOWN_SESSION:
                    raise
            await self._connect_again(connection)
            return await call()
        except ToolException as error:
            reason = _reason(error)
            if reason.startswith(_CUT) and exchange.was_sent is False:
                raise self._unreachable() from error
            if reason.startswith(_CUT) or (reason.startswith(_NO_ANSWER) and exchange.status not in _REFUSAL_STATUSES):
                raise ConnectionLostError(f"the MCP server {self.name!r} has not answered: {reason}") from error
            raise
        finally:
            _EXCHANGE.reset(token)

    async def _connect_again(self, lost: Any) -> None:
        """Replace a connection, unless another call has done so."""
        server: Any = self
        async with self._reconnecting:
            if self._connection is not lost:
                return
            try:
                await asyncio.to_thread(import_module, "mcp")  # takes seconds, in which no turn could go on
                await server.connect(reset=True)
            except ModuleNotFoundError as error:
                raise TurnError("tools of MCP servers need the package 'mcp': add it to requirements.txt") from error
            except (Exception, asyncio.CancelledError) as error:  # the SDK cancels what waits for a lost connection
                if isinstance(error, asyncio.CancelledError) and cast("Any", asyncio.current_task()).cancelling():
                    raise
                _LOGGER.warning("MCP server %r cannot be reached: %s", self.name, error)
                raise self._unreachable() from error

    def _unreachable(self) -> UnreachableError:
        text = f"the MCP server {self.name!r} cannot be reached: see that it runs, and try again"
        return UnreachableError(text, retryable=True)


_REFUSAL_STATUSES: Final = frozenset(range(400, 500)) - {408}
"""The statuses of requests that were not processed; another error may come from a gateway, after the tool has run."""


@dataclass
class _Exchange:
    """The HTTP requests of one call.

    Attributes:
        was_sent: whether any of one has left the process; None when there was none.
        status: of the last response, or None.
    """

    was_sent: bool | None = None
    status: int | None = None

    async def trace(self, event: str, _info: Any) -> None:
        """Record an event of the connection; an extension of httpx."""
        self.was_sent = self.was_sent or event.endswith("send_request_headers.started")


async def _trace_request(request: Any) -> None:
    if (exchange := _EXCHANGE.get()) is not None:
        exchange.was_sent = exchange.was_sent or False
        request.extensions = {**request.extensions, "trace": exchange.trace}


async def _record_status(response: Any) -> None:
    if (exchange := _EXCHANGE.get()) is not None:
        exchange.status = response.status_code


def _has_ended(connection: Any) -> bool:
    """Return whether a connection that the framework has made can no longer be used."""
    if connection is None or not connection.is_framework_owned:
        return False
    return bool(connection.client.session._dispatcher._closed)  # noqa: SLF001 - mcp 2.3 has no public way


def _reason(error: ToolException) -> str:
    """Return what the MCP SDK says of a failed request in an error of the framework."""
    return str(getattr(getattr(error.__cause__, "error", None), "message", ""))
