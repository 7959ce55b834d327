"""The command ``durable-agent-host``: starts the embedded host, manages sessions."""

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Final, NoReturn

from durable_agent_host.cli.chat import add_chat_command, run_chat_command
from durable_agent_host.cli.import_threads import add_thread_command, run_thread_command
from durable_agent_host.cli.sessions import add_session_commands, run_session_command
from durable_agent_host.cli.turns import add_turn_commands, run_turn_command

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
        if found := re.fullmatch(r"argument (\S+): invalid choice: '(.*?)' \(choose from (.*)\)", message):
            known = re.findall(r"[\w-]+", found[3])
            close = "".join(f" (did you mean {name}?)" for name in difflib.get_close_matches(found[2], known, n=1))
            message = f"there is no {found[1]} {found[2]!r}{close}, only {', '.join(known)}"
        self.exit(2, f"Error: {message[0].upper()}{message[1:]}; see {self.prog} --help.\n")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command.

    ``start`` replaces this process by the embedded host, so that signals reach it under the same process id.

    Args:
        arguments: of the command line, without the program's name.

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
    command, rest = parser.parse_known_args(arguments)
    if run := _OF_HOSTS.get(command.command):
        if rest:
            parser.error(f"{command.command} {getattr(command, 'action', '')} does not know: {' '.join(rest)}")
        sys.exit(run(command))
    if not all(find_spec(name) for name in _EXTRA_HOST):
        sys.exit("The embedded host is not installed: pip install 'durable-agent-host[host]'")
    os.execv(sys.executable, [*_HOST, command.command, *rest])  # noqa: S606 - this program, with its own arguments


_OF_HOSTS: Final[Mapping[str, Callable[[argparse.Namespace], int]]] = {
    "chat": run_chat_command,
    "sessions": run_session_command,
    "turns": run_turn_command,
    "import-threads": run_thread_command,
}
"""The commands that use the routes of a running host."""
