"""Fixtures of the proof: the scenarios undisturbed."""

import pytest

from tests.durable_agent_host.crash.oracle import CaseResult, Figures, Witnesses, check_case, check_site, read_result
from tests.durable_agent_host.crash.scenarios import SCENARIOS, Case
from tests.durable_agent_host.crash.site import Site
from tests.kit import PracticeModel


@pytest.fixture(scope="session")
def baselines(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> dict[str, CaseResult]:
    """What each scenario tells when nothing is killed; the oracle has nothing to say against it."""
    practice_model.reset()  # what other tests of the worker asked
    site = Site(tmp_path_factory.mktemp("undisturbed"), practice_model)
    try:
        cases = {name: Case(site, name).run() for name in SCENARIOS}
        results = {name: read_result(case) for name, case in cases.items()}
        witnesses, figures = Witnesses.read(site), Figures()
        for name, case in cases.items():
            check_case(case, results[name], witnesses, figures)
        check_site(site)
    finally:
        site.close()
    assert figures.counts["lines"] == figures.counts["tool calls"]
    assert figures.counts["model calls made"] == figures.counts["model calls needed"]
    return results
