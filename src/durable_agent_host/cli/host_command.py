"""Commands that use a running host: their options, their client, and how they exit."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from functools import wraps
from http import HTTPStatus
from typing import IO, Any, Final, NoReturn, cast
from urllib.parse import urlsplit

import click

from durable_agent_host.agent_client import AgentClient
from durable_agent_host.errors import AgentClientError

DEFAULT_URL: Final = "http://127.0.0.1:7071"
HINT: Final = {"FUNCTIONS_HOST_HINT": "Inspector: {}/inspector\nAgents:    curl {}/agents"}
"""What the embedded host prints at its start, as a variable of its environment."""
OK: Final = 0
PROBLEMS_FOUND: Final = 1
COULD_NOT: Final = 2
INTERRUPTED: Final = 130
"""The exit status of a command ended by Ctrl-C, as in shells."""
CLOSED_PIPE: Final = 141
"""The exit status when nobody reads the output any more, as shells report it of other programs."""

_READY: Final = re.compile(r"ready: (http://\S+)")
_PICTURES: Final = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **{code: f"\\x{code:02x}" for code in range(0x80, 0xA0)},
    **{code: f"\\u{code:04x}" for code in (0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


def printable(text: str) -> str:
    """Make a text harmless for a terminal: control characters are shown, not executed.

    Returns:
        The text with line breaks and tabs; other control characters as pictures, and characters that change the writing
        direction as their code.
    """
    return text.replace("\r\n", "\n").translate(_PICTURES)


class CommandError(click.ClickException):
    """The command failed; the message says why and what to do."""

    exit_code = COULD_NOT

    def format_message(self) -> str:
        """Return the sentence, harmless for a terminal."""
        return printable(self.message)


class RunningHost:
    """A client of a running host, for code that is not async: each call runs the event loop until it is done.

    Args:
        client: of the host.
        runner: runs its calls.
        options: which another command for the same host and caller needs, without the key.
    """

    def __init__(self, client: AgentClient, runner: asyncio.Runner, options: str) -> None:
        self.client = client
        self.options = options
        self._runner = runner

    def run[T](self, call: Coroutine[Any, Any, T]) -> T:
        """Return the result of a call of the client."""
        return self._runner.run(call)

    def each[T](self, items: AsyncGenerator[T]) -> Iterator[T]:
        """Iterate over what the client yields."""
        try:
            while (item := self._runner.run(_next(items))) is not None:
                yield item
        finally:
            self._runner.run(items.aclose())


async def _next[T](items: AsyncGenerator[T]) -> T | None:
    return await anext(items, None)


def host_command(name: str, **settings: Any) -> Callable[[Callable[..., int]], click.Command]:
    """Make a command that uses a running host: of a function that takes it and returns the exit status."""

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
            url_option = "" if url == DEFAULT_URL else f" --url {shlex.quote(url)}"
            options = url_option + "".join(f" --header {shlex.quote(header)}" for header in headers)
            client = AgentClient(_checked_url(url), key=key, headers=dict(map(_parse_header, headers)))
            with asyncio.Runner() as runner:
                try:
                    status = run(RunningHost(client, runner, options), **arguments)
                    sys.stdout.flush()
                except AgentClientError as error:
                    hint = " Give this command the key: --key KEY" if error.status == HTTPStatus.UNAUTHORIZED else ""
                    raise CommandError(f"{error}{hint}") from None
                except BrokenPipeError:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python flushes at its end, too
                    status = CLOSED_PIPE
                except KeyboardInterrupt:
                    status = INTERRUPTED
                finally:
                    runner.run(client.aclose())
            sys.exit(status)

        return command

    return make_command


def _checked_url(url: str) -> str:
    try:
        address = urlsplit(url)
    except ValueError:
        address = urlsplit("")
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise CommandError(f"--url is {url!r}: give the host's URL, such as {DEFAULT_URL}")
    return url


def _parse_header(header: str) -> tuple[str, str]:
    name, colon, value = (part.strip() for part in header.partition(":"))
    if not name or not colon:
        raise CommandError("--header has no colon: give 'NAME: VALUE', such as 'Authorization: Bearer TOKEN'")
    return name, value


def start_module(
    arguments: Sequence[str], environment: Mapping[str, str], stderr: IO[str] | None = None
) -> subprocess.Popen[str]:
    """Start a module of this project's, whose output is to be read."""
    command = [sys.executable, "-m", *arguments]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=stderr, text=True)  # noqa: S603 - our own modules


def read_urls(process: subprocess.Popen[str], *, show: bool = False) -> Iterator[str]:
    """Yield the URL of each start, until the process closes its output, which is shown or not."""
    for line in cast("IO[str]", process.stdout):
        if show:
            sys.stdout.write(line)
            sys.stdout.flush()
        if match := _READY.search(line):
            yield match[1]
