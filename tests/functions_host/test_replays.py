"""Orchestrators that depend on being replayed: drivers, and code that asks whether it is a replay."""

from collections.abc import Iterator

import pytest

from tests.functions_host.conftest import Host, StartHost


@pytest.fixture(scope="module")
def host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """The app of drivers."""
    running = start_host("driven", tmp_path_factory.mktemp("replays") / "data")
    yield running
    running.stop()


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", ["decorated", "delegating", "wrapped"])
@pytest.mark.parametrize("count", [0, 1, 2, 12])
def test_a_driver_that_runs_a_function_again_returns_its_result(host: Host, name: str, count: int):
    """Of a function that is meant to be run from its beginning on each replay, too."""
    expected_total = sum(number + 1 for number in range(count))
    assert host.result(name, count) == expected_total


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", ["checkpoints", "checkpoints_elsewhere"])
@pytest.mark.parametrize("count", [2, 5, 8, 20])
def test_only_the_last_step_is_new_to_the_last_run(host: Host, name: str, count: int):
    """What ``is_replaying`` was at earlier steps is what the last replay says, wherever the code asks."""
    assert host.result(name, count) == [count - 1]


def test_a_step_is_new_once(host: Host):
    """A line that is logged when it is not a replay is logged once per step, the last step's as well."""
    host.result("logged", 6)
    lines = [line for line in host.log.read_text().splitlines() if "new step" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["0", "1", "2", "3", "4", "5"]
