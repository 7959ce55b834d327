"""The commands ``durable-agent-host sessions …``: manage the stored sessions of a running host."""

import json
import sys
from collections.abc import AsyncGenerator
from typing import Any, BinaryIO

import click
import yaml

from durable_agent_host.cli.host_command import OK, PROBLEMS_FOUND, CommandError, RunningHost, host_command, printable

_PART_BYTES = 256 * 1024


@host_command("list")
@click.option("--limit", default=50, show_default=True, help="how many of each agent")
@click.option("--status", default="", help="only those in one of these states, such as failed,waiting")
@click.option("--search", default="", metavar="TEXT", help="only those whose id has this text in it")
@click.argument("agent", required=False)
def _list(host: RunningHost, limit: int, status: str, search: str, agent: str | None) -> int:
    """List an agent's sessions, newest first; or those of all agents."""
    for name in [agent] if agent else host.run(host.client.agents()):
        for session in host.each(host.client.sessions(name, limit=limit, status=status, search=search)):
            columns = (session["last_used_at"], name, session["session_id"], session.get("status") or "")
            print(printable("  ".join(columns).rstrip()))
    return OK


@host_command("show")
@click.option("--limit", default=200, show_default=True, help="how many of the newest messages")
@click.argument("agent")
@click.argument("session")
def _show(host: RunningHost, limit: int, agent: str, session: str) -> int:
    """Print a conversation as JSON."""
    print(json.dumps(host.run(host.client.session(agent, session, limit=limit)), indent=1))
    return OK


@host_command("verify")
@click.argument("agent")
@click.argument("session")
def _verify(host: RunningHost, agent: str, session: str) -> int:
    """Say what cannot be read, and which calls have no result."""
    problems = host.run(host.client.verify(agent, session))["problems"]
    print(f"{session}: {_count(problems, 'problem')}")
    _print_changes(problems)
    return PROBLEMS_FOUND if problems else OK


@host_command("repair")
@click.argument("agent")
@click.argument("session")
def _repair(host: RunningHost, agent: str, session: str) -> int:
    """Repair a session; the original is kept as another session."""
    answer = host.run(host.client.repair(agent, session))
    original = answer["original_session_id"]
    print(f"{session}: {_count(answer['changes'], 'change')}{f'; the original is session {original}' * bool(original)}")
    _print_changes(answer["changes"])
    return OK


def _print_changes(changes: list[Any]) -> None:
    for change in changes:
        print(printable(f"  {change['place']}: {change['problem']}. Repair: {change['repair']}"))


@host_command("export")
@click.argument("agent")
@click.argument("session")
def _export(host: RunningHost, agent: str, session: str) -> int:
    """Print the stored session as JSON lines."""
    for part in host.each(host.client.export(agent, session)):
        sys.stdout.write(part.decode())
    return OK


@host_command("import")
@click.argument("agent")
@click.argument("session")
@click.argument("file", type=click.File("rb"))
def _import(host: RunningHost, agent: str, session: str, file: BinaryIO) -> int:
    """Store a FILE that 'export' wrote as a new session; - is standard input."""
    answer = host.run(host.client.import_session(agent, session, _parts(file)))
    print(f"{session}: imported, {answer['message_count']} entries")
    return OK


async def _parts(file: BinaryIO) -> AsyncGenerator[bytes]:
    while part := file.read(_PART_BYTES):
        yield part


@host_command("fork")
@click.option("--at-turn", help="the last turn to copy (default: the whole conversation)")
@click.option("--before", is_flag=True, help="copy what comes before that turn, to run it again with another message")
@click.option("--as", "new_id", help="the new session's id (default: a generated one)")
@click.argument("agent")
@click.argument("session")
def _fork(host: RunningHost, *, at_turn: str | None, before: bool, new_id: str | None, agent: str, session: str) -> int:
    """Store a copy of a conversation as a new session."""
    answer = host.run(host.client.fork(agent, session, new_id, at_turn=at_turn, before=before))
    print(f"{answer['session_id']}: forked from {session}, {answer['message_count']} entries")
    return OK


@host_command("case")
@click.option("--turn", "turn_id", help="the turn to check (default: the newest)")
@click.argument("agent")
@click.argument("session")
def _case(host: RunningHost, turn_id: str | None, agent: str, session: str) -> int:
    """Print a conversation up to a turn as a case for 'durable-agent-host eval'."""
    messages = host.run(host.client.session(agent, session))["messages"]
    turn_ids = [*dict.fromkeys(message["turn_id"] for message in messages)]
    if not turn_ids or (turn_id is not None and turn_id not in turn_ids):
        raise CommandError(f"the newest messages of session {session} have no turn {turn_id or ''}".rstrip())
    last_turn_id = turn_id or turn_ids[-1]
    played_ids = turn_ids[: turn_ids.index(last_turn_id) + 1]
    contents = [
        (message["role"], message["turn_id"], content)
        for message in messages
        if message["turn_id"] in played_ids
        for content in message["contents"]
    ]
    questions = [content for role, _, content in contents if role == "user"]
    if any(content["$type"] != "text" for content in questions):
        raise CommandError(f"a message of session {session} has files, which a case cannot have")
    calls = [item for _, turn, item in contents if turn == last_turn_id and item["$type"] == "functionCall"]
    case: dict[str, Any] = {
        "name": f"{session}, turn {len(played_ids)}",
        "agent": agent,
        "messages": [content["text"] for content in questions],
        "tools": [{call["name"]: call["arguments"]} for call in calls],
        "answer": host.run(host.client.turn(agent, session, last_turn_id)).response,
    }
    print(yaml.safe_dump([case], sort_keys=False, allow_unicode=True), end="")
    return OK


@host_command("delete")
@click.option("--history", type=click.Choice(["kept"]), help="'kept': leave what a history provider of the app keeps")
@click.argument("agent")
@click.argument("session")
def _delete(host: RunningHost, history: str | None, agent: str, session: str) -> int:
    """Delete a session and its turns; export it before if you may want it."""
    answer = host.run(host.client.delete(agent, session, keeps_history=history is not None))
    print(f"{session}: {answer['status']}")
    return OK


def _count(items: list[Any], name: str) -> str:
    return f"{len(items) or 'no'} {name}{'' if len(items) == 1 else 's'}"


sessions = click.Group(
    "sessions",
    commands=[_list, _show, _verify, _repair, _export, _import, _fork, _case, _delete],
    help="Manage the stored sessions of a running host.",
    epilog="Exit status: 0 all is well, 1 problems were found, 2 the command could not be carried out.",
)
