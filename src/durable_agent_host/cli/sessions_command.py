"""The commands ``durable-agent-host sessions …``: manage the stored sessions of a running host, over its routes."""

import argparse
import difflib
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from durable_agent_host.cli.content_formatting import format_content, format_usage, printable
from durable_agent_host.cli.host_client import (
    COULD_NOT,
    OK,
    PAGE,
    PROBLEMS_FOUND,
    CommandError,
    HostRoutes,
    add_host_arguments,
    run_command,
)

_DEFAULT_MESSAGES: Final = 200
_MAX_CHARACTERS: Final = 300


def add_session_commands(commands: Any) -> None:
    """Add ``sessions`` to the command line."""
    sessions = commands.add_parser(
        "sessions",
        help="list, show, verify, repair, export, import, fork, reset the context of and delete stored sessions",
        description="Manage the stored sessions of a running host.",
        epilog="Exit status: 0 all is well, 1 problems were found, 2 the command could not be carried out.",
    )
    actions = sessions.add_subparsers(dest="action", required=True)
    _add(
        actions,
        "list",
        _list,
        "list an agent's sessions with status and cost, newest first; or of all agents",
        agent="?",
    )
    _add(actions, "show", _show, "print a conversation", session=True)
    _add(
        actions, "verify", _verify, "say what a model's service would not accept; all sessions without one", session="?"
    )
    _add(actions, "repair", _repair, "repair a session; the original is kept as another session", session=True)
    _add(actions, "export", _export, "print the stored document, or write it to a file", session=True)
    _add(actions, "import", _import, "store an exported document as a new session", session=True)
    _add(actions, "fork", _fork, "store a copy of a conversation as a new session", session=True)
    _add(actions, "reset-context", _reset_context, "discard what compaction left out; the record stays", session=True)
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
        default=_DEFAULT_MESSAGES,
        help=f"how many of the newest messages (default {_DEFAULT_MESSAGES})",
    )
    actions.choices["show"].add_argument("--all", action="store_true", help="all messages")
    actions.choices["delete"].add_argument(
        "--history", choices=["kept"], help="'kept': leave what a history provider of the app keeps"
    )
    actions.choices["fork"].add_argument("--as", dest="new_id", help="the new session's id (default: a generated one)")
    actions.choices["show"].add_argument("--context", action="store_true", help="what the model gets of it now")
    actions.choices["verify"].add_argument("--diff", action="store_true", help="show what repair would change")
    actions.choices["list"].add_argument("--limit", type=int, default=50, help="how many of each agent (default 50)")
    actions.choices["list"].add_argument(
        "--status", help="only those in one of these states, such as failed,waiting_for_approval"
    )
    actions.choices["list"].add_argument("--search", metavar="TEXT", help="only those whose id has this text in it")
    actions.choices["export"].add_argument("--output", type=Path, help="the file to write")
    actions.choices["import"].add_argument("file", type=Path, help="what 'export' wrote")


def _add(
    actions: Any, name: str, run: Callable[..., int], text: str, *, agent: Any = None, session: Any = False
) -> None:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
    add_host_arguments(parser)
    parser.add_argument("agent", nargs=agent, help="the agent's name")
    if session:
        parser.add_argument("session", nargs="?" if session == "?" else None, help="the session's id")
    parser.set_defaults(run=run)


def run_session_command(arguments: argparse.Namespace) -> int:
    """Run a command.

    Returns:
        The exit status: 0 no problems, 1 problems were found, 2 the command failed.
    """
    return run_command(f"sessions {arguments.action}", lambda host: arguments.run(host, arguments), arguments)


def _list(host: HostRoutes, arguments: argparse.Namespace) -> int:
    agents = [arguments.agent] if arguments.agent else host.agents()
    criteria = {"status": arguments.status, "search": arguments.search}
    search = {name: text for name, text in criteria.items() if text}
    for agent in agents:
        for session in host.sessions(agent, arguments.limit, details="true", **search):
            print(_format_session(agent, session))
    return OK


def _format_session(agent: str, session: dict[str, Any]) -> str:
    name = session["session_id"]
    usage = format_usage(session.get("spent"))
    return f"{session['last_used_at']}  {agent}  {name:<32}  {session.get('status') or '':<9}  {usage}".rstrip()


def _show(host: HostRoutes, arguments: argparse.Namespace) -> int:
    path = host.session_path(arguments.agent, arguments.session)
    remaining = arguments.limit
    if arguments.context:
        print(json.dumps(host.ask(f"{path}?view=context")["context"], indent=1))
        return OK
    pages: list[list[str]] = []
    last: list[str] = []
    cursor: str | None = ""
    session: dict[str, Any] = {}
    while cursor is not None and (arguments.all or remaining > 0):
        limit = PAGE if arguments.all else min(PAGE, remaining)
        page = host.ask(f"{path}?{urlencode({'limit': limit} | ({'cursor': cursor} if cursor else {}))}")
        session = session or {name: value for name, value in page.items() if name != "messages"}
        pages.append(
            [
                f"  {message.get('role')!s:<9} {line}"
                for message in page["messages"]
                for content in message.get("contents") or ()
                if (line := _format_line(content))
            ]
        )
        last += _remarks(page)
        remaining = remaining - len(page["messages"])
        cursor = page["previous"]
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
            f"  not shown: turn {omission['turn_id']}, {omission['path']}: {omission['size']} bytes"
            for omission in page.get("left_out", ())
        ),
        *(f"  not shown: {problem['place']}: {problem['problem']}" for problem in page.get("problems", ())),
    ]


def _reset_context(host: HostRoutes, arguments: argparse.Namespace) -> int:
    answer = host.ask(host.session_path(arguments.agent, arguments.session, "context/reset"), method="POST")
    message = "the next turn compacts it anew" if answer["status"] == "reset" else "it was whole, nothing was changed"
    print(f"{answer['session_id']}: {message}")
    return OK


def _format_line(content: dict[str, Any]) -> str:
    line = " ".join(format_content(content).split())
    shortened = line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} … ({len(line)} characters)"
    return printable(shortened).encode(errors="replace").decode()


def _verify(host: HostRoutes, arguments: argparse.Namespace) -> int:
    session_id = arguments.session
    names = [session_id] if session_id else [session["session_id"] for session in host.sessions(arguments.agent)]
    worst = OK
    for name in names:
        try:
            query = "?view=diff" if arguments.diff else ""
            report = host.ask(host.session_path(arguments.agent, name, "verify") + query)
        except CommandError as error:
            if session_id:
                raise
            print(f"{name}: {error}")
            worst = COULD_NOT
            continue
        problems = report["problems"]
        print(f"{name}: {_count(problems, 'problem')}")
        for problem in problems:
            print(f"  {problem['place']}: {problem['problem']}. Repair: {problem['repair']}")
        for line in _diff(report):
            print(printable(line))
        worst = max(worst, PROBLEMS_FOUND if problems else OK)
    return worst


def _diff(report: dict[str, Any]) -> Iterator[str]:
    for difference in report.get("differences", ()):
        before, after = (
            [] if entry is None else json.dumps(entry, indent=1, ensure_ascii=False).splitlines()
            for entry in (difference["before"], difference["after"])
        )
        yield from difflib.unified_diff(before, after, "stored", "repaired", lineterm="")
    if left_out := report.get("differences_left_out"):
        yield f"… {left_out} more entries would change"


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
    temporary_path = arguments.output.with_name(f"{arguments.output.name}.{os.getpid()}.unfinished")
    try:
        with temporary_path.open("wb") as file:
            for part in document:
                file.write(part)
            file.write(b"\n")
            file.flush()
            os.fsync(file.fileno())
        temporary_path.replace(arguments.output)
    except OSError as error:
        raise CommandError(f"{arguments.output} cannot be written: {error.strerror}") from None
    finally:
        temporary_path.unlink(missing_ok=True)
    print(f"{arguments.session}: written to {arguments.output}")
    return OK


def _import(host: HostRoutes, arguments: argparse.Namespace) -> int:
    try:
        with arguments.file.open("rb") as file:
            answer = host.upload(host.session_path(arguments.agent, arguments.session, "import"), file)
    except OSError as error:
        raise CommandError(f"{arguments.file} cannot be read: {error.strerror}") from None
    print(f"{answer['session_id']}: imported, {answer['message_count']} entries")
    for item in answer["taken_on_trust"]:
        print(f"  taken on trust: {item}")
    return OK


def _fork(host: HostRoutes, arguments: argparse.Namespace) -> int:
    options = {"at_turn": arguments.at_turn, "session_id": arguments.new_id}
    body: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    body |= {"before": True} if arguments.before else {}
    answer = host.ask(host.session_path(arguments.agent, arguments.session, "fork"), body, method="POST")
    print(f"{answer['session_id']}: forked from {answer['forked_from']}, {answer['message_count']} entries")
    return OK


def _delete(host: HostRoutes, arguments: argparse.Namespace) -> int:
    path = host.session_path(arguments.agent, arguments.session)
    answer = host.ask(f"{path}?history={arguments.history}" if arguments.history else path, method="DELETE")
    print(f"{answer['session_id']}: {answer['status']}")
    return OK


def _count(items: list[Any], name: str) -> str:
    return f"{len(items) or 'no'} {name}{'' if len(items) == 1 else 's'}"
