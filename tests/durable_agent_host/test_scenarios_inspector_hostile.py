"""The inspector with what an attacker would store, behind a key, and with more than fits on a screen."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser import CHROMIUM, Page, open_browser
from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.test_scenarios_sessions import golden
from tests.kit import AgentHost, PracticeModel, start_host

SCRIPT = "<img src=x onerror='hacked=1'><script>hacked=1</script><svg onload='hacked=1'>"
NAMED = "<img src=x onerror='hacked=1'>\u202e"
TURNED = "invoice\u202efdp.exe\u200b\u0007"
SHOWN = "invoice\\u202efdp.exe\\u200b\\u0007"
SVG = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImhhY2tlZD0xIj48c2NyaXB0PmhhY2tlZD0xPC9zY3JpcHQ+PC9zdmc+"
LONG = "long and longer " * 330_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def conversation(*turns: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> bytes:
    """A document of turns, each with the contents that were asked and those that were answered."""
    document = golden("session-upstream-1.1")
    asked, answered = document["data"]["conversationHistory"]
    entries = []
    for number, (question, answer) in enumerate(turns):
        named = {"correlationId": f"turn{number:05d}"}
        entries += [
            asked | named | {"messages": [{"role": "user", "contents": question}]},
            answered | named | {"messages": [{"role": "assistant", "contents": answer, "authorName": SCRIPT}]},
        ]
    document["data"]["conversationHistory"] = entries
    return json.dumps(document).encode()


def text(said: str) -> dict[str, Any]:
    """A text that is stored."""
    return {"$type": "text", "text": said}


def keep(host: AgentHost, session: str, document: bytes) -> str:
    """Store a conversation; gives where the inspector shows it."""
    name = quote(session, safe="")
    answer = host.post(f"/agents/Rester/sessions/{name}/import", document)
    assert answer.status_code == 201, answer.text
    return f"{host.url}/api/inspector#/Rester/{name}"


async def click(page: Page, label: str, within: str = "body") -> None:
    """Press the first button with a label."""
    found = f"[...document.querySelectorAll('{within} button')].find((one) => one.textContent === {json.dumps(label)})"
    await page.evaluate(f"{found}.click()")


async def test_nothing_hostile_runs_or_hides(people: AgentHost, tmp_path: Path):
    """Every kind of content with hostile values: no script, no foreign element, no hidden character in a name."""
    cited = [{"type": "citation", "title": f"{SCRIPT}{TURNED}", "url": address} for address in ("javascript:hacked=1",)]
    told = {"durableAgentHost": {"annotations": cited, "name": TURNED}}
    call = {"$type": "functionCall", "callId": f"call {TURNED}", "name": f"{SCRIPT}{TURNED}"}
    answer = [
        text(SCRIPT) | {"extensionData": told},
        {"$type": "reasoning", "text": SCRIPT},
        call | {"arguments": {"to": f"{SCRIPT}{TURNED}"}},
        {"$type": "functionResult", "callId": f"call {TURNED}", "result": SCRIPT},
        {"$type": "data", "uri": SVG, "mediaType": "image/svg+xml", "extensionData": told},
        {"$type": "uri", "uri": "javascript:hacked=1", "mediaType": SCRIPT},
        {"$type": "uri", "uri": "data:text/html,<script>hacked=1</script>", "mediaType": "text/html"},
        {"$type": "hostedFile", "fileId": f"../../{SCRIPT}", "extensionData": told},
        {"$type": "error", "message": SCRIPT, "errorCode": SCRIPT, "details": SCRIPT},
        {"$type": "unknown", "content": {"type": SCRIPT, "text": SCRIPT}},
    ]
    url = keep(people, NAMED, conversation(([text(f"{SCRIPT} {LONG}")], answer)))
    async with open_browser("about:blank", tmp_path / "browser") as page:
        watch = "window.broken = []; addEventListener('securitypolicyviolation', (e) => broken.push(e.blockedURI))"
        await page.send_command("Page.enable")
        await page.send_command("Page.addScriptToEvaluateOnNewDocument", source=watch)
        await page.send_command("Page.navigate", url=url)
        shown = (await page.until("messages", lambda shown: "citation" in shown))[-1]
        assert await page.text("title") == NAMED.replace("\u202e", "\\u202e")
        assert (TURNED in shown, shown.count(SHOWN) >= 5) == (False, True)
        assert len(shown) < 100_000
        more = f"Show more (20,000 of {len(SCRIPT) + 1 + len(LONG):,} characters)"
        assert more in shown
        await click(page, more)
        assert 420_000 < await page.evaluate("$('messages').textContent.length") < 430_000
        await click(page, "Fork here")
        assert await page.evaluate("document.querySelector('dialog textarea').value.length") > len(LONG)
        await page.evaluate("close(); document.querySelector('[data-act=curl]').click()")
        await page.until("dialog", lambda shown: "curl" in shown)
        foreign = (
            "main img, main svg, main script, dialog img, dialog svg, dialog script, a[href^=javascript], a[href^=data]"
        )
        assert await page.evaluate(f"document.querySelectorAll({json.dumps(foreign)}).length") == 0
        assert await page.evaluate("[typeof hacked, broken.length]") == ["undefined", 0]


@pytest.mark.parametrize("place", ["?code={}", "#code={}"])
async def test_a_key_is_taken_once_and_told_to_nobody(model: PracticeModel, tmp_path: Path, place: str):
    """The address brings the key, and loses it; headers carry it then, and neither log nor later addresses have it."""
    host = start_host(tmp_path / "data", model, app=PEOPLE, options=["--enable-auth"], LEDGER=str(tmp_path / "ledger"))
    try:
        key = json.loads((tmp_path / "data" / "keys.json").read_text())["function"]
        async with open_browser(f"{host.url}/api/inspector", tmp_path / "browser") as page:
            await page.until("dialog", lambda shown: "asks for a function key" in shown)
            await page.evaluate(f"location.href = {json.dumps(host.url + '/api/inspector' + place.format(quote(key)))}")
            await page.until("agent", lambda shown: "Payer" in shown)
            assert await page.evaluate("location.href") == f"{host.url}/api/inspector"
            asked = "performance.getEntriesByType('resource').map((one) => one.name).join()"
            assert key not in await page.evaluate(asked)
            await page.evaluate("location.hash = '#/Payer/fresh'")
            await page.until("title", lambda shown: shown == "fresh")
            model.plan({"text": "Well met."})
            await page.evaluate("$('message').value = 'hello'; $('ask').requestSubmit()")
            await page.until("messages", lambda shown: "Well met." in shown)
            await page.evaluate("document.querySelector('[data-act=curl]').click()")
            shown = (await page.until("dialog", lambda shown: "curl" in shown))[-1]
            assert ("$FUNCTIONS_KEY" in shown, key in shown) == (True, False)
            assert await page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
            await page.evaluate("location.reload()")
            await page.until("messages", lambda shown: "Well met." in shown)
        host.stop()
        assert key not in host.text
    finally:
        host.kill()
