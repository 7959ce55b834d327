"""The host killed at every named point of engine and journal, in every scenario: it comes out as if nothing had been.

By default a selection: every point that scenarios pass kills at least one of them, and every scenario is killed at
several points. ``SWEEP=full`` plays the whole product, each point when it is passed first and when it is passed later,
and holds what is said here of which scenario passes which point.
"""

import os
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from durable_agent_host.log.crash import CRASH_POINTS
from functions_host.engine.crash import POINTS
from tests.durable_agent_host.crash.oracle import Figures, Told, Witnesses, check_case, check_site
from tests.durable_agent_host.crash.scenarios import SCENARIOS, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel

FULL = os.environ.get("SWEEP") == "full"
AT_ONCE = 3
LATER = 3
"""Which pass of a point is the later one."""

UNUSED = frozenset(
    f"{commit}.{moment}_commit"
    for commit in ("operation", "suspend", "end", "rewind", "purge", "drop")
    for moment in ("before", "after")
)
"""Points of the engine for commands that no client of an agent gives; `tests/functions_host` kills the host there."""
ENGINE = tuple(point for point in POINTS if point not in UNUSED)
JOURNAL = CRASH_POINTS
WITHOUT_TOOLS = {"plain"}
WITH_EVENTS = {"approval", "cancel", "queue", "interrupt"}
"""Scenarios in which one orchestration waits for an event from outside."""

Plan = tuple[str, str]
"""A scenario, and a point that kills it, with ``:n`` for the n-th pass."""


def is_killed(plan: str, name: str, folder: Path, model: PracticeModel, undisturbed: dict[str, Told]) -> bool:
    """Play a scenario with a planned crash; tells whether the host died by it."""
    variable = "FUNCTIONS_HOST_CRASH" if plan.partition(":")[0] in POINTS else "DURABLE_AGENT_HOST_CRASH"
    site = Site(folder / f"{name}-{plan.replace(':', '-')}", model, crash={variable: plan})
    try:
        case = Case(site, name).run()
        check_case(case, undisturbed[name], Witnesses.hear(site), Figures())
        check_site(site)
    except Exception as error:
        error.add_note(f"scenario {name}, crash {plan}, kills {site.kills}")
        raise
    finally:
        site.close()
    assert len(site.kills) <= 1, site.output
    return bool(site.kills)


def sweep(plans: Iterable[Plan], folder: Path, model: PracticeModel, undisturbed: dict[str, Told]) -> set[Plan]:
    """Play scenarios with planned crashes, some at once; gives those in which the host died."""
    listed = list(plans)

    def play(one: Plan) -> bool:
        name, plan = one
        return is_killed(plan, name, folder, model, undisturbed)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        died = list(pool.map(play, listed))
    return {one for one, killed in zip(listed, died, strict=True) if killed}


def passes(name: str, point: str) -> bool:
    """Tell whether a scenario passes a point."""
    if point.startswith("journal.tool."):
        return name not in WITHOUT_TOOLS
    return not point.startswith("event.") or name in WITH_EVENTS


def selection(points: Iterable[str], scenarios_of_each: int) -> list[Plan]:
    """Choose scenarios for each point, always those that have had the fewest, so that all get their share."""
    plans: list[Plan] = []
    chosen: Counter[str] = Counter()
    for point in points:
        names = sorted((name for name in SCENARIOS if passes(name, point)), key=lambda name: chosen[name])
        chosen.update(names[:scenarios_of_each])
        plans += [(name, f"{point}:1") for name in names[:scenarios_of_each]]
    return plans


LATER_PLANS = [
    *(("sequence", f"{point}:{LATER}") for point in JOURNAL if point.startswith("journal.")),
    *(("queue", f"{point}:{LATER}") for point in (*JOURNAL, *ENGINE) if point.startswith(("turn.", "answer."))),
    *(("approval", f"{point}:2") for point in ENGINE if point.startswith("event.")),
]


@pytest.mark.timeout(900)
def test_kills_at_points_of_the_journal(practice_model: PracticeModel, undisturbed: dict[str, Told], tmp_path: Path):
    """Killed around any model call, tool call or end of a turn, a scenario comes out as undisturbed."""
    plans = selection(JOURNAL, 2)
    assert sweep(plans, tmp_path, practice_model, undisturbed) == set(plans)


@pytest.mark.timeout(900)
def test_kills_at_points_of_the_engine(practice_model: PracticeModel, undisturbed: dict[str, Told], tmp_path: Path):
    """Killed around any call or commit of orchestration, activity and entity, a scenario comes out as undisturbed."""
    plans = selection(ENGINE, 1)
    assert sweep(plans, tmp_path, practice_model, undisturbed) == set(plans)


@pytest.mark.timeout(900)
def test_kills_later_in_a_turn_or_a_session(
    practice_model: PracticeModel, undisturbed: dict[str, Told], tmp_path: Path
):
    """Killed where something of the turn or the session is finished already, a scenario comes out as undisturbed."""
    assert sweep(LATER_PLANS, tmp_path, practice_model, undisturbed) == set(LATER_PLANS)


@pytest.mark.skipif(not FULL, reason="SWEEP=full plays it: some 25 minutes on two cores")
@pytest.mark.timeout(7200)
def test_kills_at_every_point_in_every_scenario(
    practice_model: PracticeModel, undisturbed: dict[str, Told], tmp_path: Path
):
    """The whole product: every scenario dies at every point that it passes, and comes out as undisturbed."""
    product = [(name, point) for point in (*JOURNAL, *ENGINE) for name in SCENARIOS]
    first = sweep(((name, f"{point}:1") for name, point in product), tmp_path, practice_model, undisturbed)
    assert first == {(name, f"{point}:1") for name, point in product if passes(name, point)}
    plans = [(name, f"{point}:{LATER}") for name, point in product if passes(name, point)]
    later = sweep(plans, tmp_path, practice_model, undisturbed)
    print(f"killed: {len(first)} at the first pass, {len(later)} at pass {LATER}")
    print("not passed:", sorted((name, point) for name, point in product if not passes(name, point)), sorted(UNUSED))
    print(f"not passed {LATER} times:", sorted(set(plans) - later))


def test_every_scenario_is_swept():
    """The selection kills every scenario at least twice, and at every point at least one."""
    plans = selection(JOURNAL, 2) + selection(ENGINE, 1)
    assert min(sum(name == other for other, _ in plans) for name in SCENARIOS) >= 2
    assert {plan.partition(":")[0] for _, plan in plans} == {*JOURNAL, *POINTS} - UNUSED
