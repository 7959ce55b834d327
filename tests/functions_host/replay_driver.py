"""Drives the real SDK with the pure core alone: no store, no clock, no process.

Every episode reads the whole history anew from its texts, so that what is decided depends on nothing else.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from azure.durable_functions import Orchestrator

from functions_host.engine.decision import Catalog
from functions_host.engine.durable_functions import Raised, Returned
from functions_host.engine.episodes import Episode, close_episode, open_episode, read_answer
from functions_host.engine.events import Completion
from functions_host.engine.run_cache import Run
from functions_host.engine.sdk_wire import decode_event, encode_event
from functions_host.engine.store_records import Arrival, EpisodeCommit, InstanceRecord

START = 1_930_000_000.0
CATALOG = Catalog(frozenset({"flow", "child"}), frozenset({"work", "flaky", "prepare"}), frozenset({"till"}))


@dataclass
class Player:
    """One generation of an orchestrator, played episode by episode."""

    orchestrator: Callable[[Any], Any]
    input_json: str | None = None
    history: list[str] = field(default_factory=list)
    commits: list[EpisodeCommit] = field(default_factory=list)
    now: float = START

    def play(self, *delivered_events: Completion) -> EpisodeCommit:
        """Play one episode with these arrivals; returns what it commits."""
        self.now += 1
        run = self._reload()
        arrivals = [Arrival(n, encode_event(event, self.now)) for n, event in enumerate(delivered_events)]
        episode = open_episode(run, arrivals, self.now)
        commit = close_episode(
            episode,
            read_answer(self._call(episode)),
            catalog=CATALOG,
            new_id=lambda: "next",
            find_instance=lambda _: None,
        )
        self.history += episode.texts
        self.commits.append(commit)
        return commit

    def scheduled_tasks(self) -> list[tuple[str, int]]:
        """The numbers of all scheduled tasks, in history order."""
        names = {4: "activity", 7: "child", 10: "timer", 14: "entity"}
        bodies = [json.loads(text) for text in self.history]
        return [(names[body["EventType"]], body["EventId"]) for body in bodies if body["EventType"] in names]

    def _call(self, episode: Episode) -> Returned | Raised:
        handle = Orchestrator.create(self.orchestrator)
        try:
            return Returned(handle(SimpleNamespace(body=episode.encode_context(has_timer_legs=True))))
        except Exception as error:  # noqa: BLE001 - the SDK raises plain exceptions
            return Raised(type(error).__name__, str(error))

    def _reload(self) -> Run:
        record = InstanceRecord(
            1, "flow-1", "flow", "", "exec-1", "Running", False, self.input_json, None, None, None, START, START
        )
        events = [decode_event(text) for text in self.history]
        for event, text in zip(events, self.history, strict=True):
            assert encode_event(event, 0).split('"Timestamp"')[0] == text.split('"Timestamp"')[0]
        return Run(record, False, events, list(self.history))


def play_all(orchestrator: Callable[[Any], Any], arrivals: Sequence[Sequence[Completion]]) -> Player:
    """Play the opening episode and one for each group of arrivals."""
    player = Player(orchestrator)
    player.play()
    for group in arrivals:
        player.play(*group)
    return player
