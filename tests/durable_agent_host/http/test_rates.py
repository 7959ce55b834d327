"""Requests of one principal, by a clock that the test turns."""

import asyncio

import pytest

from durable_agent_host.errors import TooManyRequestsError
from durable_agent_host.http.rate_limits import (
    BURST_SECONDS,
    MOST_WAITING,
    ConcurrentWork,
    RequestRates,
    StreamReaders,
)


class Clock:
    """A clock that stands still."""

    seconds = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.seconds


def retry_delay(rates: RequestRates, principal: str) -> float | None:
    """Ask once; gives after how many seconds to come back, or None."""
    try:
        rates.acquire(principal)
    except TooManyRequestsError as error:
        return error.retry_after_seconds
    return None


def test_a_principal_has_a_burst_and_a_rate_of_its_own():
    """What is too much is refused with the time after which one more is let in; others are not touched."""
    clock = Clock()
    rates = RequestRates(2.0, clock)
    assert [retry_delay(rates, "ann") for _ in range(2 * BURST_SECONDS)] == [None] * (2 * BURST_SECONDS)
    wait = retry_delay(rates, "ann")
    assert wait == pytest.approx(0.5)
    assert retry_delay(rates, "ben") is None
    clock.seconds += wait
    assert retry_delay(rates, "ann") is None
    assert retry_delay(rates, "ann") is not None
    clock.seconds += 3600
    assert [retry_delay(rates, "ann") for _ in range(2 * BURST_SECONDS + 1)].count(None) == 2 * BURST_SECONDS


def test_clients_that_come_at_once_are_counted_before_their_streams_begin():
    """Of many clients as many are let in as may follow a turn; one that has left makes room for another one."""
    readers = StreamReaders(2)
    leave, _ = readers.enter("turn"), readers.enter("turn")
    readers.enter("another turn")
    with pytest.raises(TooManyRequestsError):
        readers.enter("turn")
    leave()
    readers.enter("turn")
    with pytest.raises(TooManyRequestsError):
        readers.enter("turn")


async def test_few_requests_of_a_kind_work_at_once_and_others_wait_in_order():
    """Another principal and another kind do not wait; with too many waiting, the next one is refused."""
    concurrent_work, steps, may_end = ConcurrentWork(2), list[int](), asyncio.Event()

    async def request(number: int) -> None:
        async with concurrent_work.of("ann", "sessions.list"):
            steps.append(number)
            await may_end.wait()

    requests = [asyncio.create_task(request(number)) for number in range(2 + MOST_WAITING)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert steps == [0, 1]
    async with concurrent_work.of("ben", "sessions.list"), concurrent_work.of("ann", "files.read"):
        pass
    with pytest.raises(TooManyRequestsError):
        await request(-1)
    may_end.set()
    await asyncio.gather(*requests)
    assert steps == [*range(2 + MOST_WAITING)]
    await request(-2)
