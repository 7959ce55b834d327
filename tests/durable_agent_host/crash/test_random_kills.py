"""The host killed at random under load, again and again: every client gets its answer, nothing happens twice.

The long run is ``KILLS=300 pytest tests/durable_agent_host/crash/test_random_kills.py -s``; ``SEED`` repeats the
moments of an earlier run, as far as a machine does the same thing twice.
"""

import itertools
import os
import random
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.durable_agent_host.crash.oracle import Figures, Told, Witnesses, check_case, check_site
from tests.durable_agent_host.crash.scenarios import SCENARIOS, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel

KILLS = int(os.environ.get("KILLS", "25"))
SESSIONS = 8
LONGEST_LIFE_SECONDS = 1.2
"""From when the host is ready. Every fifth is killed before: so soon after its process began."""
SHORT_LIFE_CHANCE = 0.2


def keep_playing(site: Site, first: int, stop: threading.Event) -> list[Case]:
    """Hold one session after the other, in all scenarios, until it is enough."""
    names = list(SCENARIOS)
    cases: list[Case] = []
    for number in itertools.count(first):
        if stop.is_set():
            return cases
        cases.append(Case(site, names[number % len(names)]).run())
    return cases


def kill_at_random(site: Site, chooser: random.Random, players: list[Future[list[Case]]]) -> None:
    """Kill the host at random moments of its life; stop early when a client has failed."""
    while len(site.kills) < KILLS:
        time.sleep(chooser.uniform(0, LONGEST_LIFE_SECONDS))
        if any(player.done() for player in players):
            return  # a client has failed
        short = chooser.random() < SHORT_LIFE_CHANCE
        site.kill(next_life_seconds=chooser.uniform(0, LONGEST_LIFE_SECONDS) if short else None)


@pytest.mark.timeout(120 + 12 * KILLS)
def test_random_kills_under_load(practice_model: PracticeModel, undisturbed: dict[str, Told], tmp_path: Path):
    """Eight sessions at once, in all scenarios, on a host that is killed again and again: all is as undisturbed."""
    seed = int(os.environ.get("SEED") or random.randrange(2**32))
    site, stop = Site(tmp_path, practice_model), threading.Event()
    figures = Figures()
    try:
        with ThreadPoolExecutor(SESSIONS) as pool:
            players = [pool.submit(keep_playing, site, first, stop) for first in range(SESSIONS)]
            try:
                kill_at_random(site, random.Random(seed), players)
            finally:
                stop.set()
        cases = [case for player in players for case in player.result()]
        witnesses = Witnesses.hear(site)
        figures.counts.update({"seed": seed, "kills": len(site.kills), "sessions": len(cases)})
        figures.counts["most kills in one session"] = max(case.kills for case in cases)
        for case in cases:
            try:
                check_case(case, undisturbed[case.name], witnesses, figures)
            except Exception as error:
                error.add_note(f"{case.tag}, seed {seed}")
                raise
        check_site(site)
    finally:
        site.close()
    print(figures)
    assert len(site.kills) >= KILLS
    assert {case.name for case in cases} == set(SCENARIOS)
