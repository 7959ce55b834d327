"""Where agents run within the turn's agent: in one of its tool calls, or in its workflow.

Theory of operation. An agent within another calls its model through a hosted copy of its chat client, which finds its
scope in a context variable: that of the tool call, or of the workflow, in which it runs. The scope gives its calls
their paths. A workflow runs several agents at once, and the framework cancels all when one raises; so a run that has
to stop waits until each of the others has ended or has to stop as well, and no work of theirs is cut off.
"""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.turn_log.journal import Journal

if TYPE_CHECKING:
    from durable_agent_host.agent.nested_runs import NestedRun


@dataclass(frozen=True)
class NestedClient:
    """A chat client that an agent within the turn's agent uses.

    Attributes:
        provider: of the client.
        executor_id: of the workflow's executor that has the agent; empty in a tool call.
        is_tool: whether the agent runs in a tool call, where nobody follows its stream.
        is_strategy: whether a compaction strategy calls the client; such calls are made again when the run is repeated.
        includes_error_texts: whether its model receives the texts of tools' exceptions.
    """

    provider: ModelProvider
    executor_id: str = ""
    is_tool: bool = False
    is_strategy: bool = False
    includes_error_texts: bool = False


class CallScope:
    """Gives the runs of agents in one place their journals, and lets them stop together.

    Args:
        journal: of the run that makes the tool call.
        path: of the tool call; of the turn's agent for its workflow.
        begin_run: begins a run of an agent here.

    Attributes:
        failure: why a model call of an agent here has failed, or None.
    """

    def __init__(
        self, journal: Journal, path: CallPath, begin_run: "Callable[[CallScope, NestedClient], NestedRun]"
    ) -> None:
        self.failure: Exception | None = None
        self._journal = journal
        self._path = path
        self._begin_run = begin_run
        self._journals: dict[str, Journal] = {}
        self._running_count = 0
        self._stopping_count = 0
        self._has_changed = asyncio.Event()

    def begin_run(self, client: NestedClient) -> "NestedRun":
        """Begin a run of an agent with this client."""
        return self._begin_run(self, client)

    def journal(self, executor_id: str) -> Journal:
        """Return the journal of the agent of an executor; its further runs go on counting."""
        if executor_id not in self._journals:
            path = self._path.executor(executor_id) if executor_id else self._path
            self._journals[executor_id] = self._journal.within(path)
        return self._journals[executor_id]

    @contextmanager
    def running(self) -> Generator[None]:
        """Count a run while the context lasts."""
        self._running_count += 1
        try:
            yield
        finally:
            self._running_count -= 1
            self._notify()

    async def wait_for_others(self) -> None:
        """Wait until each other run has ended or waits here."""
        self._stopping_count += 1
        self._notify()
        while self._stopping_count < self._running_count:
            await self._has_changed.wait()

    def _notify(self) -> None:
        self._has_changed.set()
        self._has_changed = asyncio.Event()


CALL_SCOPE: Final[ContextVar[CallScope | None]] = ContextVar("durable_agent_host_call_scope", default=None)
"""Set by the host in a turn, and anew in each of its tool calls."""
