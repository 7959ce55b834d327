"""The browser's own EventSource follows a turn: it comes back by itself, with the id of its last event."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.browser import CHROMIUM, Page, open_browser
from tests.kit import ROOT, AgentHost, PracticeModel, start_host

FOLLOW = """
  globalThis.told = { events: [], opened: 0, texts: new Map(), ended: false, closed: false };
  const source = new EventSource(%s);
  source.onopen = () => told.opened++;
  source.onerror = () => told.closed = source.readyState === EventSource.CLOSED;
  source.onmessage = (event) => told.events.push(["message", event.lastEventId]);
  for (const name of ["turn.started", "message.delta", "turn.restarted", "turn.completed"])
    source.addEventListener(name, (event) => {
      const [id, data] = [Number(event.lastEventId), JSON.parse(event.data)];
      told.events.push([name, id]);
      if (name === "message.delta") told.texts.set(id, data.text);
      if (name === "turn.restarted") told.texts.forEach((_, at) => at >= data.discard_from && told.texts.delete(at));
      if (name === "turn.completed") told.ended = true;
    });
"""
SO_FAR = "JSON.stringify({ ...told, text: [...told.texts.values()].join('') })"


async def until(page: Page, is_reached: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """Poll the state of the page until it is reached."""
    async with asyncio.timeout(60):
        while not is_reached(page_state := json.loads(await page.evaluate(SO_FAR))):
            await asyncio.sleep(0.02)
    return page_state


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
async def test_a_browsers_event_source_comes_back_by_itself(model: PracticeModel, tmp_path: Path):
    """A host that is killed and started anew costs the page nothing: each event once; after the last it stays away."""
    model.plan(
        {"text": "Answer 0: größer 😀. " * 60, "chunk_characters": 5, "delay_milliseconds": 40},
        {"text": "Answer 1: größer 😀. " * 12, "chunk_characters": 5},
    )

    def start(port: int) -> AgentHost:
        return start_host(tmp_path / "data", model, app=ROOT / "examples" / "chat", port=port)

    host = start(0)
    try:
        async with open_browser(f"{host.url}/api/chat", tmp_path / "browser") as page:
            await page.until("state", lambda text: text == "ready")
            turn = host.run("Helper", {"message": "go"}, headers={"x-ms-wait-for-response": "false"}).json()
            await page.evaluate(FOLLOW % json.dumps(turn["events_url"]))
            await until(page, lambda page_state: len(page_state["events"]) > 8)
            host.kill()
            host = start(int(host.url.rpartition(":")[2]))
            page_state = await until(page, lambda page_state: page_state["ended"] and page_state["closed"])
        response_text = requests.get(turn["turn_url"]).json()["response"]
        assert page_state["text"] == response_text
        assert page_state["opened"] == 2
        names, ids = zip(*page_state["events"], strict=True)
        assert set(names) == {"turn.started", "message.delta", "turn.restarted", "turn.completed"}
        assert list(ids) == sorted(set(ids))
    finally:
        host.kill()
