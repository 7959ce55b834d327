"""Code that asks whether it is a replay."""

from collections.abc import Iterator

import pytest

from tests.functions_host.conftest import Host, StartHost


@pytest.fixture(scope="module")
def host(start_host: StartHost, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """An app whose orchestrator asks."""
    running = start_host("driven", tmp_path_factory.mktemp("replays") / "data")
    yield running
    running.stop()


def test_a_step_is_new_once(host: Host):
    """A line that is logged when it is not a replay is logged once per step, the last step's as well."""
    host.result("logged", 6)
    lines = [line for line in host.log.read_text().splitlines() if "new step" in line]
    assert [line.rpartition(" ")[2] for line in lines] == ["0", "1", "2", "3", "4", "5"]
