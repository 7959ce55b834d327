"""The host killed at named points of journal and engine, or by its clients: it comes out as if nothing had been.

Each run plays some cases, drawn anew, and a long run all of them. A scenario is played undisturbed, then again on the
same host, which dies at the point.
"""

from pathlib import Path
from typing import NamedTuple

import pytest

from functions_host.engine.crash_points import POINTS
from tests.durable_agent_host.crash.features import CANARY, SINGLE, check_features, featured_site
from tests.durable_agent_host.crash.oracle import CaseResult, Figures, Witnesses, check_case, check_site, read_result
from tests.durable_agent_host.crash.points import CLEANUP_POINTS, JOURNAL_POINTS, WORKFLOW_POINTS
from tests.durable_agent_host.crash.scenarios import SCENARIOS, WAITING, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel

UNUSED = {
    f"{commit}.{moment}_commit" for commit in ("operation", "suspend", "end", "purge") for moment in ("before", "after")
}
"""Points of the engine for commands that no client of an agent gives; `tests/functions_host` kills the host there."""
ENGINE = tuple(point for point in POINTS if point not in UNUSED)
WITH_EVENTS = {"approval", "client", "cancel", "queue", "interrupt"}
"""Scenarios in which one orchestration waits for an event from outside."""
LATER = {
    **{point: ("sequence", 3) for point in JOURNAL_POINTS if point.startswith("journal.")},
    **{point: ("queue", 3) for point in (*JOURNAL_POINTS, *ENGINE) if point.startswith(("turn.", "answer."))},
    **{point: ("approval", 2) for point in ENGINE if point.startswith("event.")},
}
"""By point, a scenario that passes it again, and which pass that is."""

EVENTS = ("event.before_commit", "event.after_commit")
"""Points of the engine: it takes an answer."""
MOMENTS = ("before", "during", "after")
"""When clients kill the host, at an answer."""
ANSWERS = {"client": 4, "callback": 3, "question": 4, "deep": 3, "eyes": 2, "fan": 4, "crowd": 4}
"""How many answers each scenario takes."""
WAITS = {"client": 2, "callback": 2, "question": 3, "deep": 1, "eyes": 2, "fan": 2, "crowd": 2}
"""How often each waits; a call that was answered may wait again for something else."""


class Plan(NamedTuple):
    """A scenario, what the app does besides, and the point or moment at which the host dies, as ``point:n``."""

    name: str
    features: frozenset[str]
    kill: str


def passes(name: str, point: str) -> bool:
    """Tell whether a scenario passes a point."""
    if point.startswith("blobs."):
        return name == "large"
    if point.startswith("journal.tool."):
        return name != "plain"
    return not point.startswith("event.") or name in WITH_EVENTS


def count_passes(name: str, point: str) -> int:
    """Count how often an undisturbed run of a scenario with answers passes a point."""
    scenario = WAITING[name]
    if point.startswith("journal.workflow."):
        return 2 if name == "question" else 0
    if point.startswith("blobs."):
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


NONE, ALL = frozenset[str](), frozenset(SINGLE)
PLANS = [
    *(
        Plan(name, NONE, f"{point}:1")
        for point in (*JOURNAL_POINTS, *ENGINE)
        for name in SCENARIOS
        if passes(name, point)
    ),
    *(Plan(name, NONE, f"{point}:{nth}") for point, (name, nth) in LATER.items()),
    *(
        Plan(name, WAITING[name].features, f"{point}:{nth}")
        for name in WAITING
        for point in (*JOURNAL_POINTS, *WORKFLOW_POINTS, *EVENTS, *MOMENTS)
        for nth in range(1, count_passes(name, point) + 1)
    ),
    *(
        Plan("sequence" if passes("sequence", point) else "large", features, f"{point}:1")
        for features in (ALL, *(frozenset({feature}) for feature in SINGLE))
        for point in (
            *(*JOURNAL_POINTS, *ENGINE),
            *(CLEANUP_POINTS if "redaction" in features else ()),
        )
        if passes("sequence", point) or passes("large", point)
    ),
]


@pytest.mark.drawn(14)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("plan", dict.fromkeys(PLANS), ids=lambda plan: "-".join((plan[0], *sorted(plan[1]), plan[2])))
def test_a_kill_changes_nothing(plan: Plan, practice_model: PracticeModel, tmp_path: Path):
    """Answers, effects, model calls and what is stored are as undisturbed, and nothing is leaked."""
    canary = CANARY if plan.name in SCENARIOS and plan.features else ""
    site = featured_site(tmp_path, practice_model, plan.features, canary=canary)
    try:
        baseline = play(site, plan.name)
        play(site, plan.name, plan.kill, baseline)
    finally:
        site.close()


def play(site: Site, name: str, kill: str = "", baseline: CaseResult | None = None) -> CaseResult:
    """Play a scenario with a planned kill, or without; gives what it tells."""
    site.model.reset()
    site.effects_file.write_text("")
    is_of_client = kill.partition(":")[0] in MOMENTS
    if kill and not is_of_client:
        site.plan_crash(kill)
    case = Case(site, name, client_kill=kill if is_of_client else "").run()
    result, witnesses, figures = read_result(case), Witnesses.read(site), Figures()
    check_case(case, baseline or result, witnesses, figures)
    check_features(case, witnesses)
    check_site(site)
    assert case.kills == (1 if kill else 0), site.output
    if not kill:
        assert figures.counts["lines"] == figures.counts["tool calls"]
        assert figures.counts["model calls made"] == figures.counts["model calls needed"]
    return result
