"""Running an agent for one turn: rehydrate, run, fold. The only place that calls a model or a tool.

An attempt opens the turn's log, which fences earlier attempts, and finds what they have recorded (`attempt`). The
agent's work (`work`) goes on from there in a task of its own, so that it can be given up in the middle of anything; the
runner watches it for a cancel and for the end of its time. What comes of it (`outcomes`) is appended last.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

from agent_framework import SupportsAgentRun

from durable_agent_host.durable.adapter import ProviderAdapter
from durable_agent_host.durable.attempt import Attempt
from durable_agent_host.durable.cancellations import CANCELLATIONS
from durable_agent_host.durable.hosted import HostedAgent
from durable_agent_host.durable.listener import TurnListener
from durable_agent_host.durable.outcomes import cancelled, completed, failed, suspended
from durable_agent_host.durable.running import RunStoppedError
from durable_agent_host.durable.work import AgentWork, RunLimits
from durable_agent_host.errors import FencedError, LogError, TurnTimedOutError
from durable_agent_host.log.log import TurnLog
from durable_agent_host.log.nothing import NoTurnLog
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turns.fold import fold_updates

_LOGGER = logging.getLogger(__name__)
_LOOK_SECONDS: Final = 0.7
_GIVE_UP_SECONDS: Final = 0.3
"""How long work that was told to stop may take for it; it is left behind then."""

OpenLog = Callable[[], TurnLog]
"""Gives the process's turn log; the store is opened at the first call."""


class AgentRunner:
    """Runs one agent's turns; holds no conversation.

    Args:
        name: the registered name.
        agent: of the framework, or anything with its ``run``.
        provider: what only the model provider's clients know.
        listener: told of every update while it streams, and of the response.
        open_log: gives the log that holds the journal and that clients follow; without it, nobody is told while the
            agent runs, and after a crash it runs again from its start.
        limits: how long a turn may take, and how often a model call is retried.
    """

    def __init__(
        self,
        name: str,
        agent: SupportsAgentRun,
        provider: ProviderAdapter,
        *,
        listener: TurnListener | None = None,
        open_log: OpenLog = NoTurnLog,
        limits: RunLimits = RunLimits(),  # noqa: B008 - frozen
    ) -> None:
        self.name = name
        self.agent = agent
        self._provider = provider
        self._listener = listener or TurnListener(None)
        self._open_log = open_log
        self._limits = limits
        self._hosted = HostedAgent(agent, provider)

    async def run(
        self,
        session: Session,
        request: TurnRequest,
        answers: Mapping[str, Mapping[str, Any]] | None = None,
        *,
        was_cancelled: bool = False,
    ) -> TurnOutcome:
        """Run the agent for a turn and fold what it streamed.

        Guarantee: idempotent by the turn: model and tool calls that are finished are not made again, and a turn that
        has ended gives the outcome that it had.

        Args:
            session: as it was when the turn was granted.
            request: what was asked.
            answers: what persons have decided so far, by the id under which they were asked: ``approved``,
                ``reason``, ``arguments``.
            was_cancelled: the turn was cancelled while it waited for them; what it had produced is gathered.

        Returns:
            A completed outcome with the entries to append, a failed one with the reason, a cancelled one with both, or
            a suspended one with the calls that wait for a person; it does not raise for what the agent, the model or a
            tool did.

        Raises:
            FencedError: another process runs the turn, and has not ended it in time.
            LogError: the turn log's store does not answer.
        """
        attempt = await Attempt.open(self._open_log(), request, self._provider.finished_calls)
        if (known := attempt.outcome) is not None:
            return known
        was_cancelled = was_cancelled or await _is_cancelled(attempt)
        work = AgentWork(
            hosted=self._hosted,
            provider=self._provider,
            listener=self._listener,
            limits=self._limits,
            attempt=attempt,
            session=session,
            request=request,
            answers=answers or {},
            was_cancelled=was_cancelled,
        )
        try:
            outcome = await self._outcome(work)
            await attempt.end(outcome)
        except FencedError:
            if await attempt.is_lost():
                gone = LogError(
                    "the log of the turn was lost while the turn ran, so nobody knows which of its tools have run: "
                    "look at what they did before you ask again"
                )
                return failed(request, gone, milliseconds=work.milliseconds())
            _LOGGER.warning("turn %s: another attempt has taken it over; this one stops", request.turn_id)
            return await attempt.outcome_of_successor(self._limits.turn_seconds)
        return outcome

    async def _outcome(self, work: AgentWork) -> TurnOutcome:
        task = asyncio.create_task(work.finish(), name=f"turn {work.request.turn_id}")
        try:
            end = await self._watch(work, task)
        finally:
            await _give_up(work, task)
        if end == "cancelled":
            return cancelled(work, await work.attempt.read_again())
        if end == "timed out":
            error = TurnTimedOutError(
                f"the turn has taken longer than {self._limits.turn_seconds:g} s: ask for less in one turn, "
                "or raise DURABLE_AGENT_HOST_TURN_TIMEOUT_SECONDS"
            )
            return failed(work.request, error, milliseconds=work.milliseconds())
        try:
            task.result()
            response = fold_updates([update for update, _ in work.updates], self._provider)
            await self._listener.on_response(work.request, response)
            return completed(work, response)
        except RunStoppedError as stopped:
            return await self._stopped(work, stopped)
        except LogError:
            raise
        except (Exception, asyncio.CancelledError, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 - the edge
            reason = self._provider.explain_error(error) or error
            return failed(work.request, reason, milliseconds=work.milliseconds())

    async def _stopped(self, work: AgentWork, stopped: RunStoppedError) -> TurnOutcome:
        if isinstance(stopped.reason, LogError):
            raise stopped.reason
        if stopped.reason is not None:
            return failed(work.request, stopped.reason, milliseconds=work.milliseconds())
        if work.was_cancelled:
            return cancelled(work, await work.attempt.read_again())
        return suspended(work)

    async def _watch(self, work: AgentWork, task: "asyncio.Task[None]") -> Literal["ended", "cancelled", "timed out"]:
        """Wait for the work's end; look at the cancel mark now and then, and when somebody hints at it."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._limits.turn_seconds
        with CANCELLATIONS.watch(work.request.turn_id) as hint:
            while True:
                hinted = asyncio.ensure_future(hint.wait())
                seconds = min(_LOOK_SECONDS, max(deadline - loop.time(), 0.0))
                await asyncio.wait({task, hinted}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                hinted.cancel()
                hint.clear()
                if task.done():
                    return "ended"
                if loop.time() >= deadline:
                    return "timed out"
                if not work.was_cancelled and await _is_cancelled(work.attempt):
                    return "cancelled"


async def _is_cancelled(attempt: Attempt) -> bool:
    try:
        return await attempt.is_cancel_requested()
    except LogError as error:
        _LOGGER.warning("turn log %s: cannot look for a cancel: %s", attempt.log_id, error)
        return False


async def _give_up(work: AgentWork, task: "asyncio.Task[None]") -> None:
    """Stop the work in the middle of whatever it does; a tool in a thread is told, and left behind."""
    if task.done():
        return
    if work.run is not None:
        work.run.stopping.set()
    for _ in range(3):  # what catches a cancellation once is asked again
        task.cancel()
        await asyncio.wait({task}, timeout=_GIVE_UP_SECONDS / 3)
        if task.done():
            return
    _LOGGER.error("turn %s: its agent does not stop when it is cancelled, and is left behind", work.request.turn_id)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
