"""The command ``durable-agent-host``: starts the embedded host, manages sessions."""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final, NoReturn, cast

import click

from durable_agent_host.cli.chat_command import chat
from durable_agent_host.cli.host_client import CommandError, HostRoutes, host_command
from durable_agent_host.cli.sessions_command import sessions
from durable_agent_host.cli.turns_command import turns

_HOST = [sys.executable, "-m", "functions_host", "--called", "durable-agent-host", "start"]
_EXTRA_HOST: Final = ("httptools", "starlette", "uvicorn", "watchfiles")
"""What the extra ``host`` installs; other packages install some of it too, so each is checked."""


@click.command("start", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("host_arguments", nargs=-1, type=click.UNPROCESSED)
def _start(host_arguments: Sequence[str]) -> None:
    """Run a function app on the embedded host."""
    if not all(find_spec(name) for name in _EXTRA_HOST):
        sys.exit("The embedded host is not installed: pip install 'durable-agent-host[host]'")
    os.execv(sys.executable, [*_HOST, *host_arguments])  # noqa: S606 - this program, with its own arguments


@host_command(
    "import-threads",
    epilog="Exit status: 0 all was taken, 1 some was not, 2 the command could not be carried out. "
    "A thread whose session exists is left alone, so the command can be repeated.",
)
@click.option("--endpoint", required=True, help="of the project: https://….services.ai.azure.com/api/projects/…")
@click.option("--api-key", help="instead of the credential that azure-identity finds")
@click.option("--all", "is_all", is_flag=True, help="all threads of the project")
@click.argument("agent")
@click.argument("threads", metavar="[THREAD]...", nargs=-1)
def _import_threads(
    host: HostRoutes, *, endpoint: str, api_key: str | None, is_all: bool, agent: str, threads: Sequence[str]
) -> int:
    """Copy threads of the Azure AI Agents service into sessions of a running host.

    Any AGENT of the host continues them, with messages, steps and files. A THREAD's id becomes its session's.
    """
    if bool(threads) == is_all:
        raise CommandError("name threads by their ids, or give --all")
    try:
        from durable_agent_host.cli.threads_command import import_threads  # noqa: PLC0415 - no other command needs the SDK
    except ModuleNotFoundError:
        raise CommandError("the SDK is not installed: pip install 'durable-agent-host[azure-ai-agents]'") from None
    host.ask("/agents")
    return import_threads(host, agent, threads, endpoint=endpoint, api_key=api_key)


@click.group(commands=[_start, chat, sessions, turns, _import_threads])
@click.version_option(package_name="durable-agent-host", message="%(prog)s %(version)s")
def _cli() -> None:
    """Host agents durably, on this machine."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command.

    ``start`` replaces this process by the embedded host, so that signals reach it under the same process id.

    Raises:
        SystemExit: with the command's status; also when the arguments are invalid, or the embedded host is not
            installed.
    """
    for stream in cast("tuple[Any, ...]", (sys.stdout, sys.stderr)):
        stream.reconfigure(errors="replace")  # what a terminal's encoding lacks ends no command
    _cli.main(arguments, prog_name="durable-agent-host")
