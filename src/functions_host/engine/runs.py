"""Generations in memory: what an episode needs of its instance, read once and then kept up to date."""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from functions_host.engine.events import Event
from functions_host.engine.ledger import Ledger
from functions_host.engine.records import InstanceRecord
from functions_host.engine.sdk_wire import decode_event, is_replayed
from functions_host.engine.sqlite import SqliteStore
from functions_host.engine.work import RetriedAction

_CAPACITY = 1000


@dataclass(slots=True)
class Run:
    """A generation: its row, the fold of its history, and the events that the SDK replays.

    ``busy`` while an episode is running; ``closed`` once the instance was changed from outside, so that
    what the episode decides must not be committed. While the orchestrator is resident, ``token`` names it,
    ``shown`` counts the events of ``replay`` that it has seen and ``replayed_length`` those of the history at
    its last full replay.
    """

    record: InstanceRecord
    suspended: bool
    ledger: Ledger = field(default_factory=Ledger)
    replay: list[str] = field(default_factory=list[str])
    retried: dict[int, RetriedAction] = field(default_factory=dict[int, RetriedAction])
    length: int = 0
    busy: bool = False
    closed: bool = False
    token: str | None = None
    shown: int = 0
    replayed_length: int = 0

    @property
    def is_replay_due(self) -> bool:
        """Say whether the next episode has to be a full replay although the orchestrator is resident.

        It is whenever the history has doubled: an orchestrator that takes another path when it is replayed
        is found out, and all replays together cost no more than two passes over the history.
        """
        return self.length >= 2 * self.replayed_length

    def append(self, event: Event, text: str) -> None:
        """Add one committed event of the history."""
        self.ledger.apply(event)
        if is_replayed(event):
            self.replay.append(text)
        self.length += 1


class RunCache:
    """The generations that were looked at last; the store remains the truth.

    Args:
        store: where generations are read from.
        release: told the token of each resident orchestrator whose generation is forgotten.
    """

    def __init__(self, store: SqliteStore, release: Callable[[str], None]) -> None:
        self._store = store
        self._release = release
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def load(self, instance_id: str) -> Run | None:
        """Get the generation of an instance; None when there is none, or it has ended."""
        run = self._runs.get(instance_id)
        if run is not None:
            self._runs.move_to_end(instance_id)
            return run
        record = self._store.find_instance(instance_id)
        if record is None or record.is_terminal:
            return None
        run = Run(record, record.suspended)
        for text in self._store.read_history(record.key):
            run.append(decode_event(text), text)
        self._make_room()
        self._runs[instance_id] = run
        return run

    def find(self, instance_id: str) -> Run | None:
        """Get the generation if it is in memory."""
        return self._runs.get(instance_id)

    def drop(self, instance_id: str) -> Run | None:
        """Forget a generation; returns it if it was in memory."""
        run = self._runs.pop(instance_id, None)
        if run is not None and run.token is not None:
            self._release(run.token)
        return run

    def _make_room(self) -> None:
        if len(self._runs) >= _CAPACITY:
            idle = next((key for key, run in self._runs.items() if not run.busy), None)
            if idle is not None:
                self.drop(idle)
