"""A headless Chromium for tests, told what to do over the DevTools protocol."""

import asyncio
import contextlib
import itertools
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.processes import Process

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page:
    """A page of a headless browser, told what to do over the DevTools protocol."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)

    async def evaluate(self, expression: str) -> Any:
        """Give the value of an expression, or raise what it throws; a page that another one replaces is asked again."""
        parameters = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        async with asyncio.timeout(60):
            while (answer := await self.send_command("Runtime.evaluate", **parameters)) is None:
                await asyncio.sleep(0.05)
        assert "exceptionDetails" not in answer, answer["result"].get("description", answer["result"])
        return answer["result"].get("value")

    async def click(self, selector: str) -> None:
        """Click on the first element that a selector finds, as soon as there is one."""
        click = f"((one) => one !== null && (one.click(), true))(document.querySelector({json.dumps(selector)}))"
        async with asyncio.timeout(60):
            while not await self.evaluate(click):
                await asyncio.sleep(0.02)

    async def send_command(self, method: str, **parameters: Any) -> dict[str, Any] | None:
        """Call a method of the DevTools protocol; gives its result, or None when the page has gone meanwhile."""
        number = next(self._numbers)
        await self._socket.send_json({"id": number, "method": method, "params": parameters})
        while (message := await self._socket.receive_json()).get("id") != number:
            pass
        return message.get("result")

    async def text(self, name: str) -> str:
        """Give the text of an element; nothing before the page is there."""
        return await self.evaluate(f"document.getElementById({json.dumps(name)})?.textContent ?? ''")

    async def until(self, name: str, is_expected: Any) -> list[str]:
        """Look at an element until its text is wanted; gives the texts seen, each once."""
        seen = [await self.text(name)]
        try:
            async with asyncio.timeout(60):
                while not is_expected(seen[-1]):
                    await asyncio.sleep(0.02)
                    if (now := await self.text(name)) != seen[-1]:
                        seen.append(now)
        except TimeoutError:
            raise AssertionError(f"{name} is still {seen[-1][-2000:]!r}; {await self.text('notice')}") from None
        return seen


@contextlib.asynccontextmanager
async def open_browser(url: str, folder: Path, *more: str) -> AsyncIterator[Page]:
    """A browser that shows a page; ``more`` are options of its command line."""
    assert CHROMIUM is not None
    options = [
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1400,1000",
        "--remote-debugging-port=0",
    ]
    with Process(CHROMIUM, *options, *more, f"--user-data-dir={folder}", url):
        async with asyncio.timeout(180), aiohttp.ClientSession() as http:  # of all the page is asked
            port_file = folder / "DevToolsActivePort"
            while not (port := port_file.read_text().partition("\n")[0] if port_file.exists() else ""):
                await asyncio.sleep(0.05)
            async with http.get(f"http://127.0.0.1:{port}/json") as answer:
                (page,) = [target for target in await answer.json() if target["type"] == "page"]
            socket = await http.ws_connect(page["webSocketDebuggerUrl"])
            async with socket:
                yield Page(socket)
