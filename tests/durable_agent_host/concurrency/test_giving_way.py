"""Long computations that give way."""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest

from durable_agent_host.concurrency.cooperative_yield import TaskSlice, YieldSchedule, let_others, set_switch_interval

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
    set_switch_interval()
    assert sys.getswitchinterval() < USUAL_SECONDS
    sys.setswitchinterval(0.0001)
    set_switch_interval()
    assert sys.getswitchinterval() == pytest.approx(0.0001, abs=2e-6)


def in_this_thread(monkeypatch: pytest.MonkeyPatch, sleep: Callable[[float], None]) -> None:
    """Replace what makes a thread sleep, for this thread: those that other tests have left sleep as before."""
    before, this = time.sleep, threading.get_ident()

    def sleeping(seconds: float) -> None:
        one = sleep if threading.get_ident() == this else before
        one(seconds)

    monkeypatch.setattr("time.sleep", sleeping)


def test_a_computation_rests_again_and_again(monkeypatch: pytest.MonkeyPatch):
    """It sleeps after each stretch of work, later when it has met nobody."""
    slept_at: list[int] = []
    called = 0
    in_this_thread(monkeypatch, lambda _: slept_at.append(called))
    pace = YieldSchedule()
    while len(slept_at) < 4:  # without rests, for ever
        called += 1
        pace.yield_if_due()
    assert slept_at[0] == 1
    assert all(after - before > 1 for before, after in pairwise(slept_at))


def test_a_loop_does_not_wait_where_a_thread_would(monkeypatch: pytest.MonkeyPatch):
    """What also runs on a loop sleeps only in a thread without one; a coroutine lets the loop go on."""
    slept: list[float] = []
    in_this_thread(monkeypatch, slept.append)
    pace, others = YieldSchedule(), list[str]()

    async def other() -> None:
        others.append("other")

    async def run() -> None:
        pace.yield_if_due()
        assert not slept
        task = asyncio.get_running_loop().create_task(other())
        await pace.let_others()
        assert others == ["other"]
        await task

    asyncio.run(run())
    asyncio.run(let_others())
    YieldSchedule().yield_if_due()
    assert len(slept) == 1


def test_a_task_that_never_waits_lets_others_go_on():
    """Again and again; without pauses the others would not even begin."""
    turns = list[int]()

    async def other() -> None:
        while len(turns) < 3:
            turns.append(len(turns))
            await asyncio.sleep(0)

    async def run() -> None:
        task, stretch = asyncio.get_running_loop().create_task(other()), TaskSlice()
        while len(turns) < 3:
            await stretch.pause()
        await task

    asyncio.run(run())
    assert turns == [0, 1, 2]
