"""A hostile page in a real browser: from another origin, and under a name that was made to lead to the host."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.browser import CHROMIUM, Page, open_browser
from tests.functions_host.conftest import MANAGEMENT, Host, StartHost

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
SETTINGS = {"EVERY_SECOND": "* * * * * *", "AzureWebJobs.switched_off.Disabled": "true"}
START = f"{MANAGEMENT}/orchestrators/order/foreign"
MCP = "/runtime/webhooks/mcp"
CALLS = [
    ("POST", START, '"tea"'),
    ("POST", "/api/orders/tea", ""),
    ("POST", f"{MANAGEMENT}/entities/counter/a?op=reset", ""),
    ("POST", MCP, '{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}'),
    ("GET", f"{MANAGEMENT}/instances", None),
    ("GET", "/api/guarded", None),
    ("GET", "/admin/functions", None),
]


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>here</title><p id=state>ready</p>")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def other_origin() -> Iterator[str]:
    """The address of a page that the host has not served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Empty)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def model(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """A host with an app that has functions of every level, orchestrations and tools."""
    running = start_host("model", tmp_path_factory.mktemp("model") / "data", "-v", env=SETTINGS)
    yield running
    running.stop()


async def fetch(page: Page, method: str, url: str, body: str | None, mode: str) -> str:
    """Fetch from a page; gives the status, the text when it can be read, or that it failed."""
    options = json.dumps({"method": method, "mode": mode, "body": body})
    return await page.evaluate(
        f"fetch({json.dumps(url)}, {options})"
        ".then(async answer => answer.type + ' ' + answer.status + ' ' + await answer.text(), error => 'failed')"
    )


def instances(host: Host) -> set[str]:
    """The orchestrations that the host has."""
    return {record["instanceId"] for record in host.send("GET", f"{MANAGEMENT}/instances").json}


async def test_a_page_of_another_origin_can_do_nothing(model: Host, other_origin: str, tmp_path: Path):
    """Neither simple requests, forms, frames nor links of such a page read or change anything; the host saw them."""
    before = instances(model)
    port = model.url.rpartition(":")[2]
    async with open_browser(other_origin, tmp_path / "browser") as page:
        await page.until("state", lambda text: text == "ready")
        for origin in [model.url, f"http://localhost:{port}"]:
            for method, path, body in CALLS:
                assert await fetch(page, method, origin + path, body, "cors") == "failed", path
                assert (await fetch(page, method, origin + path, body, "no-cors")).strip() == "opaque 0", path
        await page.evaluate(
            f"""new Promise(done => {{
                const frame = document.createElement('iframe'); frame.name = 'in';
                document.body.append(frame);
                const form = document.createElement('form');
                form.method = 'post'; form.target = 'in'; form.enctype = 'text/plain';
                form.action = {json.dumps(model.url + START)};
                document.body.append(form); frame.onload = done; form.submit(); }}).then(() => 1)"""
        )
        await page.evaluate(f"location = {json.dumps(model.url + '/api/orders/tea')}; 1")
        await asyncio.sleep(0.5)
    assert instances(model) == before
    seen = [line.partition("middleware: ")[2] for line in model.log.read_text().splitlines() if "middleware: " in line]
    for method, path, _ in CALLS:
        bare = path.partition("?")[0]
        statuses = [line.split()[2] for line in seen if line.startswith(f"{method} {bare} ")]
        assert statuses.count("403") >= 4, path
        assert "202" not in statuses, path


async def test_a_name_that_leads_here_is_no_way_in(model: Host, tmp_path: Path):
    """Of a page under a rebound name, all requests are of one origin; the host does not answer to the name."""
    before = instances(model)
    port = model.url.rpartition(":")[2]
    rule = "--host-resolver-rules=MAP evil.example 127.0.0.1"
    async with open_browser(f"http://evil.example:{port}/nothing", tmp_path / "browser", rule) as page:
        async with asyncio.timeout(30):
            while "evil.example" not in (await page.evaluate("document.body?.innerText ?? ''")):
                await asyncio.sleep(0.05)
        for method, path, body in CALLS:
            answer = await fetch(page, method, path, body, "cors")
            assert answer.startswith("basic 421 "), (path, answer)
    assert instances(model) == before
