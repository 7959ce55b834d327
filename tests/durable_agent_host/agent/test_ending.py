"""How a run stops: what each error means for the attempt."""

import asyncio

import pytest

from durable_agent_host.agent.run_result import (
    Cancelled,
    Failed,
    LogUnavailable,
    RunStoppedError,
    Stop,
    Superseded,
    stop_of,
)
from durable_agent_host.errors import FencedError, LogError, LogUnavailableError, TurnError

LOG, UNAVAILABLE, TURN = LogError("gone"), LogUnavailableError("away"), TurnError("no")


@pytest.mark.parametrize(
    ("error", "stop"),
    [
        (RunStoppedError(Cancelled()), Cancelled()),
        (FencedError("later"), Superseded()),
        (LOG, LogUnavailable(LOG)),
        (UNAVAILABLE, LogUnavailable(UNAVAILABLE)),
        (TURN, Failed(TURN)),
    ],
)
def test_an_error_of_a_run_has_one_meaning(error: BaseException, stop: Stop):
    """The nearest class decides; an exception that unwinds a run brings its own."""
    assert stop_of(error) == stop


@pytest.mark.parametrize("error", [asyncio.CancelledError(), GeneratorExit("end")])
def test_a_run_that_ends_itself_fails_with_a_sentence(error: BaseException):
    """What ends a task without a word is told as what it is: nobody has cancelled the turn."""
    stop = stop_of(error)
    assert isinstance(stop, Failed)
    assert isinstance(stop.error, TurnError)
    assert f"ended its own task with {type(error).__name__}" in str(stop.error)
