"""The app's history providers in one run of a turn: loaded messages are rehydrated, saved ones are saved once.

Theory of operation. The framework lets a history provider load before a run and save after it. In a hosted run each
provider is a copy with overrides of its four methods. Loaded messages are ordered, each name once, and go to the model
like the host's own transcript, with the provider's item ids. Saving waits until the turn's end is known: then the
messages of the turn's entries are saved, completed or cancelled, under names that a retry repeats
(`durable_agent_host.session.external_messages`). The session's commit decides what counts: messages of a turn that
failed according to the session are not loaded again.

A provider that saves after each model call (``require_per_service_call_history_persistence``) does so as the framework
implements it.
"""

import asyncio
import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from agent_framework import (
    AgentResponse,
    AgentSession,
    HistoryProvider,
    Message,
    SessionContext,
    SupportsAgentRun,
)

from durable_agent_host.agent.coalescing_history_provider import CoalescingHistoryProvider
from durable_agent_host.agent.dynamic_subclass import copy_with
from durable_agent_host.agent.history_providers import history_providers, name_of_provider
from durable_agent_host.agent.transcript_provider import DurableSession
from durable_agent_host.concurrency.thread_offload import aside_of_texts
from durable_agent_host.errors import HistoryError, log_reason
from durable_agent_host.model.session import Receipt
from durable_agent_host.session.external_messages import (
    PLACE,
    name_of,
    named_for,
    next_place,
    read_once,
    turn_of,
    without_marks,
)
from durable_agent_host.session.transcript import sendable
from durable_agent_host.stream.fold import fold_contents

VOID_TURNS: Final = "durable_agent_host.void_turns"
"""Key in the state of the framework's session: failed turns of which a provider has messages."""

_SAVE_SECONDS: Final = 10.0
_PAUSES: Final = (0.2, 1.0)


@dataclass
class RunHistories:
    """The app's history providers in one run.

    Args:
        session: of the run.
        turn_id: of the turn.
        receipts: of the session.
        may_have_saved: whether an earlier attempt may have saved the turn's messages.
        rehydrate: prepares loaded messages for the model.
        as_history: prepares messages of the run in the same way.
        clean: returns messages as they may be kept.

    Attributes:
        has_saved: whether every provider has the turn.
    """

    session: DurableSession
    turn_id: str
    receipts: Sequence[Receipt]
    may_have_saved: bool
    rehydrate: Callable[[Sequence[Message]], list[Message]]
    as_history: Callable[[Sequence[Message]], list[Message]]
    clean: Callable[[Sequence[Message]], list[Message]]
    has_saved: bool = False
    _agent: Any = None
    _kept: list[Any] = field(default_factory=list[Any])

    def put_into(self, agent: SupportsAgentRun) -> SupportsAgentRun:
        """Return a copy of the agent whose providers are those of this run; the agent itself if it has none."""
        self._agent = agent
        self._kept = []
        own = history_providers(agent)
        if not own or getattr(agent, "require_per_service_call_history_persistence", False):
            return agent
        copied: Any = copy.copy(cast("Any", agent))
        providers: list[Any] = []
        for provider in copied.context_providers:
            if not any(provider is one for one in own):
                providers.append(provider)
                continue
            kept = copy_with(provider, _InRun)
            kept.in_run = _ProviderInRun(self)
            if isinstance(kept, CoalescingHistoryProvider):
                kept.keeps_marks = True
            self._kept.append(kept)
            providers.append(kept)
        copied.context_providers = providers
        return copied

    @property
    def has_any(self) -> bool:
        """Whether the agent has providers to save with."""
        return bool(self._kept)

    @property
    def void(self) -> set[str]:
        """Turns whose messages do not count: failed ones, and this one, which is not yet part of the conversation."""
        failed = [receipt.turn_id for receipt in self.receipts if receipt.status == "failed"]
        return {self.turn_id, *failed, *cast("list[str]", self.session.state.get(VOID_TURNS) or [])}

    def note_void(self, turn_id: str) -> None:
        """Record in the session that messages of a failed turn are kept: its receipt expires."""
        if turn_id != self.turn_id:
            self._remember(turn_id)

    def give_up(self) -> None:
        """Record that this turn ends without being saved: a provider's messages of it may lack the calls' results."""
        self._remember(self.turn_id)

    def _remember(self, turn_id: str) -> None:
        known = cast("list[str]", self.session.state.get(VOID_TURNS) or [])
        if turn_id not in known:
            self.session.state[VOID_TURNS] = [*known, turn_id]

    async def save(self, asked: Message, produced: Sequence[Message], *, is_cut_off: bool) -> None:
        """Save the messages of the turn in every provider.

        Guarantee: idempotent by the turn, with providers that keep a message's ``additional_properties``.

        Args:
            asked: the turn's message.
            produced: as the host stores it.
            is_cut_off: the run did not finish, so the framework has not asked for anything to be saved.

        Raises:
            HistoryError: a provider failed three times.
        """
        named = named_for(self.turn_id, [asked, *produced])
        waiting = [kept for kept in reversed(self._kept) if is_cut_off or kept.in_run.ended is not None]
        for kept in waiting:
            await self._save_with(kept, named[0], named[1:])
        self.has_saved = len(waiting) == len(self._kept)

    async def _save_with(self, kept: Any, asked: Message, produced: Sequence[Message]) -> None:
        for pause in (*_PAUSES, None):
            try:
                async with asyncio.timeout(_SAVE_SECONDS):
                    await kept.in_run.finish(kept, self._agent, asked, produced)
            except Exception as error:
                kept.in_run.forget()
                if pause is None:
                    raise HistoryError(
                        f"the turn's messages could not be saved by {name_of_provider(kept)}: {log_reason(error)}; "
                        "try again when it responds"
                    ) from error
                await asyncio.sleep(pause)
            else:
                return


class _ProviderInRun:
    """What a run knows of one provider.

    Attributes:
        ended: the framework's context of the first run that ended, or None.
    """

    def __init__(self, histories: RunHistories) -> None:
        self.ended: SessionContext | None = None
        self.is_finishing = False
        self._histories = histories
        self._said: list[Message] = []
        self._stored: list[Message] | None = None

    def forget(self) -> None:
        """Forget what the provider has: a save has failed, and how much of it was done is unknown."""
        self._stored = None
        self._histories.may_have_saved = True

    def loaded(self, messages: Sequence[Message]) -> list[Message]:
        """Take the provider's messages, and return those that count."""
        self._stored = list(messages)
        void = self._histories.void
        for turn in {turn_of(message) for message in messages} & void:
            self._histories.note_void(str(turn))
        return read_once(messages, void=void)

    def prepared(self, messages: Sequence[Message]) -> list[Message]:
        """Prepare loaded messages for the model, and add messages of this turn from finished runs."""
        fresh: list[Message] = []
        for message in messages:
            one = without_marks(message)
            if name_of(message) is None:  # it may have been stored chunk by chunk
                one.contents = fold_contents(one.contents)
            fresh.append(one)
        return [*self._histories.rehydrate(sendable(fresh)), *self._said_before()]

    def _said_before(self) -> Sequence[Message]:
        """Return the messages of this turn from finished runs."""
        return self._histories.session.transcript or self._histories.as_history(self._said)

    def note_end(self, context: SessionContext) -> None:
        """Remember a run's input and output."""
        self.ended = self.ended or context
        self._said += [*context.input_messages, *(context.response.messages if context.response else ())]

    async def finish(self, kept: Any, agent: Any, asked: Message, produced: Sequence[Message]) -> None:
        """Let the provider save the turn as it saves a run that has just ended."""
        session = self._histories.session
        context = (
            copy.copy(self.ended) if self.ended else SessionContext(session_id=session.session_id, input_messages=[])
        )
        context.input_messages = [asked]
        cast("Any", context)._response = AgentResponse(messages=list(produced))  # noqa: SLF001 - as the framework does
        self.is_finishing = True
        try:
            state: dict[str, Any] = session.state.setdefault(kept.source_id, {})
            await kept.after_run(agent=agent, session=session, context=context, state=state)
        finally:
            self.is_finishing = False

    async def unsaved(self, kept: Any, messages: Sequence[Message], load: Callable[[], Any]) -> list[Message]:
        """Name messages, and leave out those that the provider already has."""
        turn_id = self._histories.turn_id
        unnamed = [one for one in messages if name_of(one) is None]
        unnamed = await aside_of_texts(unnamed, partial(self._histories.clean, unnamed))
        added = named_for(turn_id, unnamed, prefix="context-")
        names = iter(added)
        named = [next(names) if name_of(one) is None else one for one in messages]
        if isinstance(kept, CoalescingHistoryProvider):
            return named  # the provider filters itself
        if self._stored is None or self._histories.may_have_saved:
            self._stored = list(await load())
        known = {name_of(message) for message in self._stored}
        first = next_place(self._stored)
        new = [message for message in named if name_of(message) not in known]
        for place, message in enumerate(new, first):
            message.additional_properties = {**message.additional_properties, PLACE: place}
        return new


class _InRun:
    """The overrides; stand before the provider's own class in the method resolution order."""

    in_run: _ProviderInRun

    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        provider: Any = super()
        return self.in_run.loaded(await provider.get_messages(session_id, state=state, **kwargs))

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: Any = None, **kwargs: Any
    ) -> None:
        provider: Any = super()

        async def load() -> list[Message]:
            return await provider.get_messages(session_id, state=state, **kwargs)

        new = await self.in_run.unsaved(self, messages, load)
        if new:
            await provider.save_messages(session_id, new, state=state, **kwargs)

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        provider: Any = super()
        mine: Any = self
        run_session = cast("DurableSession", session)
        run_session.asked = run_session.asked or list(context.input_messages)
        if provider.before_run.__func__ is not HistoryProvider.before_run:
            await provider.before_run(agent=agent, session=session, context=context, state=state)
            loaded = context.context_messages.get(mine.source_id, [])
        elif session.service_session_id:
            return  # the model's service has the conversation
        else:  # the framework would leave out approvals of tools run by the model's service
            loaded = await mine.get_messages(context.session_id, state=state)
        context.context_messages[mine.source_id] = self.in_run.prepared(loaded)

    async def after_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        if not self.in_run.is_finishing:
            self.in_run.note_end(context)
            return
        provider: Any = super()
        await provider.after_run(agent=agent, session=session, context=context, state=state)
