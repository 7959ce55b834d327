"""The routes of a running host, for the commands that use them, and how such commands exit."""

import asyncio
import json
import logging
import os
import shlex
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from http.client import HTTPException
from typing import Any, BinaryIO, Final, NoReturn, override
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen
from uuid import uuid4

import click

from durable_agent_host.agent_client import LOGGER, AgentClient, TurnEvent
from durable_agent_host.cli.content_formatting import printable
from durable_agent_host.errors import AgentClientError

DEFAULT_URL: Final = "http://127.0.0.1:7071"
OK: Final = 0
PROBLEMS_FOUND: Final = 1
COULD_NOT: Final = 2
INTERRUPTED: Final = 130
"""The exit status of a command ended by Ctrl-C, as in shells."""
CLOSED_PIPE: Final = 141
"""The exit status when nobody reads the output any more, as shells report it of other programs."""
_SECONDS: Final = 600.0
"""Timeout without data from the host: a long conversation takes a while to verify or repair."""
_PART_BYTES: Final = 256 * 1024
PAGE: Final = 500
"""How many sessions or messages are requested at once."""


class CommandError(click.ClickException):
    """The command failed; the message says why and what to do.

    Args:
        message: a sentence.
        status: of the host's answer; 0 without one.
    """

    exit_code = COULD_NOT

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status

    def format_message(self) -> str:
        """Return the sentence, harmless for a terminal."""
        return printable(self.message)


class HostRoutes:
    """The routes of a running host.

    Args:
        url: where it listens, without ``/api``.
        key: function key, for hosts that require one.
        headers: further ones, as ``NAME: VALUE``: how the app identifies its callers.

    Attributes:
        options: which another command for the same host and caller needs, without the key.

    Raises:
        CommandError: the URL is not an HTTP URL, or a header is malformed.
    """

    def __init__(self, url: str, key: str | None, headers: Sequence[str] = ()) -> None:
        try:
            address = urlsplit(url)
        except ValueError:
            address = urlsplit("")
        if address.scheme not in {"http", "https"} or not address.hostname:
            raise CommandError(f"--url is {url!r}: give the host's URL, such as {DEFAULT_URL}")
        headers_text = "".join(f" --header {shlex.quote(header)}" for header in headers)
        self.options = ("" if url == DEFAULT_URL else f" --url {shlex.quote(url)}") + headers_text
        self._base = url.rstrip("/").removesuffix("/api") + "/api"
        self._headers = {"content-type": "application/json"} | ({"x-functions-key": key} if key else {})
        for header in headers:
            name, colon, value = (part.strip() for part in header.partition(":"))
            if not name or not colon:
                raise CommandError("--header has no colon: give 'NAME: VALUE', such as 'Authorization: Bearer TOKEN'")
            self._headers[name] = value

    def ask(self, path: str, body: Any = None, *, method: str = "GET") -> Any:
        """Call a route.

        Raises:
            CommandError: the host is unreachable, or refuses; the message quotes it.
        """
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        with self._answer(path, data, method=method) as answer:
            return self._json(path, answer)

    def download(self, path: str) -> Iterator[bytes]:
        """Read a route's stream, piece by piece.

        Raises:
            CommandError: the host is unreachable, refuses, or disconnects.
        """
        with self._answer(path, None, method="GET") as answer:
            try:
                while part := answer.read(_PART_BYTES):
                    yield part
            except (HTTPException, OSError) as error:
                raise CommandError(f"the host broke off ({error}): its log says why") from None

    def upload(self, path: str, file: BinaryIO) -> Any:
        """Send a file, piece by piece.

        Raises:
            CommandError: the host is unreachable, or refuses; the message quotes it.
        """
        size = {"content-length": str(os.fstat(file.fileno()).st_size)}
        with self._answer(path, file, method="POST", headers=size) as answer:
            return self._json(path, answer)

    def client(self) -> AgentClient:
        """Return a client of the host's agents."""
        return AgentClient(self._base, headers=self._headers)

    def _json(self, path: str, answer: Any) -> Any:
        try:
            return json.load(answer)
        except ValueError as error:
            raise CommandError(
                f"{self._base}{path} does not answer with JSON, so it is no such host: {error}"
            ) from None

    @contextmanager
    def _answer(
        self,
        path: str,
        data: bytes | BinaryIO | None,
        *,
        method: str,
        headers: dict[str, str] | None = None,
    ) -> Generator[Any]:
        request = Request(  # noqa: S310 - the user's own URL
            self._base + path, data=data, headers=self._headers | (headers or {}), method=method
        )
        try:
            answer = urlopen(request, timeout=_SECONDS)  # noqa: S310 - the same
        except HTTPError as error:
            with error:
                raise CommandError(_read_error(error), error.code) from None
        except (URLError, HTTPException, OSError) as error:
            raise CommandError(
                f"no host answers at {self._base} ({getattr(error, 'reason', error)}): "
                "start it with 'durable-agent-host start', or name it with --url"
            ) from None
        with answer:
            yield answer

    def session_path(self, agent: str, session_id: str, action: str = "") -> str:
        """Return the path of a session's route."""
        path = f"/agents/{quote(agent, safe='')}/sessions/{quote(session_id, safe='')}"
        return f"{path}/{action}" if action else path

    def agents(self) -> list[str]:
        """List the names of the agents."""
        return [str(agent["name"]) for agent in self.ask("/agents")["agents"]]

    def only_agent(self) -> str:
        """Return the name of the agent of a host that has one.

        Raises:
            CommandError: it has none, or several.
        """
        names = self.agents()
        if len(names) != 1:
            raise CommandError(
                f"name one of the host's agents: {', '.join(names)}" if names else "the host has no agent"
            )
        return names[0]

    def newest_turn(self, agent: str, session_id: str) -> str:
        """Return the running turn of a session, or else the last ended one.

        Raises:
            CommandError: it has none.
        """
        session = self.ask(f"{self.session_path(agent, session_id)}?limit=1")
        if session["running_turn_id"]:
            return session["running_turn_id"]
        turns_by_end = sorted(session["turns"], key=lambda turn: turn["ended_at"] or "")
        if not turns_by_end:
            raise CommandError(f"session {session_id!r} has no turn that is still known")
        return turns_by_end[-1]["turn_id"]

    def may_answer(self, turn_id: str, call_id: str) -> bool:
        """Return whether the caller may answer a call of a turn that waits."""
        cursor = ""
        while cursor is not None:
            page = self.ask(f"/pending?{urlencode({'cursor': cursor})}")
            if any((call.get("turn_id"), call["call_id"]) == (turn_id, call_id) for call in page["pending_calls"]):
                return True
            cursor = page["cursor"]
        return False

    def sessions(self, agent: str, limit: int | None = None, **search: str) -> Iterator[dict[str, Any]]:
        """List an agent's sessions, newest first, page by page."""
        cursor: str | None = None
        remaining = limit
        while remaining is None or remaining > 0:
            query = search | {"limit": str(min(PAGE, remaining or PAGE))} | ({"cursor": cursor} if cursor else {})
            page = self.ask(f"/agents/{quote(agent, safe='')}/sessions?{urlencode(query)}")
            yield from page["sessions"]
            remaining = None if remaining is None else remaining - len(page["sessions"])
            cursor = page["cursor"]
            if not cursor:
                return


def _read_error(error: HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        detail = json.loads(text).get("detail")
    except (ValueError, AttributeError):
        detail = None
    if detail:
        return str(detail)
    if error.code in (401, 403):
        return (
            f"the host refuses the call ({error.code}): give a function key with --key, or --header 'Authorization: …'"
        )
    return f"the host answered {error.code} {error.reason}: {text[:200].strip() or 'nothing more'}"


def host_command(name: str, **settings: Any) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command that uses a running host: of a function that takes its routes and returns the exit status."""

    def make_command(run: Callable[..., int]) -> click.Command:
        @click.command(name, **settings)
        @click.option("--url", default=DEFAULT_URL, show_default=True, help="the host's URL")
        @click.option("--key", help="function key, for a host that requires one")
        @click.option(
            "--header",
            "headers",
            metavar="'NAME: VALUE'",
            multiple=True,
            help="a header by which the app identifies its callers; may be repeated",
        )
        @wraps(run)
        def command(url: str, key: str | None, headers: Sequence[str], **arguments: Any) -> NoReturn:
            try:
                status = run(HostRoutes(url, key, headers), **arguments)
                sys.stdout.flush()
            except BrokenPipeError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end, too
                status = CLOSED_PIPE
            except KeyboardInterrupt:
                status = INTERRUPTED
            sys.exit(status)

        return command

    return make_command


# The events of a turn as they arrive, across lost connections and restarts of the host.


class TurnEvents:
    """Follows one turn from its first event, or from where it stopped; each event comes once.

    Args:
        host: the running host.
        agent: the agent's name.
        on_remark: called with a sentence when the connection is lost, and when it is back.

    Attributes:
        session_id, turn_id: of the turn, empty until the host has sent them.
    """

    def __init__(
        self,
        host: HostRoutes,
        agent: str,
        *,
        session_id: str = "",
        turn_id: str = "",
        on_remark: Callable[[str], None],
    ) -> None:
        self._host = host
        self._agent = agent
        self.session_id = session_id
        self.turn_id = turn_id
        self._last: int | None = None
        self._message = ""
        self._key = ""
        self._remarks = _Remarks(on_remark)

    @property
    def path(self) -> str:
        """The path of the turn's routes, after ``/api``."""
        return self._host.session_path(self._agent, self.session_id, f"turns/{quote(self.turn_id, safe='')}")

    def say(self, message: str) -> None:
        """Begin the turn with a message, once it is followed; resending it starts no second turn."""
        self._message = message
        self._key = uuid4().hex

    def __iter__(self) -> Iterator[TurnEvent]:
        """Yield the events not yet returned, until the turn's last.

        Raises:
            CommandError: the host refuses, or is unreachable for longer than the client waits for it.
        """
        client = self._host.client()
        LOGGER.addHandler(self._remarks)
        with asyncio.Runner() as runner:
            try:
                if not self.turn_id:
                    session_id = self.session_id or None
                    run = client.run(
                        self._agent, self._message, session_id=session_id, idempotency_key=self._key, wait=False
                    )
                    turn = runner.run(run)
                    self.session_id, self.turn_id = turn.session_id, turn.turn_id
                events = client.follow(self._agent, self.session_id, self.turn_id, after=self._last)
                try:
                    while (event := runner.run(_next(events))) is not None:
                        self._last = event.id
                        yield event
                        if event.is_last:
                            return
                finally:
                    runner.run(events.aclose())
            except AgentClientError as error:
                raise CommandError(str(error), error.status) from None
            finally:
                runner.run(client.aclose())
                LOGGER.removeHandler(self._remarks)
        raise CommandError(
            f"turn {self.turn_id!r} has ended, and the host no longer has its events after {self._last}: "
            "see 'durable-agent-host sessions show'"
        )


async def _next(events: AsyncGenerator[TurnEvent]) -> TurnEvent | None:
    return await anext(events, None)


class _Remarks(logging.Handler):
    """Passes on what the client logs."""

    def __init__(self, on_remark: Callable[[str], None]) -> None:
        super().__init__()
        self._on_remark = on_remark

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Pass a sentence on."""
        self._on_remark(record.getMessage())
