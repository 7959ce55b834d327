"""Whatever a caller sends, it is answered, never with 500, and harms no session."""

from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from durable_agent_host.http.routes import ROUTES
from tests.durable_agent_host.hostile_requests import Shares, draw
from tests.durable_agent_host.hostile_seeds import seeds
from tests.durable_agent_host.hostile_traffic import play
from tests.kit import AgentHost, PracticeModel, running_host
from tests.sweeps import chooser, count

MUTATIONS = count("MUTATIONS", short=15_000, long=1_000_000)
BATCH = 50_000
AT_ONCE = 4
SHARES = Shares(costly=0.01, host=0.6)
APP = Path(__file__).parent / "apps" / "hostile"
MOST_GROWTH_MB = 150


def megabytes(host: AgentHost) -> float:
    """Read how much memory the host uses now."""
    lines = Path(f"/proc/{host.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


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

    def is_asked(method: str, template: str) -> bool:
        wanted = template.split("/")
        return any(
            sent.method == method
            and len(sent.path) == len(wanted) + 2
            and all(name.startswith("{") or name == part for name, part in zip(wanted, sent.path[2:], strict=True))
            for sent in seeds("Clerk")
        )

    assert not [route.name for route in ROUTES if not is_asked(route.method, route.template)]


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
        left, used = MUTATIONS, 0.0
        while left > 0:
            requests = draw(draws, seeds(agent), min(left, BATCH), SHARES)
            outcome = play(port, requests, AT_ONCE)
            left -= len(requests)
            print(MUTATIONS - left, dict(outcome.statuses), f"{megabytes(host):.0f} MB", flush=True)
            assert not outcome.failures, "\n\n".join(
                f"{sent!r}\n  {answer!r}\n{last_traceback(host)}"
                for sent, answer in list(outcome.failures.items())[:20]
            )
            assert not used or megabytes(host) - used < MOST_GROWTH_MB
            used = used or megabytes(host)
        assert host.get("/health").ok
        assert not broken_sessions(host, agent)
        assert not last_traceback(host)
