"""Turns that run in this process, and the hint that one of them is to be cancelled.

A cancel is a mark in the turn log, which a running turn reads twice a second. The hint makes it read at once, if it
runs in the process that took the request.
"""

from typing import Final

from durable_agent_host.loops.wakeups import Wakeups

CANCELLATIONS: Final = Wakeups()
"""By turn id; one for the process, since whoever takes a cancel and whoever runs the turn share nothing else."""
