"""Writes the pictures of the inspector's guide: a turn that ran code, crashed, and asked a person."""

import asyncio
import base64
import tempfile
from pathlib import Path
from urllib.parse import quote

import requests

from tests.browser import Page, open_browser
from tests.kit import ROOT, AgentHost, PracticeModel, start_host, start_model
from tests.processes import wait_until

GUIDES = ROOT / "docs" / "guides"
APP = Path(__file__).parent / "apps" / "pictures"
SESSION = "invoice-2026-11"


def play(folder: Path, model: PracticeModel) -> AgentHost:
    """Run the turns, with a crash in the last one; the host that came back still runs."""

    def start(port: int) -> AgentHost:
        return start_host(folder / "data", model, app=APP, port=port)

    code = "import pandas as pd\nprint(pd.read_csv('invoices.csv')['amount'].sum())"
    items = [
        {"reasoning": "The user wants a sum: I read the table and add up its column."},
        {"code": code, "logs": "1840.5\n"},
        {"text": "The open invoices add up to 1,840.50 EUR."},
    ]
    host = start(0)
    model.plan({"items": items})
    run(host, "Add up the open invoices, please")
    model.plan(
        {"calls": [{"name": "rest", "arguments": {"seconds": 0.3}}]},
        {"text": "I look at the account first, and then. " * 20, "chunk_characters": 8, "delay_milliseconds": 60},
        {"error": {"status": 429, "code": "rate_limit", "message": "slow down", "retry_after": 0.3}},
        {"calls": [{"name": "pay", "arguments": {"amount": 1840.5}}]},
        {"text": "Paid 1,840.50 EUR."},
    )
    turn = run(host, "Then pay them all", headers={"x-ms-wait-for-response": "false"})
    steps = turn["turn_url"] + "/steps"
    wait_until(lambda: any(step.get("characters", 0) > 60 for step in requests.get(steps, timeout=30).json()["steps"]))
    host.kill()
    host = start(int(host.url.rpartition(":")[2]))
    pending = wait_until(lambda: requests.get(turn["turn_url"], timeout=30).json().get("pending_calls"), 60)
    approval = {"call_id": pending[0]["call_id"], "approved": True, "reason": "within the budget of November"}
    requests.post(turn["turn_url"] + "/answers", json=approval, timeout=30).raise_for_status()
    wait_until(lambda: requests.get(turn["turn_url"], timeout=30).json()["status"] == "completed", 60)
    return host


def run(host: AgentHost, message: str, **more: dict[str, str]) -> dict[str, str]:
    """Run a turn of the session."""
    response = host.run("Payer", {"message": message, "session_id": SESSION}, **more)
    assert response.ok, response.text
    return response.json()


async def shoot(page: Page, url: str, name: str, *, width: int, height: int, colors: str, before: str = "0") -> None:
    """Write one picture."""
    await page.send_command(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )
    feature = {"name": "prefers-color-scheme", "value": colors}
    await page.send_command("Emulation.setEmulatedMedia", features=[feature])
    await page.send_command("Page.navigate", url="about:blank")
    await page.send_command("Page.navigate", url=url)
    await page.until("steps", lambda text: "End" in text)
    await page.evaluate(before)
    await asyncio.sleep(1)
    shot = await page.send_command("Page.captureScreenshot", format="png")
    assert shot is not None
    (GUIDES / name).write_bytes(base64.b64decode(shot["data"]))


async def main() -> None:
    """Play, look, write."""
    with tempfile.TemporaryDirectory() as folder:
        model = start_model()
        host = play(Path(folder), model)
        try:
            url = f"{host.url}/api/inspector#/Payer/{quote(SESSION)}"
            async with open_browser("about:blank", Path(folder) / "browser") as page:
                await shoot(page, url, "inspector.png", width=1180, height=760, colors="light")
                top = {"width": 1180, "height": 760, "colors": "dark", "before": "$('messages').scrollTop = 0"}
                await shoot(page, url, "inspector-dark.png", **top)
                steps = {"width": 390, "height": 780, "colors": "dark", "before": "view('log')"}
                await shoot(page, url, "inspector-narrow.png", **steps)
        finally:
            host.kill()
            model.kill()


if __name__ == "__main__":
    asyncio.run(main())
