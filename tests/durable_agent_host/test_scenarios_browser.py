"""The example's page in a real browser: text grows, and goes on after the host was killed."""

import asyncio
import contextlib
import itertools
import json
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.kit import ROOT, AgentHost, PracticeModel, start_host

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ANSWER = "It rains, größer 😀 than ever, and nobody minds. " * 6

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


class Page:
    """A page of a headless browser, told what to do over the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def evaluate(self, expression: str) -> Any:
        """Give the value of an expression."""
        number = next(self._numbers)
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        await self._socket.send_json({"id": number, "method": "Runtime.evaluate", "params": parameters})
        while (message := await self._socket.receive_json()).get("id") != number:
            pass
        return message["result"]["result"].get("value")

    async def text(self, name: str) -> str:
        """Give the text of an element; nothing before the page is there."""
        return await self.evaluate(f"document.getElementById({json.dumps(name)})?.textContent ?? ''")

    async def until(self, name: str, wanted: Any) -> list[str]:
        """Look at an element until its text is wanted; gives the texts seen, each once."""
        seen = [await self.text(name)]
        async with asyncio.timeout(60):
            while not wanted(seen[-1]):
                await asyncio.sleep(0.02)
                if (now := await self.text(name)) != seen[-1]:
                    seen.append(now)
        return seen


@contextlib.asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[Page]:
    """A browser that shows a page."""
    assert CHROMIUM is not None
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--remote-debugging-port=0",
    ]
    browser = subprocess.Popen(
        [CHROMIUM, *options, "--remote-debugging-port=0", f"--user-data-dir={folder}", url],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(60), aiohttp.ClientSession() as http:
            while not (folder / "DevToolsActivePort").exists():
                await asyncio.sleep(0.05)
            port = (folder / "DevToolsActivePort").read_text().split()[0]
            async with http.get(f"http://127.0.0.1:{port}/json") as answer:
                (page,) = [one for one in await answer.json() if one["type"] == "page"]
            socket = await http.ws_connect(page["webSocketDebuggerUrl"])
            async with socket:
                yield Page(socket)
    finally:
        browser.kill()
        browser.wait()


async def test_a_page_shows_text_as_it_grows_and_comes_back(model: PracticeModel, tmp_path: Path):
    """The page shows more and more of the answer, loses its host, and has the whole answer when the host is back."""
    model.plan({"text": ANSWER, "chunk_characters": 5, "delay_milliseconds": 40}, times=None)

    def start(port: int) -> AgentHost:
        return start_host(tmp_path / "data", model, app=ROOT / "examples" / "chat", port=port)

    host = start(0)
    try:
        async with opened(f"{host.url}/api/chat", tmp_path / "browser") as page:
            await page.until("state", lambda text: text == "ready")
            await page.evaluate("document.forms[0].message.value = 'How is it?'; document.forms[0].requestSubmit()")
            seen = await page.until("answer", lambda text: len(text) > 40)
            assert len(seen) > 3
            assert all(ANSWER.startswith(text) for text in seen)
            host.kill()
            await page.until("state", lambda text: "coming back" in text)
            host = start(int(host.url.rpartition(":")[2]))
            await page.until("state", lambda text: text.startswith("turn.completed"))
            assert await page.text("answer") == ANSWER
    finally:
        host.kill()
