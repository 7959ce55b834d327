"""The processes of demo and benchmarks: start, kill and stop them, and call them over HTTP."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

READY_SECONDS = 60.0
REQUEST_SECONDS = 120.0


class StartFailedError(Exception):
    """A process did not become ready; the message is its output."""


@dataclass
class Process:
    """A running process that serves HTTP.

    Attributes:
        url: URL on which it listens.
    """

    url: str
    _process: subprocess.Popen[bytes]

    @classmethod
    def start(
        cls, module: str, arguments: list[str], settings: dict[str, str] | None = None, *, without: tuple[str, ...] = ()
    ) -> "Process":
        """Start a Python module and wait until it prints its URL.

        Args:
            module: run with ``-m``.
            arguments: arguments of its command line.
            settings: environment variables to add.
            without: environment variables to remove.

        Returns:
            The process, ready.

        Raises:
            StartFailedError: the process ended, or was not ready within 60 s.
        """
        environment = {name: value for name, value in os.environ.items() if name not in without} | (settings or {})
        command = [sys.executable, "-m", module, *arguments]
        return cls._start(command, environment, _find_ready_url)

    @classmethod
    def start_func(cls, port: int, settings: dict[str, str]) -> "Process":
        """Start the Core Tools with the app of the working directory, and wait until its health can be asked.

        Args:
            port: to listen on; 0 for a free one.
            settings: environment variables to add.

        Raises:
            StartFailedError: the process ended, or was not ready within 60 s.
        """
        if not port:
            with socket.create_server(("127.0.0.1", 0)) as listener:
                port = listener.getsockname()[1]
        url = f"http://127.0.0.1:{port}"
        command = ["func", "start", "--port", str(port)]
        return cls._start(command, os.environ | settings, lambda _: url if _is_healthy(url) else None)

    @classmethod
    def _start(
        cls, command: list[str], environment: dict[str, str], find_url: Callable[[str], str | None]
    ) -> "Process":
        output = tempfile.TemporaryFile("w+b")  # noqa: SIM115 - the process writes to it for as long as it lives
        process = subprocess.Popen(  # noqa: S603 - our own modules, and the Core Tools
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        started = cls("", process)
        try:
            started.url = started._wait_until_ready(output, find_url)
        except BaseException:  # Ctrl-C included: nobody else knows the process
            started.kill()
            raise
        return started

    def _wait_until_ready(self, output: IO[bytes], find_url: Callable[[str], str | None]) -> str:
        deadline = time.monotonic() + READY_SECONDS
        command = self._process.args
        while time.monotonic() < deadline:
            output_text = _read(output)
            if url := find_url(output_text):
                return url
            if self._process.poll() is not None:
                raise StartFailedError(output_text.strip() or f"{command} ended with status {self._process.returncode}")
            time.sleep(0.02)
        raise StartFailedError(f"{command} was not ready after {READY_SECONDS:g} s: {_read(output).strip()}")

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def kill(self) -> None:
        """Send SIGKILL to the process and those that it has started, as a crash does."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Send SIGTERM to the same processes, and SIGKILL after 10 s."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGTERM)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


def _find_ready_url(output_text: str) -> str | None:
    found = re.search(r"ready: (\S+)", output_text)
    return found and found[1]


def _is_healthy(url: str) -> bool:
    try:
        get_json(f"{url}/api/health")
    except OSError:
        return False
    return True


def _read(output: IO[bytes]) -> str:
    return os.pread(output.fileno(), 1 << 20, 0).decode(errors="replace")


def post(url: str, text: str, content_type: str = "text/plain") -> tuple[int, dict[str, str], str]:
    """Send a POST request.

    Args:
        url: a loopback URL.
        text: body of the request.
        content_type: the body's media type.

    Returns:
        Status, headers with lower-case names, and body.
    """
    request = Request(url, data=text.encode(), headers={"content-type": content_type}, method="POST")  # noqa: S310
    try:
        with urlopen(request, timeout=REQUEST_SECONDS) as response:  # noqa: S310 - the demo's own URLs
            return (
                response.status,
                {name.lower(): value for name, value in response.headers.items()},
                response.read().decode(),
            )
    except HTTPError as error:
        with error:
            return error.code, {name.lower(): value for name, value in error.headers.items()}, error.read().decode()


def post_json(url: str, body: Any) -> None:
    """Send JSON to the practice model's control routes.

    Raises:
        StartFailedError: the model rejected it; the message has the reason.
    """
    status, _, response_text = post(url, json.dumps(body), "application/json")
    if status >= 400:  # noqa: PLR2004
        raise StartFailedError(f"the practice model rejected {body}: {response_text}")


def get_json(url: str) -> Any:
    """Return the parsed JSON body of a GET request to a loopback URL."""
    with urlopen(url, timeout=REQUEST_SECONDS) as response:  # noqa: S310 - the demo's own URLs
        return json.load(response)
