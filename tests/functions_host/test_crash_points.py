"""The host killed at every named point of the engine, and at random under load: it always ends in the same state."""

import json
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from functions_host.engine.crash_points import POINTS
from tests.functions_host.conftest import MANAGEMENT, Answer, Host, StartHost
from tests.processes import wait_until
from tests.sweeps import chooser, count

JSON = {"Content_Type": "application/json"}
OFTEN = ("orchestrator", "activity", "episode", "answer")
PASSES = (1, 4, 9)
"""Which passes of a point that is passed often."""
PLANS = [f"{point}:{nth}" for point in POINTS for nth in (PASSES if point.startswith(OFTEN) else (1,))]
KILLS = count("KILLS", short=8, long=200)
LARGE = "x" * 3_000_000
"""An input whose purge leaves space to give back."""
END = {
    "tour": (
        "Completed",
        {"squares": [0, 1, 4, 9], "child": [1, 1], "retried": "steady", "so_far_is_a_number": True, "event": 7},
    ),
    "squared": ("Completed", 9),
    "ended": ("Terminated", "enough"),
    "total": 2 * (14 + 100 + 1) + 1000,
    "purged": 404,
}


class Driver:
    """Asks a host for the same things whatever happens to it; a dead host is started again."""

    def __init__(self, start: Callable[[str], Host], crash: str) -> None:
        self._start = start
        self._point = crash.partition(":")[0]
        self.host = start(crash)
        self.crashes = 0

    def ask(self, method: str, path: str, body: str | None = None, commits: str = "") -> Answer | None:
        """Send a request; what was committed before the host died is not asked for again."""
        while True:
            try:
                return self.host.send(method, path, body, **(JSON if "raiseEvent" in path else {}))
            except OSError:
                self.revive()
                if commits and self._point == f"{commits}.after_commit":
                    return None

    def revive(self) -> None:
        """Start the host again; it must have died by itself."""
        assert self.host.process.wait(timeout=60) == -9
        self.host = self._start("")
        self.crashes += 1

    def status(self, instance_id: str) -> Any:
        """Read the status of an instance."""
        answer = self.ask("GET", f"{MANAGEMENT}/instances/{instance_id}")
        assert answer is not None
        return answer.json if answer.body else {"runtimeStatus": "None"}

    def wait(self, instance_id: str, *states: str) -> Any:
        """Wait until an instance is in one of these states."""
        return wait_until(lambda: (s := self.status(instance_id))["runtimeStatus"] in states and s, 30)


def live_through(driver: Driver) -> dict[str, Any]:
    """Use every command and every kind of task; returns what is there in the end."""
    ask, instances = driver.ask, f"{MANAGEMENT}/instances"
    ask("POST", f"{MANAGEMENT}/entities/running_total/k?op=add", '"1000"', commits="operation")
    ask("POST", f"{MANAGEMENT}/orchestrators/squares/squared", commits="start")
    ask("POST", f"{MANAGEMENT}/orchestrators/waits/ended", commits="start")
    ask("POST", f"{MANAGEMENT}/orchestrators/tour/tour", '{"key": "k", "left": 2}', commits="start")
    ask("POST", f"{instances}/tour/suspend", commits="suspend")
    ask("POST", f"{instances}/tour/resume", commits="suspend")
    ask("POST", f"{instances}/tour/raiseEvent/Go", "7", commits="event")
    ask("POST", f"{instances}/ended/terminate?reason=enough", commits="end")
    status = driver.wait("squared", "Completed")
    ask("DELETE", f"{instances}/squared", commits="purge")
    ask("POST", f"{MANAGEMENT}/orchestrators/waits/large", f'"\\"{LARGE}\\""', commits="start")
    ask("POST", f"{instances}/large/terminate?reason=enough", commits="end")
    ask("DELETE", f"{instances}/large", commits="purge")

    def second() -> bool:
        # The first event may belong to the second generation already: then this one is left over.
        ask("POST", f"{instances}/tour/raiseEvent/Go", "7", commits="event")
        return driver.status("tour")["runtimeStatus"] == "Completed"

    time.sleep(0.1)
    wait_until(second)
    tour, ended_status = driver.status("tour"), driver.status("ended")
    wait_until(lambda: read_total(driver) == END["total"])
    response = ask("GET", f"{instances}/squared")
    return {
        "tour": (tour["runtimeStatus"], tour["output"]),
        "squared": (status["runtimeStatus"], status["output"]),
        "ended": (ended_status["runtimeStatus"], ended_status["output"]),
        "total": read_total(driver),
        "purged": response.status if response else None,
    }


def read_total(driver: Driver) -> int:
    answer = driver.ask("GET", f"{MANAGEMENT}/entities/running_total/k")
    return answer.json if answer is not None and answer.status == 200 else 0


@pytest.mark.drawn(8)
@pytest.mark.parametrize("plan", PLANS)
def test_a_kill_at_any_point_has_the_result_of_a_run_without_one(start_host: StartHost, tmp_path: Path, plan: str):
    """A kill before or after any commit or call changes nothing in what there is in the end."""
    driver = Driver(lambda crash: start_host("mixed", tmp_path / "data", env={"FUNCTIONS_HOST_CRASH": crash}), plan)
    try:
        assert (live_through(driver), driver.crashes) == (END, 1)
    finally:
        driver.host.kill()


def sweep(start: Callable[[], Host], kills: int, chooser: random.Random) -> tuple[int, list[str], Host]:
    """Kill a host again and again while it works; returns the number of kills, the tours begun, and the last host."""
    tours: list[str] = []
    for n in range(kills):
        host = start()
        name = f"tour-{n}"
        order = json.dumps({"key": f"k{n % 3}", "left": 2})
        assert host.send("POST", f"{MANAGEMENT}/orchestrators/tour/{name}", order).status == 202
        tours.append(name)
        for other in chooser.sample(tours, min(4, len(tours))):
            host.send("POST", f"{MANAGEMENT}/instances/{other}/raiseEvent/Go", "7", **JSON)
        time.sleep(chooser.uniform(0, 0.15))
        host.kill()
        assert host.process.returncode == -9
    return kills, tours, start()


def finish(host: Host, tours: list[str]) -> tuple[set[str], int]:
    """Let all tours end; returns the kinds of end, and the sum over all entities."""

    def all_ended() -> list[Any]:
        found = [host.status(name) for name in tours]
        for status in found:
            if status["runtimeStatus"] == "Running":
                host.send("POST", f"{MANAGEMENT}/instances/{status['instanceId']}/raiseEvent/Go", "7", **JSON)
        return found if all(status["runtimeStatus"] in {"Completed", "Failed"} for status in found) else []

    outcomes = {json.dumps([status["runtimeStatus"], status["output"]]) for status in wait_until(all_ended)}
    expected_total = len(tours) * 2 * (14 + 100 + 1)

    def add_up() -> int:
        responses = [host.send("GET", f"{MANAGEMENT}/entities/running_total/k{n}") for n in range(3)]
        return sum(answer.json for answer in responses if answer.status == 200)

    wait_until(lambda: add_up() >= expected_total)
    time.sleep(0.3)  # whatever was done twice would come now
    return outcomes, add_up() - expected_total


@pytest.mark.sweep
@pytest.mark.timeout(600 + 4 * KILLS)
def test_random_kills_under_load(start_host: StartHost, tmp_path: Path):
    """Two hosts killed at random moments, again and again: every orchestration ends right, every sum is exact."""
    draw = chooser("engine kills")
    seeds = [draw.randrange(2**32) for _ in range(2)]

    def run(seed: int) -> tuple[int, set[str], int]:
        folder = tmp_path / str(seed)
        folder.mkdir()
        kills, tours, host = sweep(lambda: start_host("mixed", folder / "data"), KILLS // 2, random.Random(seed))
        outcomes, surplus = finish(host, tours)
        host.kill()
        return kills, outcomes, surplus

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(run, seeds))
    assert sum(kills for kills, _, _ in results) == 2 * (KILLS // 2)
    assert [(outcomes, surplus) for _, outcomes, surplus in results] == [({json.dumps(list(END["tour"]))}, 0)] * 2
