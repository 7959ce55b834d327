"""The commands ``durable-agent-host sessions …``: look after the stored sessions of a running host, over its routes."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import Request, urlopen

from durable_agent_host.cli.shown import shown_content

DEFAULT_URL: Final = "http://127.0.0.1:7071"
OK: Final = 0
PROBLEMS_FOUND: Final = 1
COULD_NOT: Final = 2
_SECONDS: Final = 600.0
"""Without a sign of the host: a long conversation takes a while to be verified or repaired."""
_PART_BYTES: Final = 256 * 1024
_SHOWN_MESSAGES: Final = 200
_PAGE: Final = 500
_SHOWN_CHARACTERS: Final = 300


class CommandError(Exception):
    """The command could not be carried out; the message says why and what to do."""


class HostRoutes:
    """The routes of a running host.

    Args:
        url: where it listens, without ``/api``.
        key: function key, for hosts that ask for one.

    Raises:
        CommandError: the URL is none of HTTP.
    """

    def __init__(self, url: str, key: str | None) -> None:
        try:
            scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
        except ValueError:
            scheme = host = None
        if scheme not in {"http", "https"} or not host:
            raise CommandError(f"--url is {url!r}: give the host's URL, such as {DEFAULT_URL}")
        self._base = url.rstrip("/").removesuffix("/api") + "/api"
        self._headers = {"content-type": "application/json"} | ({"x-functions-key": key} if key else {})

    def ask(self, path: str, body: Any = None, *, method: str = "GET") -> Any:
        """Ask a route.

        Args:
            path: after ``/api``.
            body: JSON to send.
            method: of HTTP.

        Returns:
            The answer's JSON.

        Raises:
            CommandError: the host is not there, or refuses; says what it said.
        """
        data = json.dumps(body).encode() if body is not None else (b"" if method == "POST" else None)
        with self._answer(path, data, method=method) as answer:
            return self._json(path, answer)

    def download(self, path: str) -> Iterator[bytes]:
        """Read what a route streams, piece by piece.

        Args:
            path: after ``/api``.

        Raises:
            CommandError: the host is not there, refuses, or breaks off.
        """
        with self._answer(path, None, method="GET") as answer:
            try:
                while part := answer.read(_PART_BYTES):
                    yield part
            except (HTTPException, OSError) as error:
                raise CommandError(f"the host broke off ({error}): its log says why") from None

    def upload(self, path: str, file: BinaryIO) -> Any:
        """Send a file, piece by piece.

        Args:
            path: after ``/api``.
            file: open for reading, at its beginning.

        Returns:
            The answer's JSON.

        Raises:
            CommandError: the host is not there, or refuses; says what it said.
        """
        size = {"content-length": str(os.fstat(file.fileno()).st_size)}
        with self._answer(path, file, method="POST", headers=size) as answer:
            return self._json(path, answer)

    def _json(self, path: str, answer: Any) -> Any:
        try:
            return json.load(answer)
        except ValueError as error:
            raise CommandError(
                f"{self._base}{path} does not answer with JSON, so it is no such host: {error}"
            ) from None

    @contextmanager
    def _answer(
        self, path: str, data: bytes | BinaryIO | None, *, method: str, headers: dict[str, str] | None = None
    ) -> Generator[Any]:
        request = Request(  # noqa: S310 - the URL that the user gave
            self._base + path, data=data, headers=self._headers | (headers or {}), method=method
        )
        try:
            answer = urlopen(request, timeout=_SECONDS)  # noqa: S310 - the same
        except HTTPError as error:
            with error:
                raise CommandError(_said(error)) from None
        except (URLError, HTTPException, OSError) as error:
            raise CommandError(
                f"no host answers at {self._base} ({getattr(error, 'reason', error)}): "
                "start it with 'durable-agent-host start', or name it with --url"
            ) from None
        with answer:
            yield answer

    def session_path(self, agent: str, session_id: str, action: str = "") -> str:
        """Write the path of a session's route."""
        path = f"/agents/{quote(agent, safe='')}/sessions/{quote(session_id, safe='')}"
        return f"{path}/{action}" if action else path

    def sessions(self, agent: str, limit: int | None = None) -> Iterator[dict[str, Any]]:
        """List an agent's sessions, newest first, page by page."""
        cursor: str | None = None
        left = limit
        while left is None or left > 0:
            query = {"limit": str(min(_PAGE, left or _PAGE))} | ({"cursor": cursor} if cursor else {})
            page = self.ask(f"/agents/{quote(agent, safe='')}/sessions?{urlencode(query)}")
            yield from page["sessions"]
            left = None if left is None else left - len(page["sessions"])
            cursor = page["cursor"]
            if not cursor:
                return


def _said(error: HTTPError) -> str:
    text = error.read().decode(errors="replace")
    try:
        detail = json.loads(text).get("detail")
    except (ValueError, AttributeError):
        detail = None
    if detail:
        return str(detail)
    if error.code in (401, 403):
        return f"the host refuses the call ({error.code}): give a function key with --key"
    return f"the host answered {error.code} {error.reason}: {text[:200].strip() or 'nothing more'}"


def add_session_commands(commands: Any) -> None:
    """Add ``sessions`` to the command line.

    Args:
        commands: the program's subparsers.
    """
    sessions = commands.add_parser(
        "sessions",
        help="list, show, verify, repair, export, import, fork, reset the context of and delete stored sessions",
        description="Look after the stored sessions of a running host.",
        epilog="Exit status: 0 all is well, 1 problems were found, 2 the command could not be carried out.",
    )
    actions = sessions.add_subparsers(dest="action", required=True)
    _add(actions, "list", _list, "list an agent's sessions, newest first; without an agent, of all agents", agent="?")
    _add(actions, "show", _show, "print a conversation", session=True)
    _add(
        actions, "verify", _verify, "say what a model's service would not accept; all sessions without one", session="?"
    )
    _add(actions, "repair", _repair, "mend a session; the original is kept as another session", session=True)
    _add(actions, "export", _export, "print the stored document, or write it to a file", session=True)
    _add(actions, "import", _import, "store an exported document as a new session", session=True)
    _add(actions, "fork", _fork, "store a copy of a conversation as a new session", session=True)
    _add(actions, "reset-context", _reset_context, "forget what compaction left out; the record stays", session=True)
    _add(
        actions, "delete", _delete, "delete a session and its turns; export it before if you may want it", session=True
    )
    actions.choices["fork"].add_argument("--at-turn", help="the last turn to copy (default: the whole conversation)")
    actions.choices["fork"].add_argument(
        "--before", action="store_true", help="copy what comes before that turn, to run it again with another message"
    )
    actions.choices["show"].add_argument(
        "--limit",
        type=int,
        default=_SHOWN_MESSAGES,
        help=f"how many of the newest messages (default {_SHOWN_MESSAGES})",
    )
    actions.choices["show"].add_argument("--all", action="store_true", help="all messages")
    actions.choices["delete"].add_argument(
        "--history", choices=["kept"], help="'kept': leave what a history provider of the app keeps"
    )
    actions.choices["fork"].add_argument("--as", dest="new_id", help="the new session's id (default: one is made up)")
    actions.choices["show"].add_argument("--context", action="store_true", help="what the model gets of it now")
    actions.choices["list"].add_argument("--limit", type=int, default=50, help="how many of each agent (default 50)")
    actions.choices["export"].add_argument("--output", type=Path, help="the file to write")
    actions.choices["import"].add_argument("file", type=Path, help="what 'export' wrote")


def _add(
    actions: Any, name: str, run: Callable[..., int], text: str, *, agent: Any = None, session: Any = False
) -> None:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    parser.add_argument("--url", default=DEFAULT_URL, help=f"where the host listens (default {DEFAULT_URL})")
    parser.add_argument("--key", help="function key, for a host that asks for one")
    parser.add_argument("agent", nargs=agent, help="the agent's name")
    if session:
        parser.add_argument("session", nargs="?" if session == "?" else None, help="the session's id")
    parser.set_defaults(run=run)


def run_session_command(arguments: argparse.Namespace) -> int:
    """Carry out a command.

    Args:
        arguments: as `add_session_commands` has them read.

    Returns:
        The exit status: 0 all is well, 1 problems were found, 2 it could not be carried out.
    """
    try:
        return arguments.run(HostRoutes(arguments.url, arguments.key), arguments)
    except CommandError as error:
        print(f"durable-agent-host sessions {arguments.action}: {error}", file=sys.stderr)
        return COULD_NOT


def _list(host: HostRoutes, arguments: argparse.Namespace) -> int:
    agents = [arguments.agent] if arguments.agent else [one["name"] for one in host.ask("/agents")["agents"]]
    for agent in agents:
        for session in host.sessions(agent, arguments.limit):
            print(f"{session['last_used_at']}  {agent}  {session['session_id']}")
    return OK


def _show(host: HostRoutes, arguments: argparse.Namespace) -> int:
    path, left = host.session_path(arguments.agent, arguments.session), arguments.limit
    if arguments.context:
        print(json.dumps(host.ask(f"{path}?view=context")["context"], indent=1))
        return OK
    pages: list[list[str]] = []
    last: list[str] = []
    cursor: str | None = ""
    session: dict[str, Any] = {}
    while cursor is not None and (arguments.all or left > 0):
        limit = _PAGE if arguments.all else min(_PAGE, left)
        page = host.ask(f"{path}?{urlencode({'limit': limit} | ({'cursor': cursor} if cursor else {}))}")
        session = session or {name: value for name, value in page.items() if name != "messages"}
        pages.append(
            [
                f"  {message.get('role')!s:<9} {line}"
                for message in page["messages"]
                for content in message.get("contents") or ()
                if (line := _shown(content))
            ]
        )
        last += _remarks(page)
        left, cursor = left - len(page["messages"]), page["previous"]
    print(f"{session['agent']}  {session['session_id']}  {session['message_count']} entries")
    if cursor is not None:
        print("  … older messages: --all shows them")
    for lines in reversed(pages):
        print(*lines, sep="\n", end="\n" if lines else "")
    print(*last, sep="\n", end="\n" if last else "")
    if session["running_turn_id"]:
        print(f"  turn {session['running_turn_id']} is running")
    return OK


def _remarks(page: dict[str, Any]) -> list[str]:
    return [
        *(
            f"  turn {turn['turn_id']} was cancelled; what it had produced is shown"
            for turn in page["turns"]
            if turn["status"] == "cancelled"
        ),
        *(
            f"  not shown: turn {one['turn_id']}, {one['path']}: {one['size']} bytes"
            for one in page.get("left_out", ())
        ),
        *(f"  not shown: {problem['place']}: {problem['problem']}" for problem in page.get("problems", ())),
    ]


def _reset_context(host: HostRoutes, arguments: argparse.Namespace) -> int:
    answer = host.ask(host.session_path(arguments.agent, arguments.session, "context/reset"), method="POST")
    told = "the next turn compacts it anew" if answer["status"] == "reset" else "it was whole, nothing was changed"
    print(f"{answer['session_id']}: {told}")
    return OK


def _shown(content: dict[str, Any]) -> str:
    line = " ".join(shown_content(content).split())
    shown = line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]} … ({len(line)} characters)"
    return shown.encode(errors="replace").decode()


def _verify(host: HostRoutes, arguments: argparse.Namespace) -> int:
    one = arguments.session
    names = [one] if one else [session["session_id"] for session in host.sessions(arguments.agent)]
    worst = OK
    for name in names:
        try:
            problems = host.ask(host.session_path(arguments.agent, name, "verify"))["problems"]
        except CommandError as error:
            if one:
                raise
            print(f"{name}: {error}")
            worst = COULD_NOT
            continue
        print(f"{name}: {_count(problems, 'problem')}")
        for problem in problems:
            print(f"  {problem['place']}: {problem['problem']}. Repair: {problem['repair']}")
        worst = max(worst, PROBLEMS_FOUND if problems else OK)
    return worst


def _repair(host: HostRoutes, arguments: argparse.Namespace) -> int:
    answer = host.ask(host.session_path(arguments.agent, arguments.session, "repair"), method="POST")
    changes = answer["changes"]
    if not changes:
        print(f"{answer['session_id']}: nothing to repair, nothing was changed")
        return OK
    print(
        f"{answer['session_id']}: {_count(changes, 'change')}; the original is session {answer['original_session_id']}"
    )
    for change in changes:
        print(f"  {change['place']}: {change['problem']}. {change['repair'][0].upper()}{change['repair'][1:]}.")
    return OK


def _export(host: HostRoutes, arguments: argparse.Namespace) -> int:
    document = host.download(host.session_path(arguments.agent, arguments.session, "export"))
    if arguments.output is None:
        for part in document:
            sys.stdout.write(part.decode())
        print()
        return OK
    unfinished = arguments.output.with_name(f"{arguments.output.name}.{os.getpid()}.unfinished")
    try:
        with unfinished.open("wb") as file:
            for part in document:
                file.write(part)
            file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(arguments.output)
    except OSError as error:
        raise CommandError(f"{arguments.output} cannot be written: {error.strerror}") from None
    finally:
        unfinished.unlink(missing_ok=True)
    print(f"{arguments.session}: written to {arguments.output}")
    return OK


def _import(host: HostRoutes, arguments: argparse.Namespace) -> int:
    try:
        with arguments.file.open("rb") as file:
            answer = host.upload(host.session_path(arguments.agent, arguments.session, "import"), file)
    except OSError as error:
        raise CommandError(f"{arguments.file} cannot be read: {error.strerror}") from None
    print(f"{answer['session_id']}: imported, {answer['message_count']} entries")
    for told in answer["taken_on_trust"]:
        print(f"  taken on trust: {told}")
    return OK


def _fork(host: HostRoutes, arguments: argparse.Namespace) -> int:
    said = {"at_turn": arguments.at_turn, "session_id": arguments.new_id}
    body: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
    body |= {"before": True} if arguments.before else {}
    answer = host.ask(host.session_path(arguments.agent, arguments.session, "fork"), body, method="POST")
    print(f"{answer['session_id']}: forked from {answer['forked_from']}, {answer['message_count']} entries")
    return OK


def _delete(host: HostRoutes, arguments: argparse.Namespace) -> int:
    path = host.session_path(arguments.agent, arguments.session)
    answer = host.ask(f"{path}?history={arguments.history}" if arguments.history else path, method="DELETE")
    print(f"{answer['session_id']}: {answer['status']}")
    return OK


def _count(things: list[Any], name: str) -> str:
    return f"{len(things) or 'no'} {name}{'' if len(things) == 1 else 's'}"
