"""The inspector against the rules of WCAG 2.2 A and AA, as axe-core checks them, in a real browser."""

import json
from pathlib import Path

import pytest

from tests.browser import CHROMIUM, Page, open_browser
from tests.durable_agent_host.test_scenarios_sessions import broken
from tests.kit import AgentHost, PracticeModel
from tests.kit_services import SERVICES, unavailable

AXE = SERVICES / "node_modules" / "axe-core" / "axe.min.js"
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
VIOLATION_FIELDS = "violations.map((one) => [one.id, one.help, one.nodes.map((node) => node.html.slice(0, 200))])"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


async def violations(page: Page) -> list[object]:
    """Say which rules the page breaks as it is now, and where."""
    run = (
        f"axe.run(document, {{runOnly: {json.dumps(RULES)}}}).then((found) => JSON.stringify(found.{VIOLATION_FIELDS}))"
    )
    return json.loads(await page.evaluate(run))


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("colors", "width"), [("light", 1400), ("dark", 390)])
async def test_the_page_breaks_no_rule(
    people: AgentHost, model: PracticeModel, tmp_path: Path, colors: str, width: int
):
    """A conversation, its steps with a call's request and answer, and the dialogs: by contrast, names, roles, order."""
    if not AXE.exists():
        unavailable("axe-core", "install Node.js 20 or newer, then ./scripts/test installs axe-core")
    model.plan({"calls": [{"name": "rest", "arguments": {"seconds": 0.01}}]}, {"text": "Rested."})
    session = f"rules-{colors}-{width}"
    people.run("Rester", {"message": "rest", "session_id": session})
    people.post(f"/agents/Rester/sessions/{session}-broken/import", json.dumps(broken()).encode())
    async with open_browser(f"{people.url}/api/inspector#/Rester/{session}", tmp_path / "browser") as page:
        await page.send_command(
            "Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False
        )
        feature = {"name": "prefers-color-scheme", "value": colors}
        await page.send_command("Emulation.setEmulatedMedia", features=[feature])
        await page.until("steps", lambda text: "Endcompleted" in text)
        await page.evaluate(f"{AXE.read_text()}; 1")
        assert await violations(page) == []
        await page.evaluate("view('log'); for (const one of document.querySelectorAll('details')) one.open = true")
        await page.until("steps", lambda text: "function_call_output" in text)
        assert await violations(page) == []
        for act, shows in (("files", "no files"), ("curl", "curl"), ("delete", "Delete")):
            await page.evaluate(f"close(); document.querySelector('[data-act={act}]').click()")
            await page.until("dialog", lambda text, shows=shows: shows in text)
            assert await violations(page) == [], act
        await page.evaluate(f"close(); location.hash = '#/Rester/{session}-broken'")
        await page.until("title", lambda text: text == f"{session}-broken")
        await page.evaluate("document.querySelector('[data-act=verify]').click()")
        await page.until("dialog", lambda text: "call call_lost has no result" in text)
        assert await violations(page) == []
