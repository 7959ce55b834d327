"""The app's history providers as a feature: loaded messages are rehydrated, saved ones are saved once.

Theory of operation. The framework lets a history provider load before a run and save after it. In a hosted run each
provider is a copy with overrides of its four methods. Loaded messages are ordered, each name once, and go to the model
like the host's own transcript, with the provider's item ids. Saving waits until the turn's end is known: then the
messages of the turn's entries are saved, completed or cancelled, under names that a retry repeats
(`durable_agent_host.features.histories.message_names`). What a provider has is the conversation: messages that it
stored of a turn that then failed are part of it.

A provider that saves after each model call (``require_per_service_call_history_persistence``) does so as the framework
implements it.
"""

import asyncio
import copy
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, cast, override

from agent_framework import AgentResponse, AgentSession, HistoryProvider, Message, SessionContext, SupportsAgentRun

from durable_agent_host.agent.durable_session import DurableSession
from durable_agent_host.agent.dynamic_subclass import copy_with_mixin
from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.codec.message import decode_messages
from durable_agent_host.errors import HistoryError, log_reason
from durable_agent_host.features.histories.coalescing_provider import CoalescingHistoryProvider
from durable_agent_host.features.histories.message_names import (
    name_of,
    read_once,
    select_unsaved,
    with_names,
    without_marks,
)
from durable_agent_host.features.histories.providers import (
    ProviderHistory,
    get_provider_name,
    history_providers,
    primary_provider,
)
from durable_agent_host.segments.turn_data_storage import redact_in_thread
from durable_agent_host.session.transcript import sendable
from durable_agent_host.stream.fold import fold_contents

_SAVE_SECONDS: Final = 10.0
"""How long a provider may take to save."""
_PAUSES: Final = (0.2, 1.0)
"""Seconds before each further attempt to save."""


class Histories(AgentFeature):
    """The history providers of one agent.

    Args:
        agent: the app's.
    """

    def __init__(self, agent: SupportsAgentRun) -> None:
        self.history = ProviderHistory(agent)

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Begin a run, with copies of the providers."""
        history = RunHistoryProviders(run)
        return RunPart(history=history, adapt_agent=history.adapt_agent)


class RunHistoryProviders:
    """The app's history providers in one run.

    Args:
        run: loads from them; at the turn's end, its session is saved with what they have put into it.

    Attributes:
        run: the same.
        may_have_saved: whether an earlier attempt may have saved the turn's messages.
        redactor: for stored messages, or None.
    """

    def __init__(self, run: CurrentRun) -> None:
        start = run.start
        self.run = run
        self.may_have_saved = start.attempt.number > 1
        self.redactor = start.redactor
        resumptions = start.attempt.recorded.resumptions  # each has names of its own for the turn's messages
        self._prefix = f"{resumptions}." if resumptions else ""
        self._has_saved = False
        self._agent: Any = None
        self._run_providers: list[Any] = []

    def adapt_agent(self, agent: SupportsAgentRun, /) -> SupportsAgentRun:
        """Return a copy of the agent whose providers are those of this run; the agent itself if it has none."""
        self._agent = agent
        app_providers = history_providers(agent)
        if not app_providers or getattr(agent, "require_per_service_call_history_persistence", False):
            return agent
        agent_copy: Any = copy.copy(cast("Any", agent))
        providers: list[Any] = []
        for provider in agent_copy.context_providers:
            if not any(provider is app_provider for app_provider in app_providers):
                providers.append(provider)
                continue
            run_provider = copy_with_mixin(provider, _InRun)
            run_provider.in_run = _ProviderInRun(self)
            if isinstance(run_provider, CoalescingHistoryProvider):
                run_provider.keeps_marks = True
            self._run_providers.append(run_provider)
            providers.append(run_provider)
        agent_copy.context_providers = providers
        return agent_copy

    @property
    def primary_provider(self) -> str | None:
        """The provider that has every message of the conversation; None when the session needs them."""
        return primary_provider(self._agent) if self._has_saved else None

    async def save(self, entries: Sequence[Mapping[str, Any]], *, is_cut_off: bool) -> None:
        """Save the messages of the turn in every provider.

        Raises:
            HistoryError: a provider failed three times.
        """
        if not self._run_providers:
            return
        named_messages = with_names(self.run.start.request.turn_id, decode_messages(entries), prefix=self._prefix)
        pending_providers = [
            provider
            for provider in reversed(self._run_providers)
            if is_cut_off or provider.in_run.first_context is not None
        ]
        for provider in pending_providers:
            await self._save_with(provider, named_messages[0], named_messages[1:])
        self._has_saved = len(pending_providers) == len(self._run_providers)

    async def _save_with(self, provider: Any, request_message: Message, response_messages: Sequence[Message]) -> None:
        for pause in (*_PAUSES, None):
            try:
                async with asyncio.timeout(_SAVE_SECONDS):
                    await provider.in_run.finish(provider, self._agent, request_message, response_messages)
            except Exception as error:
                provider.in_run.reset()
                if pause is None:
                    raise HistoryError(
                        f"the turn's messages could not be saved by {get_provider_name(provider)}: "
                        f"{log_reason(error)}; try again when it responds"
                    ) from error
                await asyncio.sleep(pause)
            else:
                return


class _ProviderInRun:
    """A run's view of one provider."""

    def __init__(self, histories: RunHistoryProviders) -> None:
        self.first_context: SessionContext | None = None
        self.is_finishing = False
        self._histories = histories
        self._run = histories.run
        self._run_messages: list[Message] = []
        self._stored_messages: list[Message] | None = None

    def reset(self) -> None:
        """Discard the copy of the provider's messages: a save has failed, and how much of it was done is unknown."""
        self._stored_messages = None
        self._histories.may_have_saved = True

    def select_loaded(self, messages: Sequence[Message]) -> list[Message]:
        """Take the provider's messages, and return those that count."""
        self._stored_messages = list(messages)
        return read_once(messages, except_turn=self._run.start.request.turn_id)

    def prepare_messages(self, messages: Sequence[Message]) -> list[Message]:
        """Prepare loaded messages for the model, and add messages of this turn from finished runs."""
        fresh: list[Message] = []
        for message in messages:
            model_message = without_marks(message)
            if name_of(message) is None:  # it may have been stored chunk by chunk
                model_message.contents = fold_contents(model_message.contents)
            fresh.append(model_message)
        return [*self._run.rehydrate(sendable(fresh)), *self._earlier_messages()]

    def _earlier_messages(self) -> Sequence[Message]:
        """Return the messages of this turn from finished runs."""
        return self._run.session.transcript or self._run.agent.provider.as_history(self._run_messages)

    def record_end(self, context: SessionContext) -> None:
        """Remember a run's input and output."""
        self.first_context = self.first_context or context
        self._run_messages += [*context.input_messages, *(context.response.messages if context.response else ())]

    async def finish(
        self, provider: Any, agent: Any, request_message: Message, response_messages: Sequence[Message]
    ) -> None:
        """Let the provider save the turn as it saves a run that has just ended."""
        session = self._run.session
        context = (
            copy.copy(self.first_context)
            if self.first_context
            else SessionContext(session_id=session.session_id, input_messages=[])
        )
        context.input_messages = [request_message]
        cast("Any", context)._response = AgentResponse(messages=list(response_messages))  # noqa: SLF001 - as the framework does
        self.is_finishing = True
        try:
            state: dict[str, Any] = session.state.setdefault(provider.source_id, {})
            await provider.after_run(agent=agent, session=session, context=context, state=state)
        finally:
            self.is_finishing = False

    async def select_unsaved(self, messages: Sequence[Message], load: Callable[[], Any]) -> list[Message]:
        """Name messages, and leave out those that the provider already has."""
        unnamed_messages = [candidate for candidate in messages if name_of(candidate) is None]
        if (redactor := self._histories.redactor) is not None:
            unnamed_messages = await redact_in_thread(redactor, partial(redactor.messages, unnamed_messages))
        context_messages = with_names(self._run.start.request.turn_id, unnamed_messages, prefix="context-")
        names = iter(context_messages)
        named_messages = [next(names) if name_of(candidate) is None else candidate for candidate in messages]
        if self._stored_messages is None or self._histories.may_have_saved:
            self._stored_messages = list(await load())
        return select_unsaved(named_messages, self._stored_messages)


class _InRun:
    """The overrides; stand before the provider's own class in the method resolution order."""

    in_run: _ProviderInRun

    async def get_messages(self, session_id: str | None, *, state: Any = None, **kwargs: Any) -> list[Message]:
        provider: Any = super()
        return self.in_run.select_loaded(await provider.get_messages(session_id, state=state, **kwargs))

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: Any = None, **kwargs: Any
    ) -> None:
        provider: Any = super()

        async def load() -> list[Message]:
            return await provider.get_messages(session_id, state=state, **kwargs)

        new = await self.in_run.select_unsaved(messages, load)
        if new:
            await provider.save_messages(session_id, new, state=state, **kwargs)

    async def before_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        provider: Any = super()
        this_provider: Any = self
        run_session = cast("DurableSession", session)
        run_session.input_messages = run_session.input_messages or list(context.input_messages)
        if provider.before_run.__func__ is not HistoryProvider.before_run:
            await provider.before_run(agent=agent, session=session, context=context, state=state)
            loaded_messages = context.context_messages.get(this_provider.source_id, [])
        elif session.service_session_id:
            return  # the model's service has the conversation
        else:  # the framework would leave out answers of tools run by the model's service
            loaded_messages = await this_provider.get_messages(context.session_id, state=state)
        context.context_messages[this_provider.source_id] = self.in_run.prepare_messages(loaded_messages)

    async def after_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        if not self.in_run.is_finishing:
            self.in_run.record_end(context)
            return
        provider: Any = super()
        await provider.after_run(agent=agent, session=session, context=context, state=state)
