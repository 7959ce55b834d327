"""The command ``durable-agent-host``: starts the embedded host, manages sessions."""

import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final, NoReturn, cast

import click

from durable_agent_host.cli.chat_command import chat
from durable_agent_host.cli.dev_command import dev
from durable_agent_host.cli.eval_command import evaluate
from durable_agent_host.cli.host_command import HINT
from durable_agent_host.cli.init_command import init
from durable_agent_host.cli.sessions_command import sessions

_HOST = [sys.executable, "-m", "functions_host", "--called", "durable-agent-host", "start"]
_EXTRA_HOST: Final = ("httptools", "starlette", "uvicorn", "watchfiles")
"""What the extra ``host`` installs; other packages install some of it too, so each is checked."""


@click.command("start", add_help_option=False, context_settings={"ignore_unknown_options": True})
@click.argument("host_arguments", nargs=-1, type=click.UNPROCESSED)
def _start(host_arguments: Sequence[str]) -> None:
    """Run a function app on the embedded host."""
    if not all(find_spec(name) for name in _EXTRA_HOST):
        sys.exit("The embedded host is not installed: pip install 'durable-agent-host[host]'")
    os.environ |= HINT
    os.execv(sys.executable, [*_HOST, *host_arguments])  # noqa: S606 - this program, with its own arguments


@click.group(commands=[init, _start, dev, chat, sessions, evaluate])
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
