"""Turns fail and are resumed while the host is killed again and again: one effect, one key, each told."""

import itertools
import json
import random
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.durable_agent_host.crash import clients
from tests.durable_agent_host.crash.oracle import check_site
from tests.durable_agent_host.crash.scenarios import call, say
from tests.durable_agent_host.crash.site import Site
from tests.durable_agent_host.crash.test_random_kills import SESSIONS, kill_at_random
from tests.kit import PracticeModel
from tests.sweeps import chooser, count

KILLS = count("KILLS", short=3, long=60)
DOWN = {"error": {"status": 503, "message": "down"}}
SETTINGS = {"DURABLE_AGENT_HOST_MODEL_ATTEMPTS": "2", "DURABLE_AGENT_HOST_MODEL_RETRY_SECONDS": "0.01"}
REPEATABLE = "again"
"""The tool that may run again; others have one effect, wherever the host was killed."""


def plan_outages(model: PracticeModel, mark: str) -> None:
    """Script a turn in which the service is down after each round of tools; repeated requests take further steps."""
    rounds = [call("note"), call("note", REPEATABLE), call("note", "note")]
    steps: list[dict[str, Any]] = []
    for number, step in enumerate(rounds):
        calls = [
            {**tool, "arguments": {"line": f"{mark}{number}/{position}"}} for position, tool in enumerate(step["calls"])
        ]
        steps += [step | {"calls": calls}, *[DOWN] * 3]
    model.plan(*steps, say("Done."), user_text=mark)


def end_turn(site: Site, request: clients.TurnRequest, chance: random.Random) -> None:
    """Send a request until it has an answer: with its key, or by hand; some callers give up."""
    for _ in range(chance.randrange(2, 12)):
        clients.retry(site, request)
        if request.status == 200:
            return
        if chance.random() < 0.5:
            resumed = site.ask("POST", clients.turn_path(request, "/resume"))
            assert resumed.status_code in {202, 409}, resumed.text
            clients.await_end(site, request)


def keep_failing(site: Site, numbers: Iterator[int], stop: threading.Event, chance: random.Random) -> list[str]:
    """Hold one session after the other until it is enough; each has two such turns, and one that nothing disturbs."""
    sessions: list[str] = []
    while not stop.is_set():
        session = f"failing-{next(numbers)}"
        for turn in range(2):
            mark = f"[{session}/{turn}]"
            plan_outages(site.model, mark)
            end_turn(site, clients.new_request("Worker", session, f"{mark} Do your work."), chance)
        last = clients.retry(site, clients.new_request("Worker", session, "Are you there?"))
        assert last.status == 200, last.answer
        sessions.append(session)
    return sessions


def check_effects(site: Site, sessions: list[str]) -> int:
    """Check that each effect took place once, under one key, and is part of its session; return their number."""
    lines: dict[str, list[Any]] = {}
    for effect in site.effects():
        lines.setdefault(effect.line, []).append(effect)
    told = {session: json.dumps(site.ask("GET", f"/agents/Worker/sessions/{session}").json()) for session in sessions}
    for line, effects in lines.items():
        assert len({effect.key for effect in effects}) == 1, effects
        assert len(effects) == 1 or effects[0].tool == REPEATABLE, effects
        assert line in told[line[1:].partition("/")[0]], line
    for session in sessions:
        assert site.ask("GET", f"/agents/Worker/sessions/{session}/verify").json()["problems"] == []
    return len(lines)


@pytest.mark.drawn(1)
@pytest.mark.sweep
@pytest.mark.timeout(600 + 12 * KILLS)
def test_kills_while_turns_fail_and_resume(practice_model: PracticeModel, tmp_path: Path):
    """Wherever a failed or resumed turn is cut off, its effects are neither repeated nor lost from the conversation."""
    site, stop, numbers = Site(tmp_path, practice_model, env=SETTINGS), threading.Event(), itertools.count()
    try:
        with ThreadPoolExecutor(SESSIONS) as pool:
            seeds = chooser("failing")
            players = [
                pool.submit(keep_failing, site, numbers, stop, random.Random(seeds.random())) for _ in range(SESSIONS)
            ]
            try:
                kill_at_random(site, KILLS, chooser("kills, failing"), players)
            finally:
                stop.set()
        sessions = [session for player in players for session in player.result()]
        effects = check_effects(site, sessions)
        check_site(site)
    finally:
        site.close()
    print(f"{len(site.kills)} kills, {len(sessions)} sessions, {effects} effects")
    assert len(site.kills) >= KILLS
