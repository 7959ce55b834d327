"""How long a stranger waits for "there is no such session", of one that exists and of one that does not, in turns.

    .venv/bin/python benchmarks/owners.py [--rounds 500]

The owner's own reads of a session and what `identify` costs are measured beside it.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit import AgentHost, hosted  # noqa: E402

APP = ROOT / "tests/durable_agent_host/apps/gate"


def milliseconds(ask: Callable[[], requests.Response], status: int) -> float:
    """Time one request."""
    began = time.perf_counter()
    answer = ask()
    elapsed = (time.perf_counter() - began) * 1000
    assert answer.status_code == status, answer.text
    return elapsed


def show(name: str, times: list[float]) -> None:
    """Print a line of figures."""
    ordered = sorted(times)
    p99 = ordered[int(len(ordered) * 0.99) - 1]
    print(f"{name:38} median {statistics.median(ordered):7.2f} ms   p99 {p99:7.2f} ms   n {len(ordered)}")


def measure(host: AgentHost, rounds: int) -> None:
    """Ask for both in turns, so that both meet the same neighbours."""
    http = requests.Session()
    base = f"{host.url}/api/agents/Echo/sessions"
    long = "words " * 4000
    begun = host.run("Echo", long, headers={"x-who": "ada"}, session_id="there")
    turn = begun.headers["x-ms-turn-id"]
    for path in ("", f"/turns/{turn}", "/files", "/export"):
        times: dict[str, list[float]] = {"there": [], "never": []}
        for _ in range(rounds):
            for session, found in times.items():
                url = f"{base}/{session}{path}"
                found.append(milliseconds(lambda url=url: http.get(url, headers={"x-who": "bob"}), 404))
        for session, found in times.items():
            show(f"stranger, GET {path or 'session'} ({session})"[:38], found)
    own = [milliseconds(lambda: http.get(f"{base}/there", headers={"x-who": "ada"}), 200) for _ in range(rounds)]
    show("owner, GET session", own)


def measure_runs(host: AgentHost, rounds: int) -> None:
    """Begin sessions under names that somebody else has and under free ones, in turns."""
    http, times = requests.Session(), {"taken": list[float](), "free": list[float]()}
    for number in range(rounds):
        assert host.run("Echo", "hi", headers={"x-who": "ada"}, session_id=f"taken-{number}").ok
        for name, found in times.items():
            url = f"{host.url}/api/agents/Echo/run?session_id={name}-{number}"
            found.append(milliseconds(lambda url=url: http.post(url, data=b"hi", headers={"x-who": "bob"}), 200))
    for name, found in times.items():
        show(f"names of one's own, POST run ({name})", found)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=500)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with hosted(data / "data", None, app=APP, LEDGER=str(data / "asked.txt")) as host:
            measure(host, rounds)
        own = {"LEDGER": str(data / "asked.txt"), "DURABLE_AGENT_HOST_SESSION_NAMES": "own"}
        with hosted(data / "names", None, app=APP, **own) as host:
            measure_runs(host, rounds)
        with hosted(data / "open", None, app=APP, LEDGER=str(data / "asked.txt"), NOBODY_IS_KNOWN="1") as host:
            assert host.run("Echo", "words " * 4000, session_id="there").ok
            http, url = requests.Session(), f"{host.url}/api/agents/Echo/sessions/there"
            show("nobody is known, GET session", [milliseconds(lambda: http.get(url), 200) for _ in range(rounds)])


if __name__ == "__main__":
    main()
