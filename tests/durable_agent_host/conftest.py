"""Processes that the scenarios share: a practice model, the project's own app, and the lab."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import requests

from durable_agent_host.durable.turn_orchestrator import TURN_ORCHESTRATION
from tests.kit import AgentHost, Lives, PracticeModel, running_host, start_host, start_model

LAB = Path(__file__).parent / "apps" / "lab"
PEOPLE = Path(__file__).parent / "apps" / "people"


class Reborn:
    """A host that always comes back under the same URL."""

    def __init__(self, data: Path, model: PracticeModel, **env: str) -> None:
        self.start: Callable[[int], AgentHost] = lambda port: start_host(data, model, app=LAB, port=port, **env)
        self.host = self.start(0)
        self.url = self.host.url

    def crash(self) -> None:
        """Kill the host and start it again."""
        self.host.kill()
        self.host = self.start(int(self.url.rpartition(":")[2]))


@pytest.fixture(scope="session")
def practice_model() -> Iterator[PracticeModel]:
    """A practice model for the whole run."""
    running = start_model()
    yield running
    running.stop()


@pytest.fixture
def model(practice_model: PracticeModel) -> PracticeModel:
    """The practice model, with nothing scripted and nothing received."""
    practice_model.reset()
    return practice_model


@pytest.fixture(scope="session")
def _host(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    with running_host(tmp_path_factory.mktemp("host"), practice_model) as running:
        yield running


@pytest.fixture(scope="session")
def _ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ledger") / "ledger.txt"


@pytest.fixture(scope="session")
def _lab(practice_model: PracticeModel, _ledger: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    with running_host(tmp_path_factory.mktemp("lab"), practice_model, app=LAB, LEDGER=str(_ledger)) as running:
        yield running


@pytest.fixture(scope="session")
def _book(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("book") / "book.txt"


@pytest.fixture(scope="session")
def _people(
    practice_model: PracticeModel, _book: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AgentHost]:
    with running_host(tmp_path_factory.mktemp("people"), practice_model, app=PEOPLE, LEDGER=str(_book)) as running:
        yield running


@pytest.fixture
def book(_book: Path) -> Path:
    """The file to which the tools of the app ``people`` write, empty."""
    _book.write_text("")
    return _book


def end_turns(host: AgentHost) -> None:
    """Terminate the turns that a test has left: their model calls would get what the next test has scripted."""
    running = {"runtimeStatus": "Running,Pending,Suspended"}
    for instance in requests.get(f"{host.management}/instances", params=running).json():
        if instance["name"] == TURN_ORCHESTRATION:
            requests.post(f"{host.management}/instances/{instance['instanceId']}/terminate")


@pytest.fixture
def people(_people: AgentHost, model: PracticeModel) -> Iterator[AgentHost]:
    """A host with agents whose tools take long or need a person."""
    yield _people
    end_turns(_people)


@pytest.fixture
def ledger(_ledger: Path) -> Path:
    """The file to which the lab's tool writes its charges, empty."""
    _ledger.write_text("")
    return _ledger


@pytest.fixture
def host(_host: AgentHost, model: PracticeModel) -> Iterator[AgentHost]:
    """A host with the project's own app."""
    yield _host
    end_turns(_host)


@pytest.fixture
def lab(_lab: AgentHost, model: PracticeModel) -> Iterator[AgentHost]:
    """A host with the lab's app."""
    yield _lab
    end_turns(_lab)


@pytest.fixture
def lives(model: PracticeModel, tmp_path: Path) -> Iterator[Callable[..., Lives]]:
    """Hosts that can crash, each on a data directory of its own."""
    hosts: list[Lives] = []

    def start(app: Path = LAB, **env: str) -> Lives:
        folder = tmp_path / str(len(hosts))
        hosts.append(Lives(folder, model, app=app, LEDGER=str(tmp_path / "ledger.txt"), **env))
        return hosts[-1]

    yield start
    for life in hosts:
        life.host.kill()
