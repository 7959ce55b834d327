"""Host processes for tests: started on a free port, spoken to over loopback HTTP, ended by their pid."""

import contextlib
import json
import os
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.forks import HOST
from tests.processes import Process, StartError, wait_until

APPS = Path(__file__).parent / "apps"
MANAGEMENT = "/runtime/webhooks/durabletask"
READY = re.compile(r"Functions host ready: (http://\S+) \((\d+) functions, data in (.+)\)")


@dataclass
class Answer:
    """One HTTP answer."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def send(method: str, url: str, body: bytes | str | None = None, headers: Mapping[str, str] | None = None) -> Answer:
    """Send one request; error statuses are answers too."""
    data = body.encode() if isinstance(body, str) else body
    request = urllib.request.Request(url, data, dict(headers or {}), method=method)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return Answer(response.status, response.headers, response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, error.headers, error.read())


class Host(Process):
    """A host's process; ``url`` is empty when it ended before it was ready."""

    def __init__(self, app: Path, data: Path, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.app, self.data = app, data
        self.log = data.parent / f"{data.name}.log"
        command = ["-m", "functions_host", "start", "--app", str(app), "--data", str(data), *arguments]
        if "--port" not in arguments:
            command += ["--port", "0"]
        super().__init__(*command, env={**os.environ, **(env or {})}, log=self.log, preload=HOST)
        with contextlib.suppress(StartError):
            self.await_ready(lambda: "\n" in self.text)
        self.first_line = self.text.partition("\n")[0]
        ready = READY.match(self.first_line)
        self.url = ready[1] if ready else ""

    def send(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Answer:
        """Send a request to this host; ``_`` in header names stands for ``-``."""
        header_fields = {name.replace("_", "-"): value for name, value in headers.items()}
        return send(method, self.url + path, body, header_fields)

    def run(self, name: str, value: Any = None, instance_id: str = "") -> str:
        """Start an orchestration as the Python client does; returns its id."""
        body = None if value is None else json.dumps(json.dumps(value))
        answer = self.send("POST", f"{MANAGEMENT}/orchestrators/{name}/{instance_id}".rstrip("/"), body)
        assert answer.status == 202, answer.text
        return answer.json["id"]

    def status(self, instance_id: str, query: str = "") -> Any:
        """Read the status of an instance."""
        return self.send("GET", f"{MANAGEMENT}/instances/{instance_id}{query}").json

    def wait(self, instance_id: str) -> Any:
        """Wait for the end of an instance; returns its status."""
        terminal_statuses = {"Completed", "Failed", "Terminated"}
        return wait_until(lambda: (s := self.status(instance_id))["runtimeStatus"] in terminal_statuses and s)

    def result(self, name: str, value: Any = None) -> Any:
        """Run an orchestration to its end; returns its output."""
        status = self.wait(self.run(name, value))
        assert status["runtimeStatus"] == "Completed", status
        return status["output"]


type StartHost = Callable[..., Host]


@pytest.fixture(scope="session")
def _hosts() -> Iterator[list[Host]]:
    hosts: list[Host] = []
    yield hosts
    for host in hosts:
        host.kill()


@pytest.fixture(autouse=True)
def _end_hosts_of_test(_hosts: list[Host]) -> Iterator[None]:
    """End what the test itself has started; hosts of fixtures with a wider scope were there before it."""
    count = len(_hosts)
    yield
    while len(_hosts) > count:
        _hosts.pop().kill()


@pytest.fixture(scope="session")
def start_host(_hosts: list[Host]) -> StartHost:
    """Start host processes that end with the test, or with the session where a fixture has started them."""

    def start(app: Path | str, data: Path, *arguments: str, env: Mapping[str, str] | None = None) -> Host:
        host = Host(APPS / app, data, *arguments, env=env)
        _hosts.append(host)
        assert host.url, f"not ready: {host.first_line}{host.log.read_text()}"
        return host

    return start


@pytest.fixture(scope="session")
def host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """One host with the sample app for all tests that leave it as it is."""
    running = start_host("sample", tmp_path_factory.mktemp("sample") / "data")
    yield running
    running.stop()
