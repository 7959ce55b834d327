"""A client of a host's agents: for programs anywhere over HTTP, for functions of the app without a connection.

Theory of operation: each method calls one route. What carries the requests is a transport of httpx: its own, over the
network, or `durable_agent_host.http.route_transport`. Each request can be sent twice, because a run always has an
idempotency key: when the connection is lost, the client sends the same request again, and a stream continues after its
last event.
"""

import asyncio
import json
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, NamedTuple, Self, cast
from urllib.parse import quote, unquote, urlencode, urlsplit
from uuid import uuid4

import httpx2

from durable_agent_host.errors import AgentClientError, HostUnreachableError
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.model.turn import Policy
from durable_agent_host.turn.turn_events import rule_of_stored

LOGGER: Final = logging.getLogger(__name__)
"""Says when the connection is lost, and when the host is back."""

PATIENCE_SECONDS: Final = 300.0
"""How long a host that has answered before may be unreachable; its turns continue without the client."""

_TIMEOUT: Final = httpx2.Timeout(30.0, read=300.0)
"""Streams have a heartbeat; a ``run`` is answered or asks to be sent again before any gateway gives up."""

_PAGE: Final = 500
_FIRST_PAUSE_SECONDS: Final = 0.2
_MAX_PAUSE_SECONDS: Final = 2.0
_OF_CONNECTIONS: Final = (
    httpx2.ReadError,
    httpx2.WriteError,
    httpx2.ReadTimeout,
    httpx2.WriteTimeout,
    httpx2.RemoteProtocolError,
)
"""Errors of a connection that there was."""
_OF_GATEWAYS: Final = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)

Answer = Mapping[str, Any]
"""``{call_id, approved, reason?, arguments?}``, ``{call_id, result}`` or ``{call_id, error}``."""


@dataclass(frozen=True)
class TurnResult:
    """A turn, as a route shows it.

    Attributes:
        agent, session_id, turn_id: of the turn.
        status: see ``docs/reference/http.md``; of `AgentClient.run`, such as ``success``, ``refused`` or ``waiting``;
            of `AgentClient.turn`, such as ``running``, ``waiting``, ``completed`` or ``failed``.
        response: the answer's text, None while there is none.
        finish_reason: how the answer ended, None while that is unknown.
        refusal: ``message`` and ``category`` of a refused answer; None for others.
        value: the parsed answer, with a ``response_format``.
        usage: token counts, or None.
        pending_calls: the calls that wait for an answer; with the status ``queued``, calls of the turn
            ``data["running_turn_id"]``. Arguments that are too long for the body are empty here: the event
            ``call.pending`` has them.
        data: all fields of the body.
    """

    agent: str
    session_id: str
    turn_id: str
    status: str
    response: str | None
    finish_reason: str | None
    refusal: Mapping[str, str] | None
    value: Any
    usage: Mapping[str, Any] | None
    pending_calls: tuple[PendingCall, ...]
    data: Mapping[str, Any]


class PendingTurnCall(NamedTuple):
    """A call that waits for an answer, and its turn, or the run of a workflow that asks.

    Attributes:
        agent, session_id, turn_id: of the turn; empty for a run of a workflow.
        call: the call.
        workflow, run_id: of the run, for `AgentClient.answer_run`; empty for a turn.
    """

    agent: str
    session_id: str
    turn_id: str
    call: PendingCall
    workflow: str = ""
    run_id: str = ""


_PENDING_IDS: Final = ("agent", "session_id", "turn_id", "workflow", "run_id")


@dataclass(frozen=True)
class TurnEvent:
    """One event of a turn.

    Attributes:
        id: its offset in the turn's log.
        name: such as ``message.delta``; see "Events" in ``docs/reference/http.md``.
        data: its JSON object.
        session_id, turn_id: of the turn.
    """

    id: int
    name: str
    data: Mapping[str, Any]
    session_id: str
    turn_id: str

    @property
    def is_last(self) -> bool:
        """Whether the turn has ended with it."""
        return rule_of_stored(self.name).is_terminal


class AgentClient:
    """A client of a host's agents; close it with ``async with`` or `aclose`.

    A function of the app gets its client from `DurableAgentApp.client`, and need not close it. All methods raise
    `AgentClientError` when the host refuses, and `HostUnreachableError` when it cannot be reached.

    Args:
        base_url: of the host; its routes are below ``/api``, or below the URL's path if it has one.
        key: function key, for a host that requires one.
        headers: further ones, such as those by which the app identifies its callers.
        transport: carries the requests; by default HTTP.
        patience_seconds: how long a host that has answered before may be unreachable; its turns continue meanwhile.
    """

    def __init__(
        self,
        base_url: str,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._base = base_url.rstrip("/") + ("" if urlsplit(base_url).path.strip("/") else "/api")
        key_header = {"x-functions-key": key} if key else {}
        self._http = httpx2.AsyncClient(headers=key_header | dict(headers or {}), timeout=_TIMEOUT, transport=transport)
        self._has_connected = False
        self._patience_seconds = patience_seconds

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def run(
        self,
        agent: str,
        message: str | Sequence[Mapping[str, Any]],
        *,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        policy: Policy = "queue",
        wait: bool = True,
        **fields: Any,
    ) -> TurnResult:
        """Run a turn. Guarantee: once for each idempotency key, however often the connection is lost.

        Args:
            agent: the agent's name.
            message: a text, or a list of parts.
            session_id: of the session to continue or to begin; by default a new one.
            idempotency_key: the same key and arguments are the same turn; by default a new one.
            policy: what happens while another turn of the session runs.
            wait: whether to wait until the turn has ended or waits for an answer, or the one before it does (status
                ``queued``), however long that takes (`asyncio.timeout` limits it); otherwise the result has the status
                ``accepted``.
            fields: further fields of the route's body, such as ``response_format`` or ``options``.

        Raises:
            AgentClientError: the turn was refused, has failed or was cancelled.
        """
        body = _run_body(message, session_id, policy, fields)
        headers = {"idempotency-key": idempotency_key or uuid4().hex, "x-ms-wait-for-response": str(wait).lower()}
        while True:
            try:
                return await self._turn_request(agent, "POST", f"{_path(agent)}/run", body, headers)
            except AgentClientError as error:
                if error.status != HTTPStatus.GATEWAY_TIMEOUT or isinstance(error, HostUnreachableError):
                    error.idempotency_key = headers["idempotency-key"]
                    raise
            # the turn is still running: the same request waits for it again

    def stream(
        self,
        agent: str,
        message: str | Sequence[Mapping[str, Any]],
        *,
        session_id: str | None = None,
        idempotency_key: str | None = None,
        policy: Policy = "queue",
        **fields: Any,
    ) -> AsyncGenerator[TurnEvent]:
        """Run a turn as its events are read; the arguments are those of `run`.

        Returns:
            Each event once, over lost connections, too; the last one says how the turn has ended. Raises
            `AgentClientError` when the turn is refused.
        """
        body = _run_body(message, session_id, policy, fields)
        headers = {"idempotency-key": idempotency_key or uuid4().hex, "accept": "text/event-stream"}
        return self._events("POST", f"{_path(agent)}/run", body, headers, None)

    def follow(
        self, agent: str, session_id: str, turn_id: str, *, after: int | None = None
    ) -> AsyncGenerator[TurnEvent]:
        """Read the events of a turn from its first one, or after the event with an id; as `stream` does."""
        return self._events("GET", f"{_path(agent, session_id, turn_id)}/events", None, {}, after)

    async def steer(
        self,
        agent: str,
        session_id: str,
        message: str | Sequence[Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> TurnResult:
        """Give a message to the session's running turn; without one, it begins a turn. Does not wait for the end.

        Returns:
            The turn that has the message, with the status ``accepted``. When the message comes too late, it begins the
            turn that ``data["queued_turn_id"]`` names.
        """
        return await self.run(
            agent, message, session_id=session_id, idempotency_key=idempotency_key, policy="steer", wait=False
        )

    async def turn(self, agent: str, session_id: str, turn_id: str) -> TurnResult:
        """Read a turn's current state."""
        return await self._turn_request(agent, "GET", _path(agent, session_id, turn_id))

    async def pending(self) -> list[PendingTurnCall]:
        """List what the caller may answer, over all agents, sessions and workflows; for one turn, see `turn`."""
        found: list[PendingTurnCall] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await self._request("GET", f"/pending?{urlencode({'cursor': cursor})}")
            for fields in page["pending_calls"]:
                agent, session_id, turn_id, *run = (fields.get(name, "") for name in _PENDING_IDS)
                found.append(PendingTurnCall(agent, session_id, turn_id, _pending_call(fields), *run))
            cursor = page["cursor"]
        return found

    async def answer(self, agent: str, session_id: str, turn_id: str, answer: Answer | Sequence[Answer]) -> TurnResult:
        """Answer a call that waits, or several. Guarantee: idempotent; a different answer is a 409."""
        return await self._turn_request(agent, "POST", f"{_path(agent, session_id, turn_id)}/answers", answer)

    async def answer_run(self, workflow: str, run_id: str, answer: Answer | Sequence[Answer]) -> None:
        """Answer a question for which a run of a workflow waits, or several: ``{call_id, result}``."""
        await self._request("POST", f"/workflow/{_quote(workflow)}/respond/{_quote(run_id)}", answer)

    async def cancel(self, agent: str, session_id: str, turn_id: str) -> TurnResult:
        """Cancel a turn that runs or waits. Guarantee: idempotent; a turn that has ended otherwise is a 409."""
        return await self._turn_request(agent, "POST", f"{_path(agent, session_id, turn_id)}/cancel")

    async def resume(self, agent: str, session_id: str, turn_id: str) -> TurnResult:
        """Resume a failed turn from its journal: no finished call is made again.

        Returns:
            The turn, which runs: follow or read it for its end.

        Raises:
            AgentClientError: 409, it has not failed, or a later turn has begun; 410, its journal is no longer kept.
        """
        return await self._turn_request(agent, "POST", f"{_path(agent, session_id, turn_id)}/resume")

    async def agents(self) -> list[str]:
        """List the names of the host's agents."""
        return [agent["name"] for agent in (await self._request("GET", "/agents"))["agents"]]

    async def sessions(
        self, agent: str, *, limit: int | None = None, **search: str
    ) -> AsyncGenerator[Mapping[str, Any]]:
        """List an agent's sessions with their details, newest first, page by page.

        Args:
            agent: the agent's name.
            limit: how many; by default all.
            search: further parameters of the route, such as ``status`` or ``search``; empty ones are left out.
        """
        query = {"details": "true"} | {name: value for name, value in search.items() if value}
        cursor: str | None = ""
        while cursor is not None and limit != 0:
            page_query = query | {"limit": str(min(limit or _PAGE, _PAGE))} | ({"cursor": cursor} if cursor else {})
            page = await self._request("GET", f"{_path(agent)}/sessions?{urlencode(page_query)}")
            for session in page["sessions"]:
                yield session
            limit = None if limit is None else max(limit - len(page["sessions"]), 0)
            cursor = page["cursor"]

    async def session(self, agent: str, session_id: str, **query: str | int) -> Mapping[str, Any]:
        """Read a page of a conversation: the newest messages, or with ``cursor`` those before."""
        return await self._request("GET", f"{_path(agent, session_id)}?{urlencode(query)}")

    async def files(self, agent: str, session_id: str) -> list[Mapping[str, Any]]:
        """List the files of a session."""
        return (await self._request("GET", f"{_path(agent, session_id)}/files"))["files"]

    def file(self, agent: str, session_id: str, file_id: str) -> AsyncGenerator[bytes]:
        """Read the bytes of a file of a session, part by part."""
        return self._parts(f"{_path(agent, session_id)}/files/{_quote(file_id)}")

    def export(self, agent: str, session_id: str) -> AsyncGenerator[bytes]:
        """Export a session as JSON lines, part by part."""
        return self._parts(f"{_path(agent, session_id)}/export")

    async def import_session(self, agent: str, session_id: str, lines: AsyncIterable[bytes]) -> Mapping[str, Any]:
        """Store exported lines as a new session. Sent once: whether it arrived is not known when the host is lost."""
        response = await self._send("POST", f"{_path(agent, session_id)}/import", lines, {})
        return response.json()

    async def fork(
        self,
        agent: str,
        session_id: str,
        new_id: str | None = None,
        *,
        at_turn: str | None = None,
        before: bool = False,
    ) -> Mapping[str, Any]:
        """Store a copy of a conversation as a new session.

        Args:
            agent: the agent's name.
            session_id: of the original.
            new_id: of the copy; by default a new one.
            at_turn: the last turn to copy; by default all.
            before: whether the copy ends before that turn.

        Returns:
            ``session_id``, ``message_count``.
        """
        fields = {"session_id": new_id or uuid4().hex, "at_turn": at_turn, "before": before or None}
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._request("POST", f"{_path(agent, session_id)}/fork", body)

    async def delete(self, agent: str, session_id: str, *, keeps_history: bool = False) -> Mapping[str, Any]:
        """Delete a session and its turns.

        Args:
            agent: the agent's name.
            session_id: of the session.
            keeps_history: whether what a history provider of the app has of it stays.

        Returns:
            ``status``: ``deleted`` or ``deleting``.
        """
        query = "?history=kept" if keeps_history else ""
        return await self._request("DELETE", _path(agent, session_id) + query)

    async def verify(self, agent: str, session_id: str) -> Mapping[str, Any]:
        """Find what cannot be read in a session, and calls without results: ``problems``."""
        return await self._request("GET", f"{_path(agent, session_id)}/verify")

    async def repair(self, agent: str, session_id: str) -> Mapping[str, Any]:
        """Repair a session: ``changes``, and ``original_session_id`` of the session that has the original."""
        return await self._request("POST", f"{_path(agent, session_id)}/repair")

    async def _parts(self, path: str) -> AsyncGenerator[bytes]:
        """Read the body of an answer part by part; it is asked for once."""
        response = await self._send("GET", path, None, {}, is_stream=True)
        try:
            async for part in response.aiter_bytes():
                yield part
        except httpx2.TransportError as error:
            message = f"the host broke off ({type(error).__name__}: {error}): its log says why"
            raise HostUnreachableError(message) from error
        finally:
            await response.aclose()

    async def _turn_request(
        self, agent: str, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> TurnResult:
        """Send a request; read the turn in the answer."""
        data = await self._request(method, path, body, headers)
        try:
            return _turn_result(agent, data)
        except KeyError as error:
            raise _other_answer(f"a body without {error}") from None

    async def _request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Mapping[str, Any]:
        """Send a request until it is answered."""
        outage = _Outage(self._patience_seconds)
        while True:
            try:
                response = await self._send(method, path, body, headers or {})
            except HostUnreachableError as error:
                await outage.wait(error, can_wait=self._has_connected)
            else:
                outage.end()
                return _json_of(response)

    async def _events(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], last_id: int | None
    ) -> AsyncGenerator[TurnEvent]:
        """Yield the events after one, over lost connections, until the turn's last."""
        outage = _Outage(self._patience_seconds)
        while True:
            resume = {} if last_id is None else {"last-event-id": str(last_id)}
            try:
                response = await self._send(method, path, body, {**headers, **resume}, is_stream=True)
                if response.status_code == HTTPStatus.NO_CONTENT:  # the caller has all events
                    await response.aclose()
                    return
                async with aclosing(_read_events(response)) as events:
                    async for event in events:
                        last_id = event.id
                        outage.end()
                        yield event
                        if event.is_last:
                            return
            except AgentClientError as error:
                error.idempotency_key = headers.get("idempotency-key")
                if not isinstance(error, HostUnreachableError):
                    raise
                await outage.wait(error, can_wait=self._has_connected)

    async def _send(
        self, method: str, path: str, body: Any, headers: Mapping[str, str], *, is_stream: bool = False
    ) -> httpx2.Response:
        """Send a request once; the answer to a stream is to be read and closed.

        Raises:
            HostUnreachableError: no host answers, only a gateway does, the connection is lost, or the host asks to be
                tried later, as one that stops does.
            AgentClientError: the host refuses.
        """
        is_json = body is not None and not isinstance(body, AsyncIterable)
        if is_json:
            body = json.dumps(body, allow_nan=False)  # half of a surrogate pair has no UTF-8
        types = {"content-type": "application/json"} if is_json else {}
        all_headers = httpx2.Headers({**headers, **types}, encoding="utf-8")
        request = self._http.build_request(method, self._base + path, headers=all_headers, content=cast("Any", body))
        try:
            response = await self._http.send(request, stream=is_stream)
            if response.is_error:
                await response.aread()
        except httpx2.TransportError as error:
            self._has_connected = self._has_connected or isinstance(error, _OF_CONNECTIONS)
            raise HostUnreachableError(
                f"no host answers at {self._base} ({type(error).__name__}: {error}): check its URL, and that it runs"
            ) from error
        error = _error_of(response) if response.is_error else None
        is_of_host = not isinstance(error, HostUnreachableError) or bool(error.problem)
        self._has_connected = self._has_connected or is_of_host
        if error is not None:
            raise error
        return response


async def _read_events(response: httpx2.Response) -> AsyncGenerator[TurnEvent]:
    """Read the events of a stream, and close it; a stream that ends is a lost connection."""
    if not (content_type := response.headers.get("content-type", "")).startswith("text/event-stream"):
        await response.aclose()
        raise _other_answer(f"{response.status_code} {content_type}")
    items = aiter(httpx2.EventSource(response, max_event_size=None))
    try:
        async for item in items:
            if not item.data:  # such as the last words of a host that stops
                continue
            session_id, turn_id = (unquote(response.headers[f"x-ms-{name}-id"]) for name in ("session", "turn"))
            yield TurnEvent(int(item.id), item.event, cast("dict[str, Any]", item.json()), session_id, turn_id)
        raise HostUnreachableError("the host closed the stream before the turn's end")
    except httpx2.TransportError as error:
        raise HostUnreachableError(f"the connection to the host is lost ({type(error).__name__}: {error})") from error
    finally:
        await response.aclose()
        with suppress(Exception):
            await anext(items)  # its readers end now, in their order, and not when the event loop is closed


class _Outage:
    """The time for which a host is unreachable."""

    def __init__(self, patience_seconds: float) -> None:
        self._patience_seconds = patience_seconds
        self._since: float | None = None
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    async def wait(self, error: AgentClientError, *, can_wait: bool) -> None:
        """Pause before the next attempt; raise the error when it has lasted too long."""
        now = time.monotonic()
        since = now if self._since is None else self._since
        if not can_wait or now - since >= self._patience_seconds:
            raise error
        if self._since is None:
            self._since = now
            LOGGER.warning("the connection to the host is lost; waiting for it")
        await asyncio.sleep(self._pause_seconds)
        self._pause_seconds = min(self._pause_seconds * 1.5, _MAX_PAUSE_SECONDS)

    def end(self) -> None:
        """Note that the host answers."""
        if self._since is not None:
            LOGGER.warning("the host is back")
        self._since = None
        self._pause_seconds = _FIRST_PAUSE_SECONDS


def _path(agent: str, session_id: str = "", turn_id: str = "") -> str:
    path = f"/agents/{_quote(agent)}"
    path += f"/sessions/{_quote(session_id)}" if session_id else ""
    return path + (f"/turns/{_quote(turn_id)}" if turn_id else "")


def _quote(text: str) -> str:
    return quote(text, safe="", errors="surrogatepass")


def _run_body(
    message: str | Sequence[Mapping[str, Any]], session_id: str | None, policy: Policy, fields: Mapping[str, Any]
) -> dict[str, Any]:
    session_field = {} if session_id is None else {"session_id": session_id}
    return {"message": message, "policy": policy} | session_field | dict(fields)


def _turn_result(agent: str, data: Mapping[str, Any]) -> TurnResult:
    return TurnResult(
        agent=agent,
        session_id=data["session_id"],
        turn_id=data["turn_id"],
        status=data["status"],
        response=data.get("response"),
        finish_reason=data.get("finish_reason"),
        refusal=data.get("refusal"),
        value=data.get("value"),
        usage=data.get("usage"),
        pending_calls=tuple(_pending_call(fields) for fields in data.get("pending_calls") or ()),
        data=data,
    )


def _pending_call(fields: Mapping[str, Any]) -> PendingCall:
    return PendingCall(
        call_id=fields["call_id"],
        kind=fields["kind"],
        name=fields["name"],
        arguments=fields.get("arguments") or {},
        path=fields["path"],
        reason=fields.get("reason"),
        schema=fields.get("schema"),
        approved_by=fields.get("approved_by"),
        changed_by=fields.get("changed_by"),
        created_at=fields["created_at"],
        expires_at=fields["expires_at"] or "",
    )


def _json_of(response: httpx2.Response) -> Mapping[str, Any]:
    try:
        return {**response.json()}
    except (ValueError, TypeError):
        raise _other_answer(f"{response.status_code} {response.headers.get('content-type', '')}") from None


def _other_answer(description: str) -> AgentClientError:
    """Return the error for the answer of something else, such as a page to log in."""
    return AgentClientError(
        f"this is no answer of a host of agents ({description.strip()}): check the URL, and what stands before the host"
    )


def _error_of(response: httpx2.Response) -> AgentClientError:
    """Read the problem in an answer."""
    is_problem = response.headers.get("content-type", "").startswith("application/problem+json")
    if is_problem:
        problem = _json_of(response)
        is_later = response.status_code == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in response.headers
        kind = HostUnreachableError if is_later else AgentClientError
        return kind(
            str(problem.get("detail")),
            status=response.status_code,
            problem=problem,
            retry_after=response.headers.get("retry-after"),
        )
    message = f"the host answered {response.status_code} {response.reason_phrase}: {response.text[:200].strip()}"
    kind = HostUnreachableError if response.status_code in _OF_GATEWAYS else AgentClientError
    return kind(message, status=response.status_code)
