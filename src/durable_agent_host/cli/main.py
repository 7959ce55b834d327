"""The command ``durable-agent-host``: start the embedded host, look after sessions."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NoReturn

from durable_agent_host.cli.sessions import add_session_commands, run_session_command


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command.

    ``start`` replaces this process by the embedded host, so that signals reach it under the same process id.

    Args:
        arguments: of the command line, without the program's name.

    Raises:
        SystemExit: with the command's status; the arguments make no sense, or the embedded host is not installed.
    """
    parser = argparse.ArgumentParser(prog="durable-agent-host", description="Host agents durably, on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("start", help="run a function app on the embedded host", add_help=False)
    add_session_commands(commands)
    command, rest = parser.parse_known_args(arguments)
    if command.command == "sessions":
        if rest:
            parser.error(f"sessions {command.action} does not know: {' '.join(rest)}")
        sys.exit(run_session_command(command))
    if find_spec("azure_functions_runtime") is None:
        sys.exit("The embedded host is not installed: pip install 'durable-agent-host[host]'")
    os.execv(sys.executable, [sys.executable, "-m", "functions_host", command.command, *rest])  # noqa: S606 - this program, with its own arguments
