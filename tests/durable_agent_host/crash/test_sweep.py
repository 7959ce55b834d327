"""The host killed at every named point of engine and journal, in every scenario: it comes out as if nothing had been.

A long run plays the whole product, each point when it is passed first and when it is passed later, and holds what is
said here of which scenario passes which point. Per change a draw: every point of the journal once, each at its first
pass or, where something is finished before, at a later one; and some points of the engine, as `tests/functions_host`
kills the host at all of them. Every scenario is killed at least once.
"""

import random
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from functions_host.engine.crash_points import POINTS
from tests.durable_agent_host.crash.oracle import CaseResult, Figures, Witnesses, check_case, check_site
from tests.durable_agent_host.crash.points import JOURNAL_POINTS
from tests.durable_agent_host.crash.scenarios import SCENARIOS, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel
from tests.sweeps import IS_LONG, chooser

AT_ONCE = 3
ENGINE_POINTS = 8
"""How many points of the engine are drawn."""
LATER_POINTS = 2
"""At how many points it is a later pass that is drawn."""
LATER = 3
"""Which pass of a point is the later one."""

UNUSED = frozenset(
    f"{commit}.{moment}_commit" for commit in ("operation", "suspend", "end", "purge") for moment in ("before", "after")
)
"""Points of the engine for commands that no client of an agent gives; `tests/functions_host` kills the host there."""
ENGINE = tuple(point for point in POINTS if point not in UNUSED)
JOURNAL = JOURNAL_POINTS
WITHOUT_TOOLS = {"plain"}
WITH_PIECES = {"large"}
WITH_EVENTS = {"approval", "client", "cancel", "queue", "interrupt"}
"""Scenarios in which one orchestration waits for an event from outside."""

Plan = tuple[str, str]
"""A scenario, and a point that kills it, with ``:n`` for the n-th pass."""


def is_killed(
    plan: str, name: str, folder: Path, model: PracticeModel, baselines: dict[str, CaseResult], *, env: dict[str, str]
) -> bool:
    """Play a scenario with a planned crash; tells whether the host died by it."""
    variable = "FUNCTIONS_HOST_CRASH" if plan.partition(":")[0] in POINTS else "DURABLE_AGENT_HOST_CRASH"
    site = Site(folder / f"{name}-{plan.replace(':', '-')}", model, crash={variable: plan}, env=env)
    try:
        case = Case(site, name).run()
        check_case(case, baselines[name], Witnesses.read(site), Figures())
        check_site(site)
    except Exception as error:
        error.add_note(f"scenario {name}, crash {plan}, kills {site.kills}")
        raise
    finally:
        site.close()
    assert len(site.kills) <= 1, site.output
    return bool(site.kills)


def sweep(
    plans: Iterable[Plan], folder: Path, model: PracticeModel, baselines: dict[str, CaseResult], **env: str
) -> set[Plan]:
    """Play scenarios with planned crashes, some at once; gives those in which the host died."""
    plan_list = list(plans)

    def play(named_plan: Plan) -> bool:
        name, plan = named_plan
        return is_killed(plan, name, folder, model, baselines, env=env)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        died = list(pool.map(play, plan_list))
    return {plan for plan, is_dead in zip(plan_list, died, strict=True) if is_dead}


def passes(name: str, point: str) -> bool:
    """Tell whether a scenario passes a point."""
    if point.startswith("pieces."):
        return name in WITH_PIECES
    if point.startswith("journal.tool."):
        return name not in WITHOUT_TOOLS
    return not point.startswith("event.") or name in WITH_EVENTS


LATER_PASSES: dict[str, tuple[str, int]] = {
    **{point: ("sequence", LATER) for point in JOURNAL if point.startswith("journal.")},
    **{point: ("queue", LATER) for point in (*JOURNAL, *ENGINE) if point.startswith(("turn.", "answer."))},
    **{point: ("approval", 2) for point in ENGINE if point.startswith("event.")},
}
"""By point, a scenario that passes it again, and which pass that is."""


def draw(chance: random.Random) -> list[Plan]:
    """Draw the plans of one change; scenarios with the fewest points come first, so that each has its share."""
    points = [*JOURNAL, *chance.sample(ENGINE, ENGINE_POINTS)]
    later = set(chance.sample([point for point in points if point in LATER_PASSES], LATER_POINTS))
    chosen = Counter(LATER_PASSES[point][0] for point in later)
    plans = [(LATER_PASSES[point][0], f"{point}:{LATER_PASSES[point][1]}") for point in sorted(later)]
    # Points that few scenarios pass choose first.
    first = [[point, [name for name in SCENARIOS if passes(name, point)]] for point in points if point not in later]
    for point, names in sorted(first, key=lambda item: len(item[1])):
        name = min(chance.sample(names, len(names)), key=lambda name: chosen[name])
        chosen[name] += 1
        plans.append((name, f"{point}:1"))
    return plans


@pytest.mark.sweep
@pytest.mark.timeout(1800)
@pytest.mark.skipif(IS_LONG, reason="the whole product has these")
def test_kills_at_drawn_points(practice_model: PracticeModel, baselines: dict[str, CaseResult], tmp_path: Path):
    """Killed around calls of models and tools, ends of turns and the engine's commits, all comes out as undisturbed."""
    plans = draw(chooser("crash points"))
    assert sweep(plans, tmp_path, practice_model, baselines) == set(plans)


@pytest.mark.sweep
@pytest.mark.skipif(not IS_LONG, reason="./scripts/test --long plays it: some 25 minutes on two cores")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("points", [JOURNAL, ENGINE], ids=["journal", "engine"])
def test_kills_at_every_point_in_every_scenario(
    points: tuple[str, ...], practice_model: PracticeModel, baselines: dict[str, CaseResult], tmp_path: Path
):
    """The whole product: every scenario dies at every point that it passes, and comes out as undisturbed."""
    product = [(name, point) for point in points for name in SCENARIOS]
    first = sweep(((name, f"{point}:1") for name, point in product), tmp_path, practice_model, baselines)
    assert first == {(name, f"{point}:1") for name, point in product if passes(name, point)}
    plans = [(name, f"{point}:{LATER}") for name, point in product if passes(name, point)]
    plans += [
        (name, f"{point}:{nth}") for point, (name, nth) in LATER_PASSES.items() if point in points and nth != LATER
    ]
    later = sweep(plans, tmp_path, practice_model, baselines)
    assert {(name, f"{point}:{nth}") for point, (name, nth) in LATER_PASSES.items() if point in points} <= later
    print(f"killed: {len(first)} at the first pass, {len(later)} at pass {LATER}")
    print("not passed:", sorted((name, point) for name, point in product if not passes(name, point)), sorted(UNUSED))
    print(f"not passed {LATER} times:", sorted(set(plans) - later))


def test_a_draw_kills_every_scenario():
    """Whatever is drawn has each point of the journal once, and kills every scenario; no point is forgotten."""
    assert {*ENGINE, *UNUSED} == set(POINTS)
    for seed in range(200):
        plans = draw(random.Random(seed))
        assert {name for name, _ in plans} == set(SCENARIOS)
        drawn = [plan.partition(":")[0] for _, plan in plans]
        assert len(set(drawn)) == len(drawn) == len(JOURNAL) + ENGINE_POINTS
        assert set(JOURNAL) <= set(drawn) <= {*JOURNAL, *ENGINE}
        assert all(passes(name, plan.partition(":")[0]) for name, plan in plans)
