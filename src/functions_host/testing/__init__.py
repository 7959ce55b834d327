"""Unit tests of durable function apps, without a host: a pytest plugin.

Put ``pytest_plugins = ["functions_host.testing"]`` into ``conftest.py``; then::

    from datetime import timedelta
    from function_app import app

    def test_a_reminder_is_sent_after_three_days(durable_app):
        tested = durable_app(app)                     # or the path of the app's folder
        order = tested.start("order", {"sku": "tea"})
        assert order.status == "Running"
        tested.advance(timedelta(days=3))             # every timer on the way fires at its time
        assert order.custom_status == "reminded"
        tested.crash_at("answer.before_commit")       # the process dies there, and comes back
        order.raise_event("paid", 12)
        assert order.result() == "sent"               # waits to the end, skips what timers remain
        assert tested.entity_state("stock", "tea") == 41
        assert tested.http("GET", "/api/orders").json() == [order.id]

What runs is the engine of ``functions_host`` with Microsoft's own worker library on a temporary store, in
this process. The app's functions are called as they are in production, and every method of ``AppUnderTest``
returns once nothing more can happen before the clock moves.

- The clock stands still, except for ``advance``, ``skip_timer``, ``wait`` and ``result``: time in orchestrations,
  timers and retries follows it; ``datetime.now()`` in activities does not.
- ``crash_at("episode.before_commit")`` and ``crash_after(commits=3)`` end the engine as SIGKILL does: what was not
  committed is lost, and it starts again on the same store. The app's modules stay imported: globals survive.
- ``durable_app`` can be called several times in one test, also with different apps. What a process has only once
  is shared by them: environment variables, imported modules, and the working directory, which is the folder of
  the app that was opened last by its path. Everything is put back at the end of the test.
- Timer triggers do not run by themselves; ``run_timer`` calls one.

PYTEST_DONT_REWRITE: it has no assertions, and test modules import its names besides naming it as a plugin.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from functions_host.testing.app_under_test import (
    AppUnderTest,
    HostCrashedError,
    HttpAnswer,
    Orchestration,
    OrchestrationFailedError,
    StuckError,
)

__all__ = [
    "AppUnderTest",
    "HostCrashedError",
    "HttpAnswer",
    "Orchestration",
    "OrchestrationFailedError",
    "StuckError",
    "durable_app",
]


@pytest.fixture
def durable_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., AppUnderTest]]:
    """Open apps that are closed after the test: ``durable_app(app_or_folder, settings={...}, now=...)``."""
    opened_apps: list[AppUnderTest] = []

    def open_app(app: Any = None, **options: Any) -> AppUnderTest:
        app_under_test = AppUnderTest(Path.cwd() if app is None else app, tmp_path_factory.mktemp("durable"), **options)
        opened_apps.append(app_under_test)
        return app_under_test

    yield open_app
    for app_under_test in reversed(opened_apps):
        app_under_test.close()
