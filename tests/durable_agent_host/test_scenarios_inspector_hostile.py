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

HOSTILE_HTML = "<img src=x onerror='hacked=1'><script>hacked=1</script><svg onload='hacked=1'>"
HOSTILE_SESSION_ID = "<img src=x onerror='hacked=1'>\u202e"
HOSTILE_NAME = "invoice\u202efdp.exe\u200b\u0007"
ESCAPED_NAME = "invoice\\u202efdp.exe\\u200b\\u0007"
SVG = "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImhhY2tlZD0xIj48c2NyaXB0PmhhY2tlZD0xPC9zY3JpcHQ+PC9zdmc+"
LONG_TEXT = "long and longer " * 50_000
LEFT_OUT_TEXT = "long and longer " * 330_000

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


def conversation(*turns: tuple[list[dict[str, Any]], list[dict[str, Any]]]) -> bytes:
    """A document of turns, each with the contents that were asked and those that were answered."""
    document = golden("session-upstream-1.1")
    request_entry, response_entry = document["data"]["conversationHistory"]
    entries = []
    for number, (request_contents, response_contents) in enumerate(turns):
        id_field = {"correlationId": f"turn{number:05d}"}
        entries += [
            request_entry | id_field | {"messages": [{"role": "user", "contents": request_contents}]},
            response_entry
            | id_field
            | {"messages": [{"role": "assistant", "contents": response_contents, "authorName": HOSTILE_HTML}]},
        ]
    document["data"]["conversationHistory"] = entries
    return json.dumps(document).encode()


def text(value: str) -> dict[str, Any]:
    """A text that is stored."""
    return {"$type": "text", "text": value}


def import_document(host: AgentHost, session: str, document: bytes) -> str:
    """Store a conversation; gives where the inspector shows it."""
    name = quote(session, safe="")
    response = host.post(f"/agents/Rester/sessions/{name}/import", document)
    assert response.status_code == 201, response.text
    return f"{host.url}/api/inspector#/Rester/{name}"


async def click(page: Page, label: str, within: str = "body") -> None:
    """Press the first button with a label."""
    button = f"[...document.querySelectorAll('{within} button')].find((one) => one.textContent === {json.dumps(label)})"
    await page.evaluate(f"{button}.click()")


async def test_hostile_content_is_neither_executed_nor_hidden(people: AgentHost, tmp_path: Path):
    """Every kind of content with hostile values: no script, no foreign element, no hidden character in a name.

    Even a script in the page would not run.
    """
    citations = [
        {"type": "citation", "title": f"{HOSTILE_HTML}{HOSTILE_NAME}", "url": address}
        for address in ("javascript:hacked=1",)
    ]
    extension_data = {"durableAgentHost": {"annotations": citations, "name": HOSTILE_NAME}}
    call = {"$type": "functionCall", "callId": f"call {HOSTILE_NAME}", "name": f"{HOSTILE_HTML}{HOSTILE_NAME}"}
    contents = [
        text(HOSTILE_HTML) | {"extensionData": extension_data},
        {"$type": "reasoning", "text": HOSTILE_HTML},
        call | {"arguments": {"to": f"{HOSTILE_HTML}{HOSTILE_NAME}"}},
        {"$type": "functionResult", "callId": f"call {HOSTILE_NAME}", "result": HOSTILE_HTML},
        {"$type": "data", "uri": SVG, "mediaType": "image/svg+xml", "extensionData": extension_data},
        {"$type": "uri", "uri": f"https://x.org/{HOSTILE_HTML.replace(' ', '+')}", "mediaType": HOSTILE_HTML},
        {"$type": "uri", "uri": "data:text/html,<script>hacked=1</script>", "mediaType": "text/html"},
        {"$type": "hostedFile", "fileId": f"../../{HOSTILE_HTML}", "extensionData": extension_data},
        {"$type": "error", "message": HOSTILE_HTML, "errorCode": HOSTILE_HTML, "details": HOSTILE_HTML},
        {"$type": "unknown", "content": {"type": HOSTILE_HTML, "text": HOSTILE_HTML}},
    ]
    turns = ([text(LEFT_OUT_TEXT)], [text("Well.")]), ([text(f"{HOSTILE_HTML} {LONG_TEXT}")], contents)
    url = import_document(people, HOSTILE_SESSION_ID, conversation(*turns))
    async with open_browser("about:blank", tmp_path / "browser") as page:
        watch = "window.broken = []; addEventListener('securitypolicyviolation', (e) => broken.push(e.blockedURI))"
        await page.send_command("Page.enable")
        await page.send_command("Page.addScriptToEvaluateOnNewDocument", source=watch)
        await page.send_command("Page.navigate", url=url)
        text_content = (await page.until("messages", lambda text_content: "citation" in text_content))[-1]
        assert await page.text("title") == HOSTILE_SESSION_ID.replace("\u202e", "\\u202e")
        assert (HOSTILE_NAME in text_content, text_content.count(ESCAPED_NAME) >= 5) == (False, True)
        assert len(text_content) < 100_000
        more = f"Show more (20,000 of {len(HOSTILE_HTML) + 1 + len(LONG_TEXT):,} characters)"
        assert more in text_content
        await click(page, more)
        assert 420_000 < await page.evaluate("$('messages').textContent.length") < 430_000
        await click(page, "Run again with")
        assert await page.evaluate("document.querySelector('dialog textarea').value.length") > len(LONG_TEXT)
        await page.evaluate("close()")
        await click(page, "Earlier messages")
        text_content = (await page.until("messages", lambda text_content: "is left out" in text_content))[-1]
        assert f"({len(LEFT_OUT_TEXT):,} bytes, messages[0].contents[0].text). Download the session" in text_content
        await page.evaluate("document.querySelector('[data-act=curl]').click()")
        await page.until("dialog", lambda text_content: "curl" in text_content)
        script = "Object.assign(document.createElement('script'), {text: 'hacked = 2'})"
        await page.evaluate(f"document.body.append({script})")
        foreign = (
            "main img, main svg, main script, dialog img, dialog svg, dialog script, a[href^=javascript], a[href^=data]"
        )
        assert await page.evaluate(f"document.querySelectorAll({json.dumps(foreign)}).length") == 0
        assert await page.evaluate("[typeof hacked, broken.join()]") == ["undefined", "inline"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize("url_suffix", ["?code={}", "#code={}"])
async def test_a_key_is_read_once_and_not_disclosed(model: PracticeModel, tmp_path: Path, url_suffix: str):
    """The address brings the key, and loses it; headers carry it then, and neither log nor later addresses have it."""
    host = start_host(tmp_path / "data", model, app=PEOPLE, options=["--enable-auth"], LEDGER=str(tmp_path / "ledger"))
    try:
        key = json.loads((tmp_path / "data" / "keys.json").read_text())["function"]
        async with open_browser(f"{host.url}/api/inspector", tmp_path / "browser") as page:
            await page.until("dialog", lambda text_content: "asks for a function key" in text_content)
            await page.evaluate(
                f"location.href = {json.dumps(host.url + '/api/inspector' + url_suffix.format(quote(key)))}"
            )
            await page.until("agent", lambda text_content: "Payer" in text_content)
            assert await page.evaluate("location.href") == f"{host.url}/api/inspector"
            resource_names = "performance.getEntriesByType('resource').map((one) => one.name).join()"
            assert key not in await page.evaluate(resource_names)
            await page.evaluate("location.hash = '#/Payer/fresh'")
            await page.until("title", lambda text_content: text_content == "fresh")
            model.plan({"text": "Well met."})
            await page.evaluate("$('message').value = 'hello'; $('ask').requestSubmit()")
            await page.until("messages", lambda text_content: "Well met." in text_content)
            await page.evaluate("document.querySelector('[data-act=curl]').click()")
            text_content = (await page.until("dialog", lambda text_content: "curl" in text_content))[-1]
            assert ("$FUNCTIONS_KEY" in text_content, key in text_content) == (True, False)
            assert await page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
            await page.evaluate("location.reload()")
            await page.until("messages", lambda text_content: "Well met." in text_content)
        host.stop()
        assert key not in host.text
    finally:
        host.kill()
