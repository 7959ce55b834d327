"""A framework history provider that stores folded messages, each turn once, through any other history provider.

Theory of operation. Messages are folded when saved and when loaded. Each is saved once: a run of this host names its
turn, and the n-th message of a turn has the same identity at every attempt. Other messages get an id when they have
none, so saving the same objects again is recognized, while two messages with the same text stay two.
"""

import copy
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final
from uuid import uuid4
from weakref import WeakKeyDictionary

from agent_framework import AgentSession, HistoryProvider, Message, SessionContext, SupportsAgentRun

from durable_agent_host.session.external_messages import (
    IDENTITY,
    POSITION,
    identity_of,
    in_order,
    name_of,
    next_index,
)
from durable_agent_host.stream.fold import fold_contents


class _Turn:
    """Counts the messages that a turn saves, over all saves of its run."""

    def __init__(self, turn_id: str) -> None:
        self.turn_id = turn_id
        self._saved_count = 0

    def next_name(self) -> str:
        self._saved_count += 1
        return f"{self.turn_id}/{self._saved_count}"


_SAVING: Final[ContextVar[_Turn | None]] = ContextVar("durable_agent_host_saving", default=None)


class CoalescingHistoryProvider(HistoryProvider):
    """Wraps a history provider of the framework: folds what it saves and loads, and saves each turn once.

    Old sessions that were stored chunk by chunk are loaded folded, and stay as they are. Turns of
    one session must not run at the same time; this host ensures that.

    Args:
        wrapped: owns the storage; its flags (what is loaded and stored) apply.
        max_batch: most messages per save of the wrapped provider. 100 is what Cosmos DB writes atomically; more would
            be two writes, of which the second can fail alone.

    Attributes:
        wrapped: as given.
        keeps_marks: whether loaded messages keep the marks by which this host recognizes them.
    """

    def __init__(self, wrapped: HistoryProvider, *, max_batch: int = 100) -> None:
        super().__init__(
            wrapped.source_id,
            load_messages=wrapped.load_messages,
            store_inputs=wrapped.store_inputs,
            store_context_messages=wrapped.store_context_messages,
            store_context_from=wrapped.store_context_from,
            store_outputs=wrapped.store_outputs,
        )
        self.wrapped = wrapped
        self.keeps_marks = False
        self._max_batch = max_batch
        self._turns: WeakKeyDictionary[AgentSession, _Turn] = WeakKeyDictionary()

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Load a session's messages, folded.

        Guarantee: writes nothing.

        Args:
            session_id: the session.
            state: passed on.
            kwargs: passed on.
        """
        messages = await self.marked_messages(session_id, state=state, **kwargs)
        return messages if self.keeps_marks else [_without_marks(message) for message in messages]

    async def marked_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Load a session's messages as `get_messages` does, with the marks of this host."""
        return [_fold(message) for message in await self._load(session_id, state=state, **kwargs)]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Save messages, folded, except those already stored.

        Guarantee: idempotent by the turn and place of a message (`IDENTITY`), or else by its message id.

        Args:
            session_id: the session.
            messages: new ones, in order. A message without an identity gets a ``message_id``, in place.
            state: passed on.
            kwargs: passed on.
        """
        turn = _SAVING.get()
        for message in messages:
            if turn is not None and name_of(message) is None:
                message.additional_properties[IDENTITY] = turn.next_name()
            message.message_id = message.message_id or name_of(message) or f"message-{uuid4().hex}"
        stored_messages = await self._load(session_id, state=state, **kwargs)
        stored_ids = {identity_of(message) for message in stored_messages} - {None}
        new = [_fold(message) for message in messages if identity_of(message) not in stored_ids]
        for position, message in enumerate(new, next_index(stored_messages)):
            message.additional_properties[POSITION] = position
        for start in range(0, len(new), self._max_batch):
            await self.wrapped.save_messages(session_id, new[start : start + self._max_batch], state=state, **kwargs)

    async def after_run(
        self, *, agent: SupportsAgentRun, session: AgentSession, context: SessionContext, state: dict[str, Any]
    ) -> None:
        """Save the run's messages; within a turn, their names derive from it, so a retry repeats them."""
        token = _SAVING.set(self._get_turn(session))
        try:
            await super().after_run(agent=agent, session=session, context=context, state=state)
        finally:
            _SAVING.reset(token)

    def _get_turn(self, session: AgentSession) -> "_Turn | None":
        """Return the turn of a session of this host; each attempt of a turn has its own session object."""
        turn_id = getattr(session, "turn_id", None)
        if not turn_id:
            return None
        turn = self._turns.get(session)
        if turn is None or turn.turn_id != turn_id:
            turn = self._turns[session] = _Turn(turn_id)
        return turn

    async def _load(self, session_id: str | None, **kwargs: Any) -> list[Message]:
        return in_order(await self.wrapped.get_messages(session_id, **kwargs))


def _fold(message: Message) -> Message:
    result = copy.copy(message)
    result.contents = fold_contents(message.contents)
    result.additional_properties = dict(message.additional_properties)
    result.raw_representation = None
    return result


def _without_marks(message: Message) -> Message:
    """Remove this provider's own marks before a model's client sees the message."""
    for name in (IDENTITY, POSITION):
        message.additional_properties.pop(name, None)
    return message
