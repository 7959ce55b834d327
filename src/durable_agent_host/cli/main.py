"""The command ``durable-agent-host``: starts the embedded host, manages sessions."""

import argparse
import asyncio
import difflib
import json
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, NoReturn, cast

from durable_agent_host.cli.chat_command import add_chat_command, run_chat_command
from durable_agent_host.cli.host_client import (
    OK,
    PROBLEMS_FOUND,
    CommandError,
    HostRoutes,
    add_host_arguments,
    run_command,
)
from durable_agent_host.cli.sessions_command import add_session_commands, run_session_command
from durable_agent_host.cli.turns_command import add_turn_commands, run_turn_command


def add_thread_command(commands: Any) -> None:
    """Add ``import-threads`` to the command line."""
    parser = commands.add_parser(
        "import-threads",
        help="copy threads of the Azure AI Agents service into sessions of a running host",
        description="Copy threads with messages, steps and files into sessions that any agent of the host continues.",
        epilog="Exit status: 0 all was taken, 1 some was not, 2 the command could not be carried out. "
        "A thread whose session exists is left alone, so the command can be repeated.",
    )
    parser.add_argument(
        "--endpoint", required=True, help="of the project: https://….services.ai.azure.com/api/projects/…"
    )
    parser.add_argument("--api-key", help="instead of the credential that azure-identity finds")
    add_host_arguments(parser)
    parser.add_argument("--all", action="store_true", help="all threads of the project")
    parser.add_argument("agent", help="the agent of the host that the sessions are for")
    parser.add_argument("thread", nargs="*", help="ids of threads; a thread's id becomes its session's")


def run_thread_command(arguments: argparse.Namespace) -> int:
    """Run the command."""

    def run_import(host: HostRoutes) -> int:
        _check(arguments)
        host.ask("/agents")
        return asyncio.run(_import(host, arguments))

    return run_command("import-threads", run_import, arguments)


def _check(arguments: argparse.Namespace) -> None:
    if bool(arguments.thread) == arguments.all:
        raise CommandError("name threads by their ids, or give --all")
    if not find_spec("azure.ai.agents"):
        raise CommandError("the SDK is not installed: pip install 'durable-agent-host[azure-ai-agents]'")


async def _import(host: HostRoutes, arguments: argparse.Namespace) -> int:
    from durable_agent_host.providers.azure_ai_agents.service_client import (  # noqa: PLC0415 - no other command needs the SDK
        AgentsService,
        connect,
    )

    sdk = connect(arguments.endpoint, api_key=arguments.api_key)
    service = AgentsService(sdk)
    status = OK
    async with sdk:
        try:
            threads: list[str] = await service.threads() if arguments.all else arguments.thread
        except Exception as error:
            raise CommandError(f"the service does not list its threads: {error}") from error
        for thread_id in threads:
            status = max(status, await _import_one(host, service, arguments.agent, thread_id))
    return status


async def _import_one(host: HostRoutes, service: Any, agent: str, thread_id: str) -> int:
    """Import one thread; a failure does not stop the others."""
    from durable_agent_host.conversation_json import Conversation, encode  # noqa: PLC0415 - the same
    from durable_agent_host.providers.azure_ai_agents.thread_import import read_thread  # noqa: PLC0415 - the same

    if _exists(host, agent, thread_id):
        print(f"{thread_id}: left alone, the session is there already")
        return OK
    try:
        thread = await read_thread(service, thread_id)
    except Exception as error:  # noqa: BLE001 - the other threads are imported all the same
        print(f"{thread_id}: not taken: {error}", file=sys.stderr)
        return PROBLEMS_FOUND
    if not thread.messages:
        print(f"{thread_id}: left alone, it has no messages")
        return OK
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(encode(Conversation(thread.messages))).encode())
        file.flush()
        file.seek(0)
        answer = cast("dict[str, Any]", host.upload(host.session_path(agent, thread_id, "import"), file))
    summary = f"{len(thread.messages)} messages, {len(thread.files)} files"
    print(f"{answer['session_id']}: imported, {summary}")
    for reason in thread.missing:
        print(f"  not taken: {reason}")
    return PROBLEMS_FOUND if thread.missing else OK


def _exists(host: HostRoutes, agent: str, session_id: str) -> bool:
    try:
        host.ask(host.session_path(agent, session_id))
    except CommandError:
        return False
    return True


_HOST = [sys.executable, "-m", "functions_host", "--called", "durable-agent-host"]
_EXTRA_HOST = ("httptools", "starlette", "uvicorn", "watchfiles")
"""What the extra ``host`` installs; other packages install some of it too, so each is checked."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports an error in one line, and accepts options between positional arguments, too."""

    _is_intermixing = False

    def parse_known_args(  # pyright: ignore[reportIncompatibleMethodOverride] - argparse itself calls it like this
        self, args: Iterable[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parse arguments; ``verify AGENT --diff SESSION`` is ``verify AGENT SESSION --diff``."""
        kinds = [action.nargs for action in self._actions if not action.option_strings]
        if self._is_intermixing or not kinds or argparse.PARSER in kinds:
            return super().parse_known_args(args, namespace)
        self._is_intermixing = True
        try:
            return self.parse_known_intermixed_args(args, namespace)
        finally:
            self._is_intermixing = False

    def error(self, message: str) -> NoReturn:
        if match := re.fullmatch(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", message):
            choices = re.findall(r"[\w-]+", match[3])
            close = "".join(f" (did you mean {name}?)" for name in difflib.get_close_matches(match[2], choices, n=1))
            message = f"there is no {match[1]} {match[2]!r}{close}, only {', '.join(choices)}"
        self.exit(2, f"Error: {message[0].upper()}{message[1:]}; see {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command.

    ``start`` replaces this process by the embedded host, so that signals reach it under the same process id.

    Raises:
        SystemExit: with the command's status; also when the arguments are invalid, or the embedded host is not
            installed.
    """
    parser = _Parser(prog="durable-agent-host", description="Host agents durably, on this machine.")
    parser.add_argument("--version", action="version", version=f"durable-agent-host {version('durable-agent-host')}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start", help="run a function app on the embedded host", add_help=False)
    add_chat_command(commands)
    add_session_commands(commands)
    add_turn_commands(commands)
    add_thread_command(commands)
    command, host_arguments = parser.parse_known_args(arguments)
    if run := _OF_HOSTS.get(command.command):
        if host_arguments:
            parser.error(
                f"{command.command} {getattr(command, 'action', '')} does not know: {' '.join(host_arguments)}"
            )
        sys.exit(run(command))
    if not all(find_spec(name) for name in _EXTRA_HOST):
        sys.exit("The embedded host is not installed: pip install 'durable-agent-host[host]'")
    os.execv(sys.executable, [*_HOST, command.command, *host_arguments])  # noqa: S606 - this program, with its own arguments


_OF_HOSTS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "chat": run_chat_command,
    "sessions": run_session_command,
    "turns": run_turn_command,
    "import-threads": run_thread_command,
}
"""The commands that use the routes of a running host."""
