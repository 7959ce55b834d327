"""The host killed at random under load, again and again: every client gets its answer, nothing happens twice.

That is so whichever store has the turn log. A seed repeats the moments of an earlier run, as far as a machine does the
same thing twice.
"""

import itertools
import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.durable_agent_host.crash.oracle import Figures, Witnesses, check_case, check_site, read_result
from tests.durable_agent_host.crash.scenarios import SCENARIOS, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel
from tests.kit_services import turn_log_of
from tests.sweeps import chooser, count

KILLS = {kind: count("KILLS", short=short, long=300) for kind, short in (("sqlite", 4), ("redis", 2), ("blob", 2))}
"""By the store of the turn log; engine and sessions are in SQLite always, so the others need fewer."""
SESSIONS = 5
MAX_LIFE_SECONDS = 1.2
"""From when the host is ready. Every fifth is killed before: so soon after its process began."""
SHORT_LIFE_CHANCE = 0.2


def keep_playing(site: Site, numbers: Iterator[int], stop: threading.Event) -> list[Case]:
    """Hold one session after the other until it is enough, and all scenarios have had their turn."""
    names = list(SCENARIOS)
    cases: list[Case] = []
    for number in numbers:
        if stop.is_set() and number >= len(names):
            return cases
        cases.append(Case(site, names[number % len(names)]).run())
    return cases


def kill_at_random(site: Site, kills: int, chooser: random.Random, players: list[Future[list[Case]]]) -> None:
    """Kill the host at random moments of its life; stop early when a client has failed."""
    while len(site.kills) < kills:
        time.sleep(chooser.uniform(0, MAX_LIFE_SECONDS))
        if any(player.done() for player in players):
            return  # a client has failed
        short = chooser.random() < SHORT_LIFE_CHANCE
        site.kill(next_life_seconds=chooser.uniform(0, MAX_LIFE_SECONDS) if short else None)


@pytest.mark.drawn(1)
@pytest.mark.sweep
@pytest.mark.timeout(600 + 12 * max(KILLS.values()))
@pytest.mark.parametrize("kind", KILLS)
def test_random_kills_under_load(kind: str, practice_model: PracticeModel, tmp_path: Path):
    """Five sessions at once, in all scenarios, on a host that is killed again and again: all is as undisturbed."""
    practice_model.reset()
    with turn_log_of(kind, tmp_path) as env:
        kill_under_load(Site(tmp_path, practice_model, env=env), kind)


def kill_under_load(site: Site, kind: str) -> None:
    """Play all scenarios undisturbed; then play and kill at the same time, and look at what has come of it all."""
    kills, stop = KILLS[kind], threading.Event()
    figures = Figures()
    try:
        with ThreadPoolExecutor(SESSIONS) as pool:
            undisturbed = pool.map(lambda name: read_result(Case(site, name).run()), SCENARIOS)
            baselines = dict(zip(SCENARIOS, undisturbed, strict=True))
            numbers = itertools.count()
            players = [pool.submit(keep_playing, site, numbers, stop) for _ in range(SESSIONS)]
            try:
                kill_at_random(site, kills, chooser(f"kills, {kind}"), players)
            finally:
                stop.set()
        cases = [case for player in players for case in player.result()]
        witnesses = Witnesses.read(site)
        figures.counts.update({"kills": len(site.kills), "sessions": len(cases)})
        figures.counts["most kills in one session"] = max(case.kills for case in cases)
        for case in cases:
            try:
                check_case(case, baselines[case.name], witnesses, figures)
            except Exception as error:
                error.add_note(case.tag)
                raise
        check_site(site)
    finally:
        site.close()
    print(figures)
    assert len(site.kills) >= kills
    assert {case.name for case in cases} == set(SCENARIOS)
