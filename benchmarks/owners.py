"""What owners cost: how long a stranger waits for "there is no such session", and lists.

    .venv/bin/python benchmarks/owners.py [--rounds 500] [--only reads|lists] [--strangers 5000]

What is compared is asked in an order that is drawn for each round, so that both meet the same neighbours, and neither
always comes first. ``ratio`` is that of the medians.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import requests

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.kit import AgentHost, running_host  # noqa: E402

APP = ROOT / "tests/durable_agent_host/apps/gate"
OWN = 20
"""Sessions of the owner whose list is asked for."""

type Ask = Callable[[], requests.Response]


def milliseconds(ask: Ask, status: int) -> float:
    """Time one request."""
    began = time.perf_counter()
    answer = ask()
    elapsed = (time.perf_counter() - began) * 1000
    assert answer.status_code == status, answer.text
    return elapsed


def in_turns(rounds: int, asks: Mapping[str, Callable[[int], Ask]], status: int) -> dict[str, list[float]]:
    """Time several requests in each round, in an order that is drawn."""
    times: dict[str, list[float]] = {name: [] for name in asks}
    for number in range(rounds):
        for name in random.sample([*asks], len(asks)):
            times[name].append(milliseconds(asks[name](number), status))
    return times


def show(what: str, times: Mapping[str, list[float]]) -> None:
    """Print a line of figures for each."""
    for name, found in times.items():
        p99 = statistics.quantiles(found, n=100, method="inclusive")[98]
        label = f"{what} ({name})" if name else what
        print(f"{label:44} median {statistics.median(found):7.2f} ms   p99 {p99:7.2f} ms   n {len(found)}")
    if len(times) == 2:
        one, two = (statistics.median(found) for found in times.values())
        print(f"{'':44} ratio {one / two:.3f}")


def measure_reads(host: AgentHost, rounds: int) -> None:
    """Ask for a session of somebody else and for one that there never was."""
    http = requests.Session()
    base = f"{host.url}/api/agents/Echo/sessions"
    begun = host.run("Echo", "words " * 4000, headers={"x-who": "ada"}, session_id="there")
    turn = begun.headers["x-ms-turn-id"]

    def ask(session: str, path: str, who: str = "bob") -> Callable[[int], Ask]:
        return lambda _: lambda: http.get(f"{base}/{session}{path}", headers={"x-who": who})

    for path in ("", f"/turns/{turn}", "/files", "/export"):
        asks = {session: ask(session, path) for session in ("there", "never")}
        show(f"stranger, GET {path.partition(turn)[0] or 'session'}", in_turns(rounds, asks, 404))
    show("owner, GET session", in_turns(rounds, {"": ask("there", "", "ada")}, 200))


def cpu_seconds(host: AgentHost) -> float:
    """Read how long the host's process has computed."""
    fields = Path(f"/proc/{host.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def begin_sessions(host: AgentHost, count: int, who: str) -> None:
    """Store sessions of two messages; ``{}`` in the name of the owner is the number of the session."""
    said = {"createdAt": "2026-01-01T00:00:00+00:00", "correlationId": "0", "messages": []}
    text = {"role": "user", "contents": [{"$type": "text", "text": "words " * 150}]}
    entries = [{"$type": kind, **said, "messages": [text]} for kind in ("request", "response")]
    body = json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}})

    def store(number: int) -> None:
        name = who.format(number)
        url = f"{host.url}/api/agents/Echo/sessions/of-{name}-{number}/import"
        answer = requests.post(url, data=body, headers={"x-who": name, "content-type": "application/json"}, timeout=60)
        assert answer.ok, answer.text

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(store, range(count)))


def measure_lists(host: AgentHost, rounds: int, strangers: int) -> None:
    """Ask for an owner's list before there are strangers, and with them."""
    http, url = requests.Session(), f"{host.url}/api/agents/Echo/sessions"
    begin_sessions(host, OWN, "ada")
    for count in (0, strangers):
        begin_sessions(host, count, "stranger-{}")
        for who, own in (("ada", OWN), ("nobody", 0)):

            def ask(who: str = who) -> requests.Response:
                return http.get(url, headers={"x-who": who})

            assert len(ask().json()["sessions"]) == own
            began = cpu_seconds(host)
            times = [milliseconds(ask, 200) for _ in range(rounds)]
            computed = (cpu_seconds(host) - began) * 1000 / rounds
            show(f"list of {own}, among {count} of others", {"": times})
            print(f"{'':44} processor {computed:.2f} ms")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--only", choices=("reads", "lists"))
    parser.add_argument("--strangers", type=int, default=5000)
    asked = parser.parse_args()

    def wants(name: str) -> bool:
        return asked.only in (None, name)

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        env = {"LEDGER": str(data / "asked.txt")}
        if wants("reads"):
            with running_host(data / "data", None, app=APP, **env) as host:
                measure_reads(host, asked.rounds)
            with running_host(data / "open", None, app=APP, **env, NOBODY_IS_KNOWN="1") as host:
                assert host.run("Echo", "words " * 4000, session_id="there").ok
                http, url = requests.Session(), f"{host.url}/api/agents/Echo/sessions/there"
                asks: dict[str, Callable[[int], Ask]] = {"": lambda _: lambda: http.get(url)}
                show("nobody is known, GET session", in_turns(asked.rounds, asks, 200))
        if wants("lists"):
            with running_host(data / "lists", None, app=APP, **env) as host:
                measure_lists(host, asked.rounds, asked.strangers)


if __name__ == "__main__":
    main()
