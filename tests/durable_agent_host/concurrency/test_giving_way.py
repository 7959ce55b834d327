"""Threads and tasks share the interpreter."""

import asyncio
import sys
from collections.abc import Iterator

import pytest

from durable_agent_host.concurrency.cooperative_yield import Stretch, switch_often

USUAL_SECONDS = 0.005


@pytest.fixture
def _usual_interval() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(USUAL_SECONDS)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("_usual_interval")
def test_threads_take_turns_more_often_and_never_less():
    """The interval becomes shorter, and one that an app has made shorter stays."""
    switch_often()
    assert sys.getswitchinterval() < USUAL_SECONDS
    sys.setswitchinterval(0.0001)
    switch_often()
    assert sys.getswitchinterval() == pytest.approx(0.0001, abs=2e-6)


def test_a_task_that_never_waits_lets_others_go_on():
    """Again and again; without pauses the others would not even begin."""
    turns = list[int]()

    async def other() -> None:
        while len(turns) < 3:
            turns.append(len(turns))
            await asyncio.sleep(0)

    async def run() -> None:
        task, stretch = asyncio.get_running_loop().create_task(other()), Stretch()
        while len(turns) < 3:
            await stretch.pause()
        await task

    asyncio.run(run())
    assert turns == [0, 1, 2]
