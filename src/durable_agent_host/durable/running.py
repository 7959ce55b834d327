"""What the parts of one run of an agent share: journal, answers, and why the run is given up."""

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent_framework import AgentResponse, Message

from durable_agent_host.durable.retries import RetryPolicy
from durable_agent_host.errors import ProviderError
from durable_agent_host.log.journal import Journal, ToolKey

_LOGGER = logging.getLogger(__name__)


class RunStoppedError(BaseException):
    """The run is given up; what it was about to do must not be done.

    No `Exception`: middleware and tools that catch those must not keep a run going that nobody wants.

    Attributes:
        reason: the error to report, or None when the turn waits for a person.
    """

    def __init__(self, reason: BaseException | None = None) -> None:
        super().__init__(str(reason or "the turn waits for a person"))
        self.reason = reason


@dataclass(frozen=True)
class BrokenStream:
    """A stream that broke in its middle.

    Attributes:
        position: of the model call.
        wait_seconds: how long to wait before the call is made again.
    """

    position: int
    wait_seconds: float


@dataclass
class AgentRun:
    """One run of an agent within a turn.

    Attributes:
        turn_id: whose run it is.
        journal: what is finished, and where to append.
        answers: what persons have decided, by the id under which they were asked.
        retry_policy: for model calls.
        explain_error: what only the provider's adapter knows of an error.
        ended_early: whether a stream has ended without the provider's word that it is whole.
        fold: the updates of one model call into its response.
        replay_only: the turn was cancelled before this run: what is not in the journal is not done.
        drop_continuations: replayed responses leave their conversation ids out, because the service has lost them.
        prepare_messages: leaves out of a request what the service can no longer use.
        pending: the calls that wait for a person.
        is_replaying: whether what streams now comes from the journal.
        open_position: the model call that has begun and has no response, or None.
        breaks: how often the stream of a model call broke in its middle in earlier runs of this turn, by position.
        broken: set when a stream has broken in its middle, and another run may go on from there.
        stopping: set when nobody wants the run's results any more.
    """

    turn_id: str
    journal: Journal
    answers: Mapping[str, Mapping[str, Any]]
    retry_policy: RetryPolicy
    explain_error: Callable[[BaseException], ProviderError | None]
    ended_early: Callable[[Sequence[Any]], bool]
    fold: Callable[[Sequence[Any]], AgentResponse[Any]]
    replay_only: bool = False
    drop_continuations: bool = False
    prepare_messages: Callable[[Sequence[Message]], Sequence[Message]] = lambda messages: messages
    pending: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    is_replaying: bool = False
    open_position: int | None = None
    breaks: Mapping[int, int] = field(default_factory=dict[int, int])
    broken: "BrokenStream | None" = None
    stopping: threading.Event = field(default_factory=threading.Event)

    def check(self) -> None:
        """Do something new only while the run is wanted.

        Raises:
            RunStoppedError: it waits for a person, has been stopped, or was cancelled before it began.
        """
        if self.pending or self.replay_only or self.stopping.is_set():
            raise RunStoppedError

    def wait_before_retry(self, retry: int, error: BaseException) -> float | None:
        """Decide whether a failed model call is made again; see `RetryPolicy.wait_before`."""
        seconds = self.retry_policy.wait_before(retry, error, self.explain_error, random.random())  # noqa: S311
        if seconds is not None:
            reason = self.explain_error(error) or error
            _LOGGER.warning("turn %s: model call failed, again in %.1f s: %s", self.turn_id, seconds, reason)
        return seconds

    async def ask(self, question: str, key: ToolKey, name: str, arguments: Mapping[str, Any], reason: str) -> None:
        """Leave a tool call to a person: the run goes on with the other calls of the batch, and is then given up."""
        asked = {"call_id": question, "name": name, "arguments": dict(arguments), "reason": reason}
        self.pending.append(asked)
        if question not in self.journal.recorded.asked:
            await self.journal.tell("approval.requested", asked)
        _LOGGER.info("turn %s: call %s of %s waits for a person", self.turn_id, key.call_id, name)
