"""Notifies turns that run in this process that they are to be cancelled.

A cancel is a mark in the turn log, which a running turn reads twice a second. The notification makes it read at once
when it runs in the process that received the request.
"""

from typing import Final

from durable_agent_host.concurrency.thread_safe_waiters import Notifier

CANCELLATIONS: Final = Notifier()
"""By turn id; one per process, because the receiver of a cancel and the runner of the turn share nothing else."""
