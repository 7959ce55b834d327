"""The audit of what is locked: findings fail it, and what nobody answered for is never called clean."""

import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tests.house.source import ROOT
from tests.kit_services import refusing_port

ADVISORY = {
    "id": "OSV-1",
    "aliases": ["CVE-1"],
    "summary": "An advisory.",
    "affected": [
        {
            "package": {"name": "urllib3", "ecosystem": "PyPI"},
            "ranges": [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, {"fixed": "99.1"}]}],
        }
    ],
}


@pytest.fixture(scope="module", autouse=True)
def _auditor() -> None:
    """The tool itself, as ``./scripts/audit`` has installed it."""
    if not (ROOT / ".venv/supply/bin/pip-audit").exists():
        pytest.skip("pip-audit is not here: ./scripts/audit installs it")


@contextmanager
def _advisories(answer: Callable[[str], dict[str, Any] | None]) -> Iterator[str]:
    """A service with OSV's API; it gives its URL. No answer is a failure of the service."""

    class Service(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            found = answer(body["package"]["name"])
            self.send_response(503 if found is None else 200)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_: object) -> None:
            """Keep quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Service) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.01])
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/query"
        finally:
            server.shutdown()
            thread.join()


def _audit(url: str, *options: str) -> tuple[int, str]:
    python, script = ROOT / ".venv/supply/bin/python", ROOT / "scripts/supply/audit.py"
    command = [str(python), str(script), "-s", "osv", "--osv-url", url, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not done.stderr, done.stderr
    return done.returncode, done.stdout


def test_a_finding_fails_the_audit():
    """It names package, version, advisory and the version that has the fix, once, and every package is asked about."""
    package_names: list[str] = []

    def answer(name: str) -> dict[str, Any]:
        package_names.append(name)
        return {"vulns": [ADVISORY]} if name == "urllib3" else {}

    with _advisories(answer) as url:
        status, output = _audit(url, "--allow-unchecked")
    [finding, summary] = output.splitlines()
    assert status == 1
    assert finding.startswith("urllib3 ")
    assert finding.endswith(": CVE-1 OSV-1, fixed in 99.1")
    assert summary == f"{len(package_names)} packages checked, 1 with findings"
    assert {"agent-framework-core", "redis", "pip-audit"} <= set(package_names)  # deployed, of an extra, a tool
    assert len(package_names) == len(set(package_names))


def test_no_service_has_checked_nothing():
    """Without a network the audit passes where that is allowed, and says what it has not checked."""
    with refusing_port() as port:
        status, output = _audit(f"http://127.0.0.1:{port}/v1/query", "--allow-unchecked")
    assert status == 0
    assert output.startswith("not checked: ")
    assert output.endswith("\n0 packages checked, 0 with findings\n")
