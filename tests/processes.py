"""Real processes of tests: started, awaited until they are ready, killed or stopped; the one way for all of them.

What a process writes goes to a file in memory, so it never waits for the test to read.
"""

import os
import pty
import re
import signal
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from tests.forks import ROOT, Forked

READY_SECONDS = 120
STOP_SECONDS = 60
READY_LINE = re.compile(r"ready: (http://\S+).*\n")


class StartError(AssertionError):
    """A process ended, or its time was over, before it was ready; the message is what it wrote."""


def wait_until[T](poll: Callable[[], T], seconds: float = 60) -> T:
    """Call ``poll`` until it returns something true, less often the longer it takes; returns that."""
    started_at = time.monotonic()
    while not (seen := poll()):
        waited_seconds = time.monotonic() - started_at
        assert waited_seconds < seconds, f"waited {seconds} s in vain; last seen: {seen!r}"
        time.sleep(min(max(0.01, waited_seconds / 20), 0.1))
    return seen


class Process:
    """A process, ended with the block when used as a context.

    Args:
        command: a program and its arguments; with ``preload`` what follows ``python``: ``-m``, a module, its arguments.
        env: the whole environment; by default that of the tests.
        cwd: the working directory.
        log: the file to which stderr is appended; by default it goes where stdout goes.
        preload: modules already imported by the server of which the process is a fork, see `tests.forks`.
    """

    def __init__(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: Path = ROOT,
        log: Path | None = None,
        preload: tuple[str, ...] = (),
    ) -> None:
        self._output = os.memfd_create("output")
        weakref.finalize(self, os.close, self._output)
        errors = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666) if log else os.dup(self._output)
        try:
            options: dict[str, Any] = {"env": env, "cwd": cwd, "stdout": self._output, "stderr": errors}
            self.process = (
                Forked(command, preload=preload, **options) if preload else subprocess.Popen(command, **options)
            )
        finally:
            os.close(errors)

    @property
    def text(self) -> str:
        """All that it has written so far."""
        # Reading with an offset leaves the file's own alone: the process writes there.
        return os.pread(self._output, os.fstat(self._output).st_size, 0).decode(errors="replace")

    @property
    def output(self) -> list[str]:
        """The lines that it has written so far, with their ends."""
        return self.text.splitlines(keepends=True)

    def await_ready[T](self, poll: Callable[[], T | None]) -> T:
        """Call ``poll`` until it returns something true; returns that.

        Raises:
            StartError: the process ended before, or ``READY_SECONDS`` are over; it is killed then.
        """
        deadline = time.monotonic() + READY_SECONDS
        while not (seen := poll()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                if seen := poll():
                    break
                self.kill()
                raise StartError(self.text)
            time.sleep(0.005)
        return seen

    def kill(self) -> None:
        """End it with SIGKILL, as a crash does."""
        self.process.kill()
        self.process.wait()

    def stop(self, number: int = signal.SIGTERM) -> int:
        """End it with a signal; returns its exit status. One that does not end is killed, and the test fails."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            return self.process.wait(STOP_SECONDS)
        finally:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


class Server(Process):
    """A process that prints a line with its URL when it is ready; ``url`` has no slash at its end."""

    url = ""

    def __init__(self, *command: str, **more: Any) -> None:
        super().__init__(*command, **more)
        self.url = self.await_ready(lambda: READY_LINE.search(self.text))[1].rstrip("/")


class InTerminal:
    """A command in a pseudo-terminal of its own, killed with the block when used as a context.

    Attributes:
        process: of the command.
        terminal: the file descriptor of the side at which a person sits.
    """

    def __init__(self, *command: str, env: Mapping[str, str]) -> None:
        self.terminal, other = pty.openpty()
        options: dict[str, Any] = {"stdin": other, "stdout": other, "stderr": other, "cwd": ROOT, "env": env}
        try:
            self.process = subprocess.Popen(["setsid", "--ctty", *command], **options)
        finally:
            os.close(other)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
