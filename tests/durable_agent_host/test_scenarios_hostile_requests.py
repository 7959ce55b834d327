"""Whatever a caller sends, it is answered, never with 500, and harms no session."""

from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from durable_agent_host.http.routes import ROUTES
from tests.durable_agent_host.hostile_requests import Shares, draw
from tests.durable_agent_host.hostile_seeds import seeds
from tests.durable_agent_host.hostile_traffic import play
from tests.durable_agent_host.process_memory import read_memory_bytes
from tests.kit import AgentHost, PracticeModel, running_host
from tests.sweeps import chooser, count

MUTATIONS = count("MUTATIONS", short=2_500, long=1_000_000)
BATCH = 50_000
AT_ONCE = 4
SHARES = Shares(costly=0.01, host=0.6)
APP = Path(__file__).parent / "apps" / "hostile"
MAX_GROWTH_BYTES = 150 << 20


def last_traceback(host: AgentHost) -> str:
    """Give what the log has of the last exception, caught or not; empty when it has none."""
    text = "".join(host.output)
    at = max(text.rfind(mark) for mark in ("Traceback", "never retrieved", "Exception ignored"))
    return text[max(at - 2000, 0) : at + 4000] if at >= 0 else ""


def broken_sessions(host: AgentHost, agent: str) -> dict[str, str]:
    """Verify all sessions of an agent; gives those that are not whole, and what is wrong."""
    broken: dict[str, str] = {}
    cursor = ""
    while True:
        page = host.get(f"/agents/{agent}/sessions?limit=1000{cursor}").json()
        for session in page["sessions"]:
            name = session["session_id"]
            report = host.get(f"/agents/{agent}/sessions/{quote(name, safe='')}/verify")
            if not report.ok or not all(_is_of_the_document(problem) for problem in report.json()["problems"]):
                broken[name] = report.text
        if not page.get("cursor"):
            return broken
        cursor = f"&cursor={quote(page['cursor'])}"


def _is_of_the_document(problem: dict[str, str]) -> bool:
    """Whether an import brought it: entries of a type that is not known are kept as they are, and told by verify."""
    return problem["problem"].startswith("its type ") and problem["problem"].endswith(" is not known")


def test_every_route_has_a_good_request():
    """A route that is added gets a request that can be broken."""

    def is_covered(method: str, template: str) -> bool:
        template_parts = template.split("/")
        return any(
            sent.method == method
            and len(sent.path) == len(template_parts) + 2
            and all(
                name.startswith("{") or name == part for name, part in zip(template_parts, sent.path[2:], strict=True)
            )
            for sent in seeds("Clerk")
        )

    assert not [route.name for route in ROUTES if not is_covered(route.method, route.template)]


@pytest.mark.sweep
@pytest.mark.timeout(max(900, MUTATIONS // 20))
def test_no_request_breaks_the_host(practice_model: PracticeModel, tmp_path: Path):
    """Drawn mutations of good requests to all routes of host and app: no 500, no hang, no traceback, no leak."""
    practice_model.reset()
    practice_model.plan({"text": "Hello."}, times=None, user_text="Hi")
    pay = {"calls": [{"name": "pay", "arguments": {"amount": 1}}]}
    practice_model.plan(pay, {"text": "Paid."}, by_round=True, user_text="Pay")
    draws = chooser("hostile requests")
    with running_host(tmp_path / "data", practice_model, app=APP, DURABLE_AGENT_HOST_WAIT_SECONDS="1") as host:
        port = urlsplit(host.url).port or 0
        agent = host.get("/agents").json()["agents"][0]["name"]
        remaining_count, memory_bytes = MUTATIONS, 0
        while remaining_count > 0:
            requests = draw(draws, seeds(agent), min(remaining_count, BATCH), SHARES)
            outcome = play(port, requests, AT_ONCE)
            remaining_count -= len(requests)
            print(
                MUTATIONS - remaining_count, dict(outcome.statuses), f"{read_memory_bytes(host) >> 20} MB", flush=True
            )
            assert not outcome.failures, "\n\n".join(
                f"{sent!r}\n  {response!r}\n{last_traceback(host)}"
                for sent, response in list(outcome.failures.items())[:20]
            )
            assert not memory_bytes or read_memory_bytes(host) - memory_bytes < MAX_GROWTH_BYTES
            memory_bytes = memory_bytes or read_memory_bytes(host)
        assert host.get("/health").ok
        assert not broken_sessions(host, agent)
        assert not last_traceback(host)
