"""The host killed at named points with encryption, redaction, budgets and owners: nothing is lost, nothing is leaked.

Per change, all of them at once are killed at some points, and one of them at another. A long run kills each of them,
and all at once, at every point of journal, budgets and forgetting and at some of the engine.
"""

import random
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from functions_host.engine.crash_points import POINTS
from tests.durable_agent_host.crash.features import ALL, SINGLE, Baselines, check_featured, featured_site
from tests.durable_agent_host.crash.oracle import Figures
from tests.durable_agent_host.crash.points import BUDGET_POINTS, CLEANUP_POINTS, JOURNAL_POINTS
from tests.durable_agent_host.crash.scenarios import SCENARIOS, Case
from tests.durable_agent_host.crash.test_sweep import AT_ONCE, ENGINE, passes
from tests.kit import PracticeModel
from tests.sweeps import IS_LONG, chooser

RESERVED = BUDGET_POINTS[:2]
"""Passed by every turn; the service of these scenarios refuses nothing."""
NAMES = [name for name in SCENARIOS if name != "look"]
"""Who looks for a turn by its message, as in "look", finds nothing where that is encrypted or redacted."""
LATER = frozenset(RESERVED)
"""Points that a scenario of several turns passes again; what its turns leave is forgotten at once."""

Plan = tuple[str, str]


def points_of(features: frozenset[str]) -> tuple[str, ...]:
    """List the points beside the engine's that turns with features pass."""
    more = (*(RESERVED if "budgets" in features else ()), *(CLEANUP_POINTS if "redaction" in features else ()))
    return (*JOURNAL_POINTS, *more)


def draw(chance: random.Random, features: frozenset[str], points: Sequence[str]) -> list[Plan]:
    """Choose a scenario for each point; those that were chosen least come first."""
    chosen: Counter[str] = Counter()
    plans: list[Plan] = []
    for point in points:
        nth = 2 if point in LATER and chance.random() < 0.5 else 1
        names = [name for name in NAMES if passes(name, point)]
        name = min(chance.sample(names, len(names)), key=lambda name: chosen[name])
        chosen[name] += 1
        plans.append((name, f"{point}:{nth}"))
    return plans


def play(
    plans: Sequence[Plan], features: frozenset[str], folder: Path, model: PracticeModel, baselines: Baselines
) -> set[Plan]:
    """Play scenarios with planned crashes, some at once; gives those in which the host died."""
    results = baselines.play((name for name, _ in plans), features)

    def is_killed(named_plan: Plan) -> bool:
        name, plan = named_plan
        variable = "FUNCTIONS_HOST_CRASH" if plan.partition(":")[0] in POINTS else "DURABLE_AGENT_HOST_CRASH"
        site = featured_site(folder / f"{name}-{plan.replace(':', '-')}", model, features, {variable: plan})
        try:
            check_featured(Case(site, name).run(), results[name], Figures())
        except Exception as error:
            error.add_note(f"scenario {name}, crash {plan}, features {sorted(features)}, kills {site.kills}")
            raise
        finally:
            site.close()
        assert len(site.kills) <= 1, site.output
        return bool(site.kills)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        died = list(pool.map(is_killed, plans))
    return {plan for plan, is_dead in zip(plans, died, strict=True) if is_dead}


@pytest.fixture(scope="module")
def feature_baselines(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Baselines:
    """What scenarios tell undisturbed."""
    return Baselines(tmp_path_factory.mktemp("featured"), practice_model)


@pytest.mark.sweep
@pytest.mark.timeout(1200)
@pytest.mark.skipif(IS_LONG, reason="the whole has these")
def test_kills_with_all_features(practice_model: PracticeModel, feature_baselines: Baselines, tmp_path: Path):
    """With everything on, and with one thing alone, killed at drawn points: as undisturbed, and nothing is leaked."""
    practice_model.reset()
    chance = chooser("crash points with features")
    points = [chance.choice([*RESERVED, *CLEANUP_POINTS]), chance.choice([*JOURNAL_POINTS, *ENGINE])]
    plans = draw(chance, ALL, points)
    assert play(plans, ALL, tmp_path / "all", practice_model, feature_baselines) == set(plans)
    alone = frozenset({chance.choice(SINGLE)})
    plans = draw(chance, alone, [chance.choice(points_of(alone))])
    assert play(plans, alone, tmp_path / "alone", practice_model, feature_baselines) == set(plans)


@pytest.mark.sweep
@pytest.mark.skipif(not IS_LONG, reason="./scripts/test --long plays it: some 20 minutes on two cores")
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("features", [*SINGLE, "all"])
def test_kills_at_every_point_with_features(
    features: str, practice_model: PracticeModel, feature_baselines: Baselines, tmp_path: Path
):
    """Killed at every point of journal, budgets and forgetting, and at eight of the engine, all comes out the same."""
    chance, chosen = chooser(f"crash points with {features}"), ALL if features == "all" else frozenset({features})
    plans = draw(chance, chosen, [*points_of(chosen), *chance.sample(ENGINE, 8)])
    died = play(plans, chosen, tmp_path, practice_model, feature_baselines)
    print(f"{features}: killed {len(died)} of {len(plans)}; not killed: {sorted(set(plans) - died)}")
    assert died == set(plans)
