"""The host killed at every named point of engine and journal, in every scenario: it comes out as if nothing had been.

By default a selection: every point that scenarios pass kills at least one of them, and every scenario is killed at
several points. ``SWEEP=full`` plays the whole product, each point when it is passed first and when it is passed later,
and holds what is said here of which scenario passes which point.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from functions_host.engine.crash import POINTS
from tests.durable_agent_host.crash.oracle import Figures, Told, Witnesses, check_case, check_site
from tests.durable_agent_host.crash.scenarios import Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel

FULL = os.environ.get("SWEEP") == "full"
AT_ONCE = 3
LATER = 3
"""Which pass of a point is the later one."""

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
