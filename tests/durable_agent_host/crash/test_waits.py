"""The host killed at every pass of every point of the journal while turns wait for answers: all is as undisturbed.

Clients answer one call after the other, and a client follows from the beginning to the end. The clients kill the host,
too: just before an answer, so that it is given while no host runs, while it is on its way, and right after it was
accepted. A long run plays all of it; each run draws some scenarios, and one kill for each.
"""

import random
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.durable_agent_host.crash.features import featured_site
from tests.durable_agent_host.crash.oracle import CaseResult, Figures, Witnesses, check_case, check_site, read_result
from tests.durable_agent_host.crash.points import JOURNAL_POINTS, WORKFLOW_POINTS
from tests.durable_agent_host.crash.scenarios import WAITING, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import start_model
from tests.sweeps import IS_LONG, chooser

Plan = tuple[str, str, int]
"""A scenario, a point or the moment of an answer, and which pass of it."""
EVENTS = ("event.before_commit", "event.after_commit")
"""Points of the engine: it takes an answer."""
MOMENTS = ("before", "during", "after")
"""When clients kill the host, at an answer."""
ANSWERS = {"client": 4, "callback": 3, "question": 4, "deep": 3, "eyes": 2, "fan": 4, "crowd": 4}
"""How many answers each scenario takes."""
WAITS = {"client": 2, "callback": 2, "question": 3, "deep": 1, "eyes": 2, "fan": 2, "crowd": 2}
"""How often each waits; a call that was answered may wait again for something else."""
DRAWN = 3
"""How many scenarios are drawn, each with one kill."""


def count_passes(name: str, point: str) -> int:
    """Count how often an undisturbed run of a scenario passes a point."""
    scenario = WAITING[name]
    if point.startswith("journal.workflow."):
        return 2 if name == "question" else 0
    if point.startswith("pieces."):
        return 0
    if point in MOMENTS or point in EVENTS:
        return ANSWERS[name]
    if point == "turn.after_open":
        return WAITS[name] + 1
    if point.startswith("turn."):
        return 1
    steps = [*scenario.turns[0], *(step for steps in scenario.members.values() for step in steps)]
    if point.startswith("journal.model."):
        return len(steps)
    tools = [call["name"] for step in steps for call in step.get("calls", [])]
    deferred_tools = [tool for tool in tools if tool in {"order", "reorder"}]
    return len(tools if point.endswith("_intent") else tools + deferred_tools)


PLANS: list[Plan] = [
    (name, point, nth)
    for name in WAITING
    for point in (*JOURNAL_POINTS, *WORKFLOW_POINTS, *EVENTS, *MOMENTS)
    for nth in range(1, count_passes(name, point) + 1)
]


def sweep(plans: Iterable[Plan], folder: Path) -> None:
    """Play plans one after the other on one host, which is started again after each kill."""
    plan_list = list(plans)
    model, sites = start_model(), dict[frozenset[str], Site]()
    baselines: dict[str, CaseResult] = {}
    try:
        for plan in plan_list:
            name, point, nth = plan
            features = WAITING[name].features
            if features not in sites:
                sites[features] = featured_site(folder / f"site-{len(sites)}", model, features, canary="")
            if name not in baselines:
                baselines[name] = play(sites[features], name)
            play(sites[features], name, f"{point}:{nth}", baselines[name])
    finally:
        for site in sites.values():
            site.close()
        model.stop()


def play(site: Site, name: str, plan: str = "", baseline: CaseResult | None = None) -> CaseResult:
    """Play a scenario with a planned kill, or without; gives what it tells."""
    site.model.reset()
    site.effects_file.write_text("")
    is_of_client = plan.partition(":")[0] in MOMENTS
    if plan and not is_of_client:
        site.plan_crash(plan)
    case = Case(site, name, client_kill=plan if is_of_client else "")
    try:
        case.run()
        result = read_result(case)
        check_case(case, baseline or result, Witnesses.read(site), Figures())
        check_site(site)
        assert case.kills == (1 if plan else 0)
    except Exception as error:
        error.add_note(f"scenario {name}, plan {plan}, kills {site.kills}")
        raise
    return result


def draw(chance: random.Random) -> list[Plan]:
    """Draw scenarios, and one kill for each."""
    return [chance.choice([plan for plan in PLANS if plan[0] == name]) for name in chance.sample([*WAITING], DRAWN)]


@pytest.mark.sweep
@pytest.mark.timeout(7200)
def test_kills_while_calls_wait(tmp_path: Path):
    """Approvals at any depth, client tools, callbacks and questions: one effect each, and all as undisturbed."""
    sweep(PLANS if IS_LONG else draw(chooser("waits")), tmp_path)
