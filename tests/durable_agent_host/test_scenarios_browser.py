"""The example's page in a real browser: text grows, and continues after the host was killed."""

from pathlib import Path

import pytest

from tests.browser import CHROMIUM, open_browser
from tests.kit import ROOT, AgentHost, PracticeModel, start_host

ANSWER = "It rains, größer 😀 than ever, and nobody minds. " * 30

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


async def test_a_page_shows_text_as_it_grows_and_comes_back(model: PracticeModel, tmp_path: Path):
    """The page shows more and more of the answer, loses its host, and has the whole answer when the host is back."""
    model.plan({"text": ANSWER, "chunk_characters": 5, "delay_milliseconds": 40}, {"text": ANSWER})

    def start(port: int) -> AgentHost:
        return start_host(tmp_path / "data", model, app=ROOT / "examples" / "chat", port=port)

    host = start(0)
    try:
        async with open_browser(f"{host.url}/api/chat", tmp_path / "browser") as page:
            await page.until("state", lambda text: text == "ready")
            await page.evaluate("document.forms[0].message.value = 'How is it?'; document.forms[0].requestSubmit()")
            begun = (await page.until("answer", bool))[-1]
            grown = (await page.until("answer", lambda text: len(text) > len(begun)))[-1]
            assert (ANSWER.startswith(begun), ANSWER.startswith(grown), grown == ANSWER) == (True, True, False)
            host.kill()
            await page.until("state", lambda text: "coming back" in text)
            host = start(int(host.url.rpartition(":")[2]))
            await page.until("state", lambda text: text.startswith("turn.completed"))
            assert await page.text("answer") == ANSWER
    finally:
        host.kill()
