"""Whether a run may do new work: it was stopped, or calls wait for answers."""

import threading

from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.run_result import AwaitingReplies, Failed, RunStoppedError, Stop


class RunGate:
    """Lets new work of one run through, or stops the run.

    Args:
        pending_calls: of the run.
        collects: how the turn ends, if that was decided before this run: nothing outside the journal is done.

    Attributes:
        gave_up: set when the run's results are no longer wanted; tools can check it from their threads.
    """

    def __init__(self, pending_calls: PendingCalls, *, collects: Stop | None) -> None:
        self.gave_up = threading.Event()
        self._pending_calls = pending_calls
        self._collects = collects
        self._stop: Stop | None = None
        self._failure: Failed | None = None

    def stop(self, stop: Stop) -> None:
        """Stop new work; safe from any thread."""
        self._stop = stop
        self.gave_up.set()

    def fail(self, error: BaseException) -> None:
        """End the turn with an error before its next model call; the other calls of the batch are finished."""
        self._failure = Failed(error)

    def final_stop(self, stop: Stop) -> Stop:
        """Return why the run has stopped: one that waits for nothing has failed."""
        return self._failure or stop if stop == AwaitingReplies(()) else stop

    def raise_if_stopped(self) -> None:
        """Allow no more work once the run was stopped.

        Raises:
            RunStoppedError: the run was stopped.
        """
        if self._stop is not None:
            raise RunStoppedError(self._stop)

    def raise_if_cancelled(self) -> None:
        """Allow no work outside the journal when the turn was cancelled, or had failed, before the run.

        Raises:
            RunStoppedError: it was.
        """
        if self._collects is not None:
            raise RunStoppedError(self._collects)

    def check_nested(self) -> None:
        """Allow new work of an agent within the turn's agent, which may go on while other calls wait for a person.

        Raises:
            RunStoppedError: the run was stopped, or was cancelled before it started.
        """
        self.raise_if_stopped()
        self.raise_if_cancelled()

    def raise_if_waiting(self) -> None:
        """Start no model call while calls wait for answers.

        Raises:
            RunStoppedError: some calls wait, or the turn has failed.
        """
        if self._pending_calls.pending:
            self.raise_if_cancelled()
            raise RunStoppedError(AwaitingReplies(tuple(self._pending_calls.pending)))
        if self._failure is not None:
            raise RunStoppedError(self._failure)

    def check(self) -> None:
        """Allow new work only while the run is wanted.

        Raises:
            RunStoppedError: the run was stopped, was cancelled before it started, or waits for an answer.
        """
        self.raise_if_stopped()
        self.raise_if_cancelled()
        self.raise_if_waiting()
