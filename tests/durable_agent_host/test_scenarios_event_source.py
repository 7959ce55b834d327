"""The example page with the browser's own EventSource: it comes back by itself, with the id of its last event."""

import json
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, open_browser
from tests.kit import ROOT, AgentHost, PracticeModel, start_host

TEXT = "It rains, größer 😀 than ever. " * 12
WATCH = """
  globalThis.opened = 0, globalThis.ids = [];
  globalThis.EventSource = class extends EventSource {
    constructor(url) {
      super(url);
      this.addEventListener("open", () => opened++);
      for (const name of ["turn.started", "message.delta", "turn.restarted", "call.pending", "turn.completed"])
        this.addEventListener(name, (event) => ids.push(Number(event.lastEventId)));
    }
  };
"""


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
async def test_a_browsers_event_source_comes_back_by_itself(model: PracticeModel, tmp_path: Path):
    """A host that is killed costs the page nothing: each event once; a reloaded one has the answer and the question."""
    model.plan(
        {"text": TEXT, "chunk_characters": 5, "delay_milliseconds": 40},
        {"items": [{"text": TEXT}, {"calls": [{"name": "refund", "arguments": {"order": 7}}]}]},
        {"text": "Settled."},
    )

    def start(port: int) -> AgentHost:
        return start_host(tmp_path / "data", model, app=ROOT / "examples" / "pages", port=port)

    host = start(0)
    try:
        async with open_browser(f"{host.url}/api/eventsource", tmp_path / "browser") as page:
            await page.until("state", lambda text: text == "ready")
            await page.evaluate(WATCH)
            await page.evaluate("document.forms[0].message.value = 'go'; document.forms[0].requestSubmit()")
            await page.until("answer", lambda text: len(text) > 40)
            host.kill()
            await page.until("state", lambda text: "coming back" in text)
            host = start(int(host.url.rpartition(":")[2]))
            await page.until("question", lambda text: text.startswith('refund({"order":7})?'))
            assert await page.text("answer") == TEXT
            opened, ids = json.loads(await page.evaluate("JSON.stringify([opened, ids])"))
            assert (opened, ids) == (2, sorted(set(ids)))
            await page.evaluate("document.body.dataset.old = true")
            await page.send_command("Page.reload")
            while await page.evaluate("document.body?.dataset.old ?? !document.body"):
                pass
            await page.click("#question button")
            await page.until("state", lambda text: text == "turn.completed")
            assert await page.text("answer") == f"{TEXT} [Order 7 is refunded.] \n\nSettled."
    finally:
        host.kill()
