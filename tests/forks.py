"""Processes of Python modules that start in a fraction of their imports' time.

A server process imports what every host imports, once for all workers of a run; each process that a test asks for is a
fork of it. It is a process of its own, with the environment, the folder and the output that the test gives, and dies of
SIGKILL like any other. What a fork cannot show, a start from nothing with its own environment at import time, has tests
of its own (`tests/functions_host/test_start.py`), which do not come here.
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
import weakref
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HOST = (
    *("functions_host.cli", "functions_host.host", "functions_host.app.loader", "azure.durable_functions"),
    *("azure_functions_runtime.handle_event", "azure_functions_runtime.native_invocation", "uvicorn.lifespan.off"),
)
"""What each host imports before it looks at its app; nothing here changes how an app without agents behaves."""
AGENTS = (
    *(*HOST, "durable_agent_host.app", "durable_agent_host.turn_log.sqlite_log", "tests.stand_ins.server"),
    *("agent_framework_openai", "agent_framework_anthropic", "agent_framework_gemini", "azure.ai.agents.aio"),
    *(
        f"durable_agent_host.providers.{name}.provider"
        for name in ("openai", "chat_completions", "anthropic", "gemini")
    ),
    *("openai.resources.responses.responses", "httpcore", "httpcore2", "truststore", "tests.warm"),
    *("agent_framework_openai._chat_client", "agent_framework._mcp", "agent_framework._harness._tool_approval"),
)
"""What a host of agents imports as well."""
STORES = (
    *("tests.contract.test_segments", "durable_agent_host.encryption.encrypted_turn_log"),
    *("durable_agent_host.turn_log.sqlite_log", "durable_agent_host.turn_log.redis_log"),
    *("durable_agent_host.turn_log.blob.log", "durable_agent_host.segments.sqlite_store"),
    "durable_agent_host.segments.blob_store",
)
"""What a process imports that writes to stores of turn logs and blobs."""

_ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
"""Before any test has changed it: a server's own is for all tests of the run. It keeps the bytecode that it makes."""


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
        self._exit_lock = threading.Lock()
        self._read = b""
        environment = os.environ if env is None else env
        self._connection = _Server.of(preload).fork(self.args, environment, cwd, stdout, stderr)
        weakref.finalize(self, self._connection.close)  # of a process that nobody waits for
        self.pid = int(self._read_line(None) or 0)
        assert self.pid, "the server of forks has died"

    def poll(self) -> int | None:
        """Give the exit status if it has ended; a signal's number is negative."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most so many seconds; gives the exit status."""
        with self._exit_lock:
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
    """A connection to the process that forks, which all workers of a run share; it ends with the last of them."""

    def __init__(self, preload: tuple[str, ...]) -> None:
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or str(os.getpid())
        name = f"\0forks-{run}-{zlib.crc32(' '.join(preload).encode())}"
        found = self._connect(name, preload) or self._connect(name, preload)
        assert found, "the server of forks did not start"
        self._socket = found
        self._sending = threading.Lock()
        atexit.register(self._socket.close)

    @staticmethod
    def _connect(name: str, preload: tuple[str, ...]) -> socket.socket | None:
        """Connect to the server of this name, or start it; None when it has ended meanwhile."""
        with socket.socket(socket.AF_UNIX) as door, contextlib.suppress(OSError):
            door.bind(name)  # fails where there is one
            door.listen()
            command = [sys.executable, "-m", "tests.forks", str(door.fileno()), *preload]
            subprocess.run(command, cwd=ROOT, env=_ENVIRONMENT, pass_fds=[door.fileno()], check=True)
        connection = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(ConnectionError):
            connection.connect(name)
            if connection.recv(1):
                return connection
        connection.close()
        return None

    @classmethod
    @functools.cache
    def of(cls, preload: tuple[str, ...]) -> "_Server":
        """Give the server that has imported this; start it when it is first asked for."""
        return cls(preload)

    def fork(self, arguments: list[str], env: Mapping[str, str], cwd: Path, stdout: int, stderr: int) -> socket.socket:
        """Start a process; what comes through the socket are two lines: its id, and later its exit status."""
        connection, remote = socket.socketpair()
        request = json.dumps({"arguments": arguments, "env": dict(env), "cwd": str(cwd)}).encode()
        with remote, self._sending:
            socket.send_fds(self._socket, [len(request).to_bytes(4)], [remote.fileno(), stdout, stderr])
            self._socket.sendall(request)
        return connection


def serve(door: socket.socket) -> None:
    """Fork whenever a worker asks; tell it how each process ends; return when the last worker has gone."""
    with selectors.DefaultSelector() as selector:
        selector.register(door, selectors.EVENT_READ)
        workers = 0
        while True:
            for key, _ in selector.select():
                if key.fileobj is door:
                    worker, _ = door.accept()
                    worker.sendall(b"!")
                    selector.register(worker, selectors.EVENT_READ)
                    workers += 1
                elif isinstance(key.fileobj, int):
                    _report_exit(selector, key)
                elif not _answer(key.fileobj, selector):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    workers -= 1
                    if not workers:
                        return


def _answer(worker: socket.socket, selector: selectors.BaseSelector) -> bool:
    """Fork as a worker asks; False when it has gone."""
    try:
        head, files, _, _ = socket.recv_fds(worker, 4, 3)
    except ConnectionError:
        return False
    if head:
        request = json.loads(_read_exactly(worker, int.from_bytes(head)))
        with socket.socket(fileno=files[0]) as reply:
            _fork(request, files, selector, reply)
    return bool(head)


def _read_exactly(control: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        read += control.recv(size - len(read))
    return read


def _fork(request: dict, files: list[int], selector: selectors.BaseSelector, reply: socket.socket) -> None:
    pid = os.fork()
    if pid == 0:
        selector.close()
        reply.close()
        _become(request, *files[1:])
    for file in files[1:]:
        os.close(file)
    reply.sendall(f"{pid}\n".encode())
    selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, reply.dup()))


def _report_exit(selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
    pid, reply = key.data
    selector.unregister(key.fileobj)
    os.close(key.fd)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with reply, contextlib.suppress(OSError):
        reply.sendall(f"{status}\n".encode())


def _become(request: dict, stdout: int, stderr: int) -> None:
    """Be the process that was asked for, to its end."""
    status = 1
    try:
        with Path(os.devnull).open("rb") as nothing:
            os.dup2(nothing.fileno(), 0)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        os.closerange(3, 65536)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.environ.clear()
        os.environ.update(request["env"])
        sys.dont_write_bytecode = "PYTHONDONTWRITEBYTECODE" in os.environ
        os.chdir(request["cwd"])
        flag, module, *arguments = request["arguments"]
        assert flag == "-m", flag
        sys.argv = [module, *arguments]
        python_path = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        sys.path[:1] = [request["cwd"], *(folder for folder in python_path if folder and folder not in sys.path)]
        for constant, value in json.loads(os.environ.pop("TEST_CONSTANTS", "{}")).items():
            module_name, _, name = constant.partition(":")
            setattr(importlib.import_module(module_name), name, value)
        if plan := os.environ.pop("DURABLE_AGENT_HOST_CRASH", ""):
            importlib.import_module("tests.durable_agent_host.crash.points").arm(plan)
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
    """Import what was asked for, then serve, in a process for which nobody has to wait."""
    if os.fork():
        os._exit(0)
    door = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the tests, and they end this
    for name in sys.argv[2:]:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    serve(door)


if __name__ == "__main__":
    main()
