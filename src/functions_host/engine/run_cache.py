"""Generations in memory: the state that episodes need, read once and kept up to date."""

from collections import OrderedDict
from dataclasses import dataclass, field

from functions_host.engine.events import Event
from functions_host.engine.sdk_wire import decode_event
from functions_host.engine.sqlite_store import SqliteStore
from functions_host.engine.store_records import InstanceRecord

_CAPACITY = 1000


@dataclass(slots=True)
class Run:
    """A generation: its row, and the events of its history with their texts.

    ``cancelled_timers`` are gone from the store. ``hang`` says why the orchestrator does not go on, if it does not.
    ``busy`` while an episode runs; ``is_closed`` after a change from outside, which invalidates the running episode.
    """

    record: InstanceRecord
    is_suspended: bool
    events: list[Event] = field(default_factory=list[Event])
    texts: list[str] = field(default_factory=list[str])
    cancelled_timers: set[int] = field(default_factory=set[int])
    hang: str | None = None
    busy: bool = False
    is_closed: bool = False


class RunCache:
    """The most recently used generations; the store is authoritative.

    Args:
        store: where generations are read from.
    """

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self._runs: OrderedDict[str, Run] = OrderedDict()

    def load(self, instance_id: str) -> Run | None:
        """Load the generation of an instance; None when it is unknown or has ended."""
        run = self._runs.get(instance_id)
        if run is not None:
            self._runs.move_to_end(instance_id)
            return run
        record = self._store.find_instance(instance_id)
        if record is None or record.is_terminal:
            return None
        texts = self._store.read_history(record.key)
        run = Run(record, record.is_suspended, [decode_event(text) for text in texts], texts)
        self._evict_oldest()
        self._runs[instance_id] = run
        return run

    def find(self, instance_id: str) -> Run | None:
        """Find the generation in memory."""
        return self._runs.get(instance_id)

    def drop(self, instance_id: str) -> Run | None:
        """Drop a generation; returns it if it was in memory."""
        return self._runs.pop(instance_id, None)

    def _evict_oldest(self) -> None:
        if len(self._runs) >= _CAPACITY:
            idle = next((key for key, run in self._runs.items() if not run.busy), None)
            if idle is not None:
                self.drop(idle)
