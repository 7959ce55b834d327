"""Model calls of a compaction strategy: answered from the journal, or made and journaled.

A strategy of the framework calls the model through its own chat client. A hosted agent gets a copy of the strategy,
whose client asks `SideCalls` of the current run. A call is identified by the model call before which it is made and its
number there. A strategy that reaches its client in another way, or streams, calls it as it would without this host.
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

from agent_framework import ChatResponse, Message, UsageDetails, add_usage_details, normalize_messages

from durable_agent_host.agent.ending import RunStoppedError, stop_of
from durable_agent_host.agent.heard import characters_of_answer
from durable_agent_host.agent.inner_calls import not_counted
from durable_agent_host.agent.run_state import AgentRun
from durable_agent_host.codec.journal_entry import decode_model_response, encode_answer
from durable_agent_host.errors import LogError, ProviderError
from durable_agent_host.loops.weak_context_var import WeakContextVar
from durable_agent_host.model.budget import Reservation
from durable_agent_host.model.usage import is_measured, known_counts

Call = Callable[[], Awaitable[ChatResponse[Any]]]


class SideCalls:
    """The calls that strategies make before one model call of a run.

    Args:
        run: whose journal holds them.
        position: of the model call.
        replayed: whether the journal answers that model call: then a call that failed before it is not tried again.

    Attributes:
        usage: tokens of the answered calls.
    """

    def __init__(self, run: AgentRun, position: int, *, replayed: bool) -> None:
        self.usage: UsageDetails | None = None
        self._run = run
        self._position = position
        self._replayed = replayed
        self._count = 0

    async def answer(self, call: Call, messages: Sequence[Message], options: Mapping[str, Any]) -> ChatResponse[Any]:
        """Answer the next call.

        Args:
            call: makes it.
            messages: of the request.
            options: of the request.

        Returns:
            The response, which is durable.

        Raises:
            RunStoppedError: the run is no longer wanted.
            ProviderError: the call failed earlier, before a model call that is finished.
            Exception: raised by the client, when a retry would not help.
        """
        number, self._count = self._count, self._count + 1
        recorded = self._run.journal.side_call(self._position, number)
        if recorded is not None:
            response = decode_model_response(recorded)
        elif self._replayed:
            raise ProviderError("the model call of a compaction had failed", retryable=False)
        else:
            wanted = await self._admitted(messages, options)
            response = await self._make(call, number, wanted)
            response.usage_details = cast("Any", known_counts(cast("Any", response.usage_details))) or None
            await self._journal(number, response)
        self.usage = add_usage_details(self.usage, response.usage_details)
        return response

    async def _admitted(self, messages: Sequence[Message], options: Mapping[str, Any]) -> Reservation:
        """Check a call against the budgets."""
        run = self._run
        if run.spending is None:
            return Reservation()
        wanted = await run.spending.admit_model_call(run.ask_for_budget, messages, options)
        run.check_waiting()
        return wanted

    async def _make(self, call: Call, number: int, wanted: Reservation) -> ChatResponse[Any]:
        run, retry = self._run, 0
        spending = run.spending
        while True:
            self._run.check()
            try:
                if spending is not None:
                    await spending.reserve(self._position, number, wanted)
                with run.kept.call(self._position, number), not_counted():
                    return await call()
            except Exception as error:
                if spending is not None:
                    await spending.release(self._position, number)
                seconds = self._run.wait_before_retry(retry, error)
                if seconds is None:
                    raise
                retry += 1
                await asyncio.sleep(seconds)

    async def _journal(self, number: int, response: ChatResponse[Any]) -> None:
        if self._run.spending is not None and not is_measured(cast("Any", response.usage_details)):
            self._run.spending.heard(self._position, number, characters_of_answer(response), response.model)
            self._run.spending.note_heard(self._position, number)
        answer = encode_answer(response)
        try:
            await self._run.journal.side_call_finished(self._position, number, answer)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        if self._run.spending is not None:
            self._run.spending.settle(self._position, number, response.usage_details, response.model)


_CURRENT: Final = WeakContextVar[SideCalls]("durable_agent_host_side_calls")


@contextmanager
def answering(calls: SideCalls) -> Generator[None]:
    """Route the calls of a strategy's clients through these while the context lasts."""
    before = _CURRENT.set(calls)
    try:
        yield
    finally:
        _CURRENT.reset(before)


class JournaledClient:
    """Replaces a chat client in a strategy.

    Args:
        client: makes the calls.
    """

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def get_response(self, messages: Any, *, stream: bool = False, **arguments: Any) -> Any:
        """Answer as the client does; within a turn, through the turn's journal."""
        client = self._client

        def call() -> Any:
            return client.get_response(messages, stream=stream, **arguments)

        calls = _CURRENT.get()
        if stream or calls is None:
            return call()
        listed = isinstance(messages, str | Message | list | tuple)  # what else a client takes may be read only once
        asked = normalize_messages(cast("Any", messages)) if listed else []
        return calls.answer(cast("Call", call), asked, arguments.get("options") or {})
