"""Limits of one process."""

import pytest

from durable_agent_host.errors import BodiesTooLargeError, TooManyRequestsError
from durable_agent_host.http.rate_limits import UNCOUNTED_BYTES, ArrivingBodies, StreamReaders


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


def test_bodies_that_arrive_are_counted_together():
    """Without the beginning of each; what has arrived, or was cut off, makes room."""
    bodies = ArrivingBodies(1000)
    with bodies.count_body() as first, bodies.count_body() as second:
        first(UNCOUNTED_BYTES + 900)
        second(UNCOUNTED_BYTES + 100)
        with pytest.raises(BodiesTooLargeError, match="MAX_ARRIVING_BYTES"):
            second(1)
    with bodies.count_body() as third:
        third(UNCOUNTED_BYTES + 1000)
