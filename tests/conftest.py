"""Settings of the whole suite: no test fails because the machine was busy, and what was drawn can be drawn again."""

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests import sweeps

# A shell that is not interactive starts background jobs with SIGINT ignored, and processes of tests would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Each worker would compile all tests anew where the environment keeps bytecode from being written; hosts still obey it.
sys.dont_write_bytecode = False

# Each client of a model reads the certificates that it trusts, 20 milliseconds for the usual ones. No test needs TLS.
os.environ["SSL_CERT_FILE"] = str(Path(__file__).with_name("nobody.pem"))

# What is imported and collected stays: walking it again and again takes seconds of each worker.
gc.disable()

examples = sweeps.count("EXAMPLES", short=25, long=1000)
settings.register_profile("project", settings.default, deadline=None, max_examples=examples)
settings.load_profile("project")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Let property tests draw from the run's seed too."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(sweeps.SEED)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave of the tests with the mark ``drawn`` as many cases as each change plays; ``--long`` plays all of them."""
    cases: dict[str, list[pytest.Item]] = {}
    for item in items:
        if not sweeps.IS_LONG and item.get_closest_marker("drawn"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    left_out: set[pytest.Item] = set()
    for name, group in cases.items():
        (count,) = group[0].get_closest_marker("drawn").args
        left_out.update(sweeps.chooser(name).sample(group, max(len(group) - count, 0)))
    if left_out:
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = [item for item in items if item not in left_out]


def pytest_collection_finish() -> None:
    """Leave what is there now out of all later collections."""
    gc.freeze()
    gc.enable()


def pytest_report_header() -> str:
    """Name the seed."""
    return f"sweeps: {'long' if sweeps.IS_LONG else 'short'}, {sweeps.repetition()}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the seed where a run in quiet mode shows it too."""
    terminalreporter.write_line(f"drawn with {sweeps.repetition()}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say how to repeat a sweep that has failed."""
    report = yield
    if report.failed and any(item.get_closest_marker(name) for name in ("sweep", "drawn", "hypothesis")):
        report.sections.append(("to repeat it", f"{sweeps.repetition()} ./scripts/test '{item.nodeid}'"))
    return report
