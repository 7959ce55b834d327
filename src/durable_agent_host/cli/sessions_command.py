"""The commands ``durable-agent-host sessions …``: manage the stored sessions of a running host, over its routes."""

import json
import os
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import click

from durable_agent_host.cli.content_formatting import format_content, format_usage, printable
from durable_agent_host.cli.host_client import (
    COULD_NOT,
    OK,
    PAGE,
    PROBLEMS_FOUND,
    CommandError,
    HostRoutes,
    host_command,
)

_MAX_CHARACTERS: Final = 300
_PATH: Final = click.Path(path_type=Path)


@host_command("list")
@click.option("--limit", default=50, show_default=True, help="how many of each agent")
@click.option("--status", help="only those in one of these states, such as failed,waiting")
@click.option("--search", metavar="TEXT", help="only those whose id has this text in it")
@click.argument("agent", required=False)
def _list(host: HostRoutes, limit: int, status: str | None, search: str | None, agent: str | None) -> int:
    """List an agent's sessions with status and cost, newest first; or of all agents."""
    criteria = {"status": status, "search": search}
    filters = {name: text for name, text in criteria.items() if text}
    for name in [agent] if agent else host.agents():
        for session in host.sessions(name, limit, details="true", **filters):
            print(_format_session(name, session))
    return OK


def _format_session(agent: str, session: dict[str, Any]) -> str:
    name = session["session_id"]
    usage = format_usage(session.get("spent"))
    return f"{session['last_used_at']}  {agent}  {name:<32}  {session.get('status') or '':<9}  {usage}".rstrip()


@host_command("show")
@click.option("--limit", default=200, show_default=True, help="how many of the newest messages")
@click.option("--all", "is_all", is_flag=True, help="all messages")
@click.option("--context", "is_context", is_flag=True, help="what the model gets of it now")
@click.argument("agent")
@click.argument("session_id", metavar="SESSION")
def _show(host: HostRoutes, *, limit: int, is_all: bool, is_context: bool, agent: str, session_id: str) -> int:
    """Print a conversation."""
    path = host.session_path(agent, session_id)
    remaining = limit
    if is_context:
        print(json.dumps(host.ask(f"{path}?view=context")["context"], indent=1))
        return OK
    pages: list[list[str]] = []
    last: list[str] = []
    cursor: str | None = ""
    session: dict[str, Any] = {}
    while cursor is not None and (is_all or remaining > 0):
        page_limit = PAGE if is_all else min(PAGE, remaining)
        page = host.ask(f"{path}?{urlencode({'limit': page_limit} | ({'cursor': cursor} if cursor else {}))}")
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


@host_command("reset-context")
@click.argument("agent")
@click.argument("session")
def _reset_context(host: HostRoutes, agent: str, session: str) -> int:
    """Discard what compaction left out; the record stays."""
    answer = host.ask(host.session_path(agent, session, "context/reset"), method="POST")
    message = "the next turn compacts it anew" if answer["status"] == "reset" else "it was whole, nothing was changed"
    print(f"{answer['session_id']}: {message}")
    return OK


def _format_line(content: dict[str, Any]) -> str:
    line = " ".join(format_content(content).split())
    short_line = line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} … ({len(line)} characters)"
    return printable(short_line)


@host_command("verify")
@click.argument("agent")
@click.argument("session_id", metavar="[SESSION]", required=False)
def _verify(host: HostRoutes, agent: str, session_id: str | None) -> int:
    """Say what cannot be read, and which calls have no result; of all sessions without one."""
    names = [session_id] if session_id else [session["session_id"] for session in host.sessions(agent)]
    worst = OK
    for name in names:
        try:
            report = host.ask(host.session_path(agent, name, "verify"))
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
        worst = max(worst, PROBLEMS_FOUND if problems else OK)
    return worst


@host_command("repair")
@click.argument("agent")
@click.argument("session")
def _repair(host: HostRoutes, agent: str, session: str) -> int:
    """Repair a session; the original is kept as another session."""
    answer = host.ask(host.session_path(agent, session, "repair"), method="POST")
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


@host_command("export")
@click.option("--output", type=_PATH, help="the file to write")
@click.argument("agent")
@click.argument("session")
def _export(host: HostRoutes, output: Path | None, agent: str, session: str) -> int:
    """Print the stored document, or write it to a file."""
    document = host.download(host.session_path(agent, session, "export"))
    if output is None:
        for part in document:
            sys.stdout.write(part.decode())
        return OK
    temporary_path = output.with_name(f"{output.name}.{os.getpid()}.unfinished")
    try:
        with temporary_path.open("wb") as file:
            for part in document:
                file.write(part)
            file.write(b"\n")
        temporary_path.replace(output)
    except OSError as error:
        raise CommandError(f"{output} cannot be written: {error.strerror}") from None
    finally:
        temporary_path.unlink(missing_ok=True)
    print(f"{session}: written to {output}")
    return OK


@host_command("import")
@click.argument("agent")
@click.argument("session")
@click.argument("path", metavar="FILE", type=_PATH)
def _import(host: HostRoutes, agent: str, session: str, path: Path) -> int:
    """Store a FILE that 'export' wrote as a new session."""
    try:
        with path.open("rb") as file:
            answer = host.upload(host.session_path(agent, session, "import"), file)
    except OSError as error:
        raise CommandError(f"{path} cannot be read: {error.strerror}") from None
    print(f"{answer['session_id']}: imported, {answer['message_count']} entries")
    return OK


@host_command("fork")
@click.option("--at-turn", help="the last turn to copy (default: the whole conversation)")
@click.option("--before", is_flag=True, help="copy what comes before that turn, to run it again with another message")
@click.option("--as", "new_id", help="the new session's id (default: a generated one)")
@click.argument("agent")
@click.argument("session")
def _fork(host: HostRoutes, *, at_turn: str | None, before: bool, new_id: str | None, agent: str, session: str) -> int:
    """Store a copy of a conversation as a new session."""
    options = {"at_turn": at_turn, "session_id": new_id, "before": before or None}
    body = {name: value for name, value in options.items() if value is not None}
    answer = host.ask(host.session_path(agent, session, "fork"), body, method="POST")
    print(f"{answer['session_id']}: forked from {answer['forked_from']}, {answer['message_count']} entries")
    return OK


@host_command("delete")
@click.option("--history", type=click.Choice(["kept"]), help="'kept': leave what a history provider of the app keeps")
@click.argument("agent")
@click.argument("session")
def _delete(host: HostRoutes, history: str | None, agent: str, session: str) -> int:
    """Delete a session and its turns; export it before if you may want it."""
    path = host.session_path(agent, session)
    answer = host.ask(f"{path}?history={history}" if history else path, method="DELETE")
    erased = ", ".join(f"{number} {name}" for name, number in answer.get("erased", {}).items())
    print(f"{answer['session_id']}: {answer['status']}{erased and f', with {erased}'}")
    return OK


def _count(items: list[Any], name: str) -> str:
    return f"{len(items) or 'no'} {name}{'' if len(items) == 1 else 's'}"


sessions = click.Group(
    "sessions",
    commands=[_list, _show, _verify, _repair, _export, _import, _fork, _reset_context, _delete],
    help="Manage the stored sessions of a running host.",
    epilog="Exit status: 0 all is well, 1 problems were found, 2 the command could not be carried out.",
)
