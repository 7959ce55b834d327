"""Processes of Python modules that start in a fraction of their imports' time.

A server process imports what every host imports, once; each process that a test asks for is a fork of it. It is a
process of its own, with the environment, the folder and the output that the test gives, and dies of SIGKILL like any
other. What a fork cannot show, a start from nothing with its own environment at import time, has tests of its own
(`tests/functions_host/test_start.py`), which do not come here.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST = (
    *("functions_host.cli", "functions_host.host", "functions_host.app.loader", "azure.durable_functions"),
    *("azure_functions_runtime.handle_event", "azure_functions_runtime.native_invocation", "uvicorn.lifespan.off"),
)
"""What each host imports before it looks at its app; nothing here changes how an app without agents behaves."""
AGENTS = (
    *(*HOST, "durable_agent_host.app", "durable_agent_host.turn_log.sqlite.log", "practice_model"),
    *("agent_framework_openai", "agent_framework_anthropic", "agent_framework_gemini", "azure.ai.agents.aio"),
    *(
        f"durable_agent_host.providers.{name}.provider"
        for name in ("openai", "chat_completions", "anthropic", "gemini")
    ),
    *("openai.resources.responses.responses", "httpcore", "httpcore2", "truststore", "tests.warm"),
)
"""What a host of agents imports as well."""


class Forked:
    """One process, with the part of `subprocess.Popen` that tests use.

    Args:
        arguments: as after ``python``: ``-m``, a module, and what it is given.
        env: the whole environment; by default that of the tests.
        cwd: the working directory.
        stdout: a file descriptor.
        stderr: a file descriptor.
        preload: what its server has imported.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        env: Mapping[str, str] | None,
        cwd: Path,
        stdout: int,
        stderr: int,
        preload: tuple[str, ...],
    ) -> None:
        self.args = list(arguments)
        self.returncode: int | None = None
        self._ended = threading.Lock()
        self._read = b""
        environment = os.environ if env is None else env
        self._connection = _Server.of(preload).fork(self.args, environment, cwd, stdout, stderr)
        self.pid = int(self._read_line(None) or 0)
        assert self.pid, "the server of forks has died"

    def poll(self) -> int | None:
        """Give the exit status if it has ended; a signal's number is negative."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most so many seconds; gives the exit status."""
        with self._ended:
            if self.returncode is None:
                line = self._read_line(timeout)
                self.returncode = int(line) if line else -signal.SIGKILL
                self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send it a signal, if it has not ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def kill(self) -> None:
        """End it with SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            if self.returncode is None:
                os.kill(self.pid, signal.SIGKILL)

    def _read_line(self, timeout: float | None) -> str:
        self._connection.settimeout(timeout if timeout is None else max(timeout, 0.001))
        try:
            while b"\n" not in self._read and (more := self._connection.recv(64)):
                self._read += more
        except TimeoutError:
            raise subprocess.TimeoutExpired(self.args, timeout or 0) from None
        line, _, self._read = self._read.partition(b"\n")
        return line.decode()


class _Server:
    """The process that forks; it ends with the one that started it."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.forks", str(theirs.fileno()), *preload],
                cwd=ROOT,
                pass_fds=[theirs.fileno()],
            )
        self._socket = ours
        self._sending = threading.Lock()
        atexit.register(self._close)

    @classmethod
    @functools.cache
    def of(cls, preload: tuple[str, ...]) -> "_Server":
        """Give the server that has imported this; start it when it is first asked for."""
        return cls(preload)

    def fork(self, arguments: list[str], env: Mapping[str, str], cwd: Path, stdout: int, stderr: int) -> socket.socket:
        """Start a process; what comes through the socket are two lines: its id, and later its exit status."""
        ours, theirs = socket.socketpair()
        wanted = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(cwd)}).encode()
        with theirs, self._sending:
            socket.send_fds(self._socket, [len(wanted).to_bytes(4)], [theirs.fileno(), stdout, stderr])
            self._socket.sendall(wanted)
        return ours

    def _close(self) -> None:
        self._socket.close()
        self._process.wait()


def serve(control: socket.socket) -> None:
    """Fork whenever the other side asks; tell it how each process ends."""
    with selectors.DefaultSelector() as selector:
        selector.register(control, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is control:
                    head, files, _, _ = socket.recv_fds(control, 4, 3)
                    if not head:
                        return
                    wanted = json.loads(_read_exactly(control, int.from_bytes(head)))
                    with socket.socket(fileno=files[0]) as reply:
                        _fork(wanted, files, selector, control, reply)
                else:
                    _tell_end(selector, key)


def _read_exactly(control: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        read += control.recv(size - len(read))
    return read


def _fork(wanted: dict, files: list[int], selector: selectors.BaseSelector, control: socket.socket, reply) -> None:
    pid = os.fork()
    if pid == 0:
        selector.close()
        control.close()
        reply.close()
        _become(wanted, *files[1:])
    for file in files[1:]:
        os.close(file)
    reply.sendall(f"{pid}\n".encode())
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply.dup()))


def _tell_end(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, reply = key.data
    selector.unregister(key.fileobj)
    os.close(key.fd)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with reply, contextlib.suppress(OSError):
        reply.sendall(f"{status}\n".encode())


def _become(wanted: dict, stdout: int, stderr: int) -> None:
    """Be the process that was asked for, to its end."""
    status = 1
    try:
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.closerange(3, 256)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(wanted["env"])
        os.chdir(wanted["cwd"])
        flag, module, *arguments = wanted["arguments"]
        assert flag == "-m", flag
        sys.argv = [module, *arguments]
        sys.path[0] = wanted["cwd"]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1 if end.code else 0
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Import what was asked for, then serve until the other side is gone."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end this
    serve(control)


if __name__ == "__main__":
    main()
