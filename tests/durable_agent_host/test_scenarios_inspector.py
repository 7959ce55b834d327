"""The inspector in a real browser: it sees what happens, does what its buttons say, and runs nothing that it shows."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from tests.browser import CHROMIUM, Page, open_browser
from tests.durable_agent_host.conftest import PEOPLE
from tests.durable_agent_host.openai_outputs import mcp, search
from tests.durable_agent_host.test_scenarios_approvals import plan_payments
from tests.kit import AgentHost, PracticeModel, start_host

LONG_TEXT = "It rains, größer 😀 than ever, and nobody minds. " * 40
HOSTILE = "<img src=x onerror='hacked=1'><script>hacked=1</script>"

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")


class InspectorSite:
    """One host for all tests, which can be killed and comes back at its address."""

    def __init__(self, folder: Path, model: PracticeModel) -> None:
        self.folder, self.model = folder, model
        self.host = self.start(0)

    def start(self, port: int) -> AgentHost:
        """Start the host."""
        return start_host(
            self.folder / "data", self.model, app=PEOPLE, port=port, LEDGER=str(self.folder / "ledger.txt")
        )

    def come_back(self) -> None:
        """Start the host that was killed."""
        self.host = self.start(int(self.host.url.rpartition(":")[2]))

    def url(self, agent: str, session: str) -> str:
        """Where the inspector shows a session."""
        return f"{self.host.url}/api/inspector#/{agent}/{session}"


@pytest.fixture(scope="module")
def site(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[InspectorSite]:
    """The host."""
    inspector_site = InspectorSite(tmp_path_factory.mktemp("inspector"), practice_model)
    yield inspector_site
    inspector_site.host.kill()


async def send_message(page: Page, text: str) -> None:
    """Send a message in the session that the page shows."""
    await page.until("title", lambda title: title and title != "Choose a session")
    await page.evaluate(f"$('message').value = {json.dumps(text)}; $('ask').requestSubmit()")


async def test_a_live_turn_and_its_crash_are_displayed(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """Text grows; the host is killed and restarted; crash, replay and end are displayed, discarded text is removed."""
    model.plan(
        {"calls": [{"name": "rest", "arguments": {"seconds": 0.01}}]},
        {"text": LONG_TEXT, "chunk_characters": 6, "delay_milliseconds": 60},
        {"text": "It is over."},
    )
    async with open_browser(site.url("Rester", "live"), tmp_path / "browser") as page:
        await send_message(page, "How is it?")
        begun = (await page.until("messages", lambda text: "It rains" in text))[-1]
        grown = (await page.until("messages", lambda text: len(text) > len(begun)))[-1]
        assert ("no message yet" in grown, LONG_TEXT in grown) == (False, False)
        assert await page.evaluate("document.querySelectorAll('.turn .compare').length") == 1
        site.host.kill()
        await page.until("notice", lambda text: "Connection lost" in text)
        site.come_back()
        await page.until("steps", lambda text: "Endcompleted" in text)
        await page.until("messages", lambda text: "It is over." in text and "It rains" not in text)
        steps = await page.text("steps")
        assert [
            step for step in ("Attempt 1crashed", "Attempt 2completed", "Model call 2lost") if step not in steps
        ] == []
        assert "Found 1 model call and 1 tool call in the journal" in steps
        assert await page.evaluate("document.querySelectorAll('#steps .crashed').length") == 1
        await page.until("sessions", lambda text: "live" in text and "completed" in text)


async def test_a_person_approves_and_forks(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """A call runs with changed arguments; a fork runs with an edited message; the first session stays as it was."""
    model.plan(plan_payments(250), {"text": "Paid less."}, {"text": "Not paid at all."})
    async with open_browser(site.url("Payer", "asks"), tmp_path / "browser") as page:
        await send_message(page, "pay 250")
        await page.until("messages", lambda text: "waits for you" in text)
        await page.until("steps", lambda text: "Waits for an answer" in text)
        await page.evaluate("document.querySelector('.question textarea').value = '{\"amount\": 5}'")
        await page.click(".question .approve")
        await page.until("messages", lambda text: "Paid less." in text and "As text" in text)
        assert (site.folder / "ledger.txt").read_text().splitlines()[-1] == "paid 5.0"
        steps = (await page.until("steps", lambda text: "Endcompleted" in text))[-1]
        assert ("Waited for an answer" in steps, "Approved" in steps, "pay" in steps) == (True, True, True)
        summary = await page.text("summary")
        assert ("Longest: " in summary, "not on the scale" in summary, "Trace " in summary) == (True, True, True)
        before = site.host.session("Payer", "asks")
        await page.click(".turn .fork")
        assert await page.evaluate("document.querySelector('dialog textarea').value") == "pay 250"
        await page.evaluate("document.querySelector('dialog textarea').value = 'do not pay'")
        await page.evaluate("document.querySelector('dialog input').value = 'asks-edited'")
        await page.evaluate("document.querySelector('dialog form').requestSubmit()")
        await page.until("title", lambda text: text == "asks-edited")
        await page.until("messages", lambda text: "do not pay" in text and "Not paid at all." in text)
        assert site.host.session("Payer", "asks") == before
        await page.until("steps", lambda text: "Endcompleted" in text)
        await page.click(".turn .compare")
        columns = (await page.until("dialog", lambda text: "Not paid at all." in text))[-1]
        assert ("pay 250" in columns, "Paid less." in columns, "do not pay" in columns) == (True, True, True)
        await page.evaluate("location.reload()")
        await page.until("dialog", lambda text: "Not paid at all." in text and "Paid less." in text)


async def test_addresses_lead_to_what_they_name(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """An agent that is not there gets no message; an empty session says so; Ctrl+Enter sends a dialog's form."""
    async with open_browser(site.url("Nobody", "addressed"), tmp_path / "browser") as page:
        await page.until("notice", lambda text: "no agent Nobody" in text)
        assert await page.evaluate("[at.session, $('ask').hidden]") == [None, True]
        await page.evaluate("location.hash = '#/Rester/addressed'")
        await page.until("messages", lambda text: "This session has no message yet." in text)
        assert await page.evaluate("$('notice').textContent") == ""
        await page.evaluate("location.hash = '#/Rester/addressed/no-turn'")
        await page.until("summary", lambda text: "no such turn" in text)
        model.plan({"text": "Sent by keys."})
        enter = "new KeyboardEvent('keydown', {key: 'Enter', ctrlKey: true, bubbles: true, cancelable: true})"
        await page.evaluate(
            "newSession(); const field = document.querySelector('dialog textarea'); field.value = 'Hello';"
            f"field.dispatchEvent({enter})"
        )
        texts = await page.until("messages", lambda text: "Sent by keys." in text)
        assert "no message yet" not in texts[-1]
        assert await page.evaluate("$('dialog').open") is False


async def test_a_result_is_given_on_the_page(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """A call that waits for the client gets what somebody types: JSON where it is JSON."""
    model.plan({"calls": [{"name": "locate", "arguments": {"precise": True}}]}, {"text": "You are in Rome."})
    async with open_browser(site.url("Guide", "asks"), tmp_path / "browser") as page:
        await send_message(page, "where am I?")
        await page.until("messages", lambda text: "waits for its result" in text)
        await page.evaluate("document.querySelector('.question textarea').value = '{\"city\": \"Rome\"}'")
        await page.click(".question .answer")
        await page.until("messages", lambda text: "You are in Rome." in text)
        (output,) = (item for item in model.requests()[-1]["body"]["input"] if item["type"] == "function_call_output")
        assert output["output"] == '{"city": "Rome"}'


async def test_results_of_a_services_tools_are_displayed(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """What an MCP server did wrong, and the pages that a search has found."""
    sources = [{"type": "url", "url": "https://a.example/page"}]
    found = search(1, {"type": "search", "query": "q", "sources": sources})
    model.plan({"items": [{"item": found}, {"item": mcp(2, "{}", None, "no dice today")}, {"text": "Sorry."}]})
    assert site.host.run("Rester", {"message": "roll", "session_id": "dice"}).ok
    async with open_browser(site.url("Rester", "dice"), tmp_path / "browser") as page:
        text = (await page.until("messages", lambda text: "no dice today" in text))[-1]
        assert "https://a.example/page" in text
        assert "no output" not in text


async def test_sessions_of_all_agents_are_found_by_what_was_said(
    site: InspectorSite, model: PracticeModel, tmp_path: Path
):
    """One list with first words as titles and in the tab; a word of an answer finds its session."""
    model.plan({"text": "The heron stands still."}, {"text": "Nothing else."})
    for agent, session, message in (("Rester", "bird", "Which bird waits?"), ("Guide", "stone", "Which stone waits?")):
        assert site.host.run(agent, {"message": message, "session_id": session}).ok
    model.plan({"error": {"status": 400, "message": "no"}})
    assert site.host.run("Guide", {"message": "Which turn fails?", "session_id": "failing"}).status_code == 502
    firsts = ("Which bird waits?bird", "Which stone waits?stone", "Which turn fails?failing")
    async with open_browser(f"{site.host.url}/api/inspector", tmp_path / "browser") as page:
        await page.until("sessions", lambda text: all(first in text for first in firsts))
        await page.evaluate("$('search').value = 'HERON'; $('search').dispatchEvent(new Event('input'))")
        await page.until("sessions", lambda text: "The heron stands" in text and "stone" not in text)
        await page.click("#sessions a")
        await page.until("heading", lambda text: text == "Which bird waits?")
        title = await page.evaluate("document.title")
        assert title.endswith("Which bird waits? · Rester · Inspector")
        await page.evaluate("location.reload()")
        await page.until("messages", lambda text: "The heron stands still." in text)


async def test_orchestrations_are_displayed_with_their_history(
    site: InspectorSite, model: PracticeModel, tmp_path: Path
):
    """Those of the app, without the turns that they run; one of them with its input, its calls and its output."""
    model.plan({"text": "Nothing to pay."})
    start_url = f"{site.host.management}/orchestrators/pay_or_say_why/audit?timeout=60"
    assert requests.post(start_url, json={"session": "audited"}).json() == "Nothing to pay."
    async with open_browser(f"{site.host.url}/api/inspector", tmp_path / "browser") as page:
        await page.until("sessions", lambda text: "audited" in text)
        await page.click("#orchestrations")
        listed = (await page.until("dialog", lambda text: "audit" in text))[-1]
        assert ("pay_or_say_why" in listed, "agent_turn" in listed) == (True, False)
        await page.click("dialog td button")
        shown = (await page.until("dialog", lambda text: "execution completed" in text))[-1]
        assert [word for word in ("audited", "agent_turn", "Nothing to pay.") if word not in shown] == []


async def test_what_waits_is_answered_in_one_place(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """Questions of all sessions stand together; an answer there continues the turn."""
    model.plan(plan_payments(70), {"text": "Paid from the inbox."})
    body = {"message": "pay 70", "session_id": "inbox", "wait_for_response": False}
    assert site.host.run("Payer", body).status_code == 202
    async with open_browser(f"{site.host.url}/api/inspector", tmp_path / "browser") as page:
        await page.until("agent", bool)
        card = "[...document.querySelectorAll('dialog .question')].find((one) => one.textContent.includes('pay'))"
        while not await page.evaluate(f"showInbox().then(() => Boolean({card}))"):
            pass
        await page.evaluate(f"{card}.querySelector('.approve').click()")
        await page.until("dialog", lambda text: "Nothing waits for you." in text)
        await page.evaluate("document.querySelector('dialog').close(); location.hash = '#/Payer/inbox'")
        await page.until("messages", lambda text: "Paid from the inbox." in text)


async def test_a_timeline_leaves_out_waits_and_has_agents_within(site: InspectorSite, tmp_path: Path):
    """Steps of an agent within follow the call that ran it; an hour of waiting does not hide a second of work."""
    times = [f"2026-01-01T{time}Z" for time in ("10:00:00", "10:00:01", "11:00:01", "11:00:02", "11:00:04")]
    inner_tool = {"kind": "tool_call", "path": "m0/t:a/m0/t:c", "call_id": "c", "name": "inner"}
    steps = [
        {"kind": "model_call", "position": 0, "began_at": times[0], "ended_at": times[1]},
        {"kind": "wait", "reason": "person", "began_at": times[1], "ended_at": times[2]},
        {
            "kind": "tool_call",
            "position": 0,
            "call_id": "a",
            "name": "outer",
            "began_at": times[2],
            "ended_at": times[4],
        },
        {
            "kind": "tool_call",
            "position": 0,
            "call_id": "b",
            "name": "next",
            "began_at": times[2],
            "ended_at": times[3],
        },
        {"kind": "inner_call", "path": "m0/t:a/m0", "at": times[3]},
        inner_tool | {"began_at": times[3], "ended_at": times[4]},
    ]
    async with open_browser(f"{site.host.url}/api/inspector", tmp_path / "browser") as page:
        await page.until("agent", bool)
        begin, end = (f"Date.parse('{times[place]}')" for place in (0, -1))
        script = (
            f"(() => {{ const all = nest({json.dumps(steps)}), scale = scaleOf(all, {begin}, {end});"
            "return [all.map((one) => [one.name ?? one.kind, one.depth]), scale.work, scale.waited, scale.model,"
            f"scale.tools, slowestOf(all, {end}).name, scale.place({begin} + 1000)] }})()"
        )
        nested, work, waited, model_time, tool_time, slowest, place = await page.evaluate(script)
        assert nested == [["model_call", 0], ["wait", 0], ["outer", 0], ["inner_call", 1], ["inner", 1], ["next", 0]]
        assert (work, waited, model_time, tool_time) == (4000, 3_600_000, 2000, 2000)
        assert (slowest, 0.2 < place < 0.3) == ("inner", True)


async def test_answers_are_markdown_and_requests_messages(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """Markdown becomes elements, HTML in it stays text, an image is not loaded; a request is shown by its messages."""
    answer = "# Tides\n\n- **high**\n  - low\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n```\n*x*\n```\n\n"
    model.plan({"text": f"{answer}![p](https://a.example/p.png) [j](javascript:hacked=1) {HOSTILE}"})
    assert site.host.run("Rester", {"message": "tides?", "session_id": "markdown"}).ok
    async with open_browser(site.url("Rester", "markdown"), tmp_path / "browser") as page:
        await page.until("messages", lambda text: "Tides" in text)
        counted = ["h3", "ul", "strong", "td", "pre", "img", "script", "a[href]"]
        counts = f"{json.dumps(counted)}.map((one) => document.querySelectorAll(`.md ${{one}}`).length)"
        assert await page.evaluate(counts) == [1, 2, 1, 2, 1, 0, 0, 1]
        assert HOSTILE in await page.text("messages")
        await page.click("button.as-text")
        assert "| a | b |" in await page.text("messages")
        await page.until("steps", lambda text: "Endcompleted" in text)
        await page.evaluate("document.querySelector('#steps details.sent').open = true")
        shown = (await page.until("steps", lambda text: "6 characterstides?" in text))[-1]
        assert "assistant " in shown
        await page.click("[data-act=agent]")
        assert "Instructions" in (await page.until("dialog", lambda text: "rest" in text))[-1]
        await page.evaluate("document.querySelector('dialog').close(); showTotals()")
        assert "Rester" in (await page.until("dialog", lambda text: "Totals" in text))[-1]


async def test_a_refused_message_stays_in_its_dialog(site: InspectorSite, tmp_path: Path):
    """The dialog of a new session closes when the run is accepted, and says why it was not."""
    async with open_browser(f"{site.host.url}/api/inspector", tmp_path / "browser") as page:
        await page.until("agent", bool)
        await page.evaluate(
            "newSession(); document.querySelector('dialog input').value = 'a/b';"
            "document.querySelector('dialog textarea').value = 'precious';"
            "document.querySelector('dialog form').requestSubmit()"
        )
        await page.until("dialog", lambda text: "the session id has the character" in text)
        assert await page.evaluate("document.querySelector('dialog textarea').value") == "precious"


def test_the_page_contains_no_data(site: InspectorSite):
    """The page is the same for all callers, loads nothing from other origins, and forbids what it does not need."""
    response = site.host.get("/inspector")
    assert (response.status_code, response.headers["content-type"]) == (200, "text/html; charset=utf-8")
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert [fragment for fragment in ("unsafe", "http", "*") if fragment in policy] == []
    assert [
        fragment
        for fragment in ("innerHTML", "outerHTML", "insertAdjacentHTML", 'src="http')
        if fragment in response.text
    ] == []


async def test_model_calls_are_displayed(site: InspectorSite, model: PracticeModel, tmp_path: Path):
    """A step shows what was sent and what came back when it is opened, and files to download."""
    picture = {"type": "image_generation_call", "status": "completed", "result": "iVBORw0KGgo="}
    answer = {"items": [{"item": picture}, {"text": "Rested well."}]}
    model.plan({"calls": [{"name": "rest", "arguments": {"seconds": 0.01}}]}, answer)
    async with open_browser(site.url("Rester", "calls"), tmp_path / "browser") as page:
        await send_message(page, f"rest {HOSTILE}")
        await page.until("steps", lambda text: "Endcompleted" in text)
        await page.evaluate("document.querySelectorAll('#steps details.sent')[1].open = true")
        step_text = (await page.until("steps", lambda text: "function_call_output" in text))[-1]
        assert ("POST · http://" in step_text, '"instructions"' in step_text, HOSTILE in step_text) == (
            True,
            True,
            True,
        )
        assert "Rested well." in step_text
        buttons = "[...document.querySelectorAll('#steps button')]"
        assert await page.evaluate(f"{buttons}.filter((one) => one.textContent === 'Download').length") == 1
        assert await page.evaluate("typeof hacked") == "undefined"
