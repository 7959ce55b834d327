"""A framework history provider that stores folded messages, each turn once, through any other history provider.

Theory of operation. Messages are folded when saved and when loaded. Each is saved once: a run of this host names its
turn, and the n-th message of a turn has the same identity at every attempt. Other messages get an id when they have
none, so saving the same objects again is recognized, while two messages with the same text stay two.

A session that was stored chunk by chunk is rewritten before the next messages are added. History providers have no
transactions, so the folded conversation is first saved under a second session id, ended by a marker; only then is the
old one cleared. A reader that finds fewer messages than the first one announces reads the second copy. A crash in
between loses nothing.
"""

import copy
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, Final, Protocol, cast, runtime_checkable
from uuid import uuid4
from weakref import WeakKeyDictionary

from agent_framework import AgentSession, HistoryProvider, Message, SessionContext, SupportsAgentRun

from durable_agent_host.session.external_messages import (
    IDENTITY,
    POSITION,
    REWRITTEN,
    identity_of,
    in_order,
    name_of,
    next_index,
)
from durable_agent_host.stream.fold import fold_contents

_COPY: Final = ".durable-agent-host-copy"
"""Suffix of the id under which a session is kept while it is rewritten."""

_END_OF_COPY: Final = "durable_agent_host.end_of_copy"


@runtime_checkable
class _Clears(Protocol):
    async def clear(self, session_id: str | None) -> None: ...


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

    Old sessions that were stored chunk by chunk are loaded folded, and shrink on their next save when the wrapped
    provider has ``clear``. Turns of one session must not run at the same time; this host ensures that.

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

        Guarantee: writes nothing, except to finish a rewrite that another process began.

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

    def clearing(self, clear: Callable[[str], Awaitable[None]]) -> Callable[[str], Awaitable[None]]:
        """Return a function that deletes a session and leftovers of its rewriting.

        Args:
            clear: deletes a session of the wrapped provider.
        """

        async def clear_all(session_id: str) -> None:
            await clear(session_id)
            await clear(session_id + _COPY)

        return clear_all

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
        stored_messages = await self._shrink(session_id, stored_messages, state=state, **kwargs)
        stored_ids = {identity_of(message) for message in stored_messages} - {None}
        new = [_fold(message) for message in messages if identity_of(message) not in stored_ids]
        _number(new, next_index(stored_messages))
        await self._append(session_id, new, state=state, **kwargs)

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
        messages = in_order(await self.wrapped.get_messages(session_id, **kwargs))
        expected_count = messages[0].additional_properties.get(REWRITTEN, 0) if messages else 1
        if len(messages) >= expected_count or not session_id or not isinstance(self.wrapped, _Clears):
            return messages
        copied_messages = in_order(await self.wrapped.get_messages(session_id + _COPY, **kwargs))
        if not copied_messages or copied_messages[-1].message_id != _END_OF_COPY:
            return messages
        return await self._replace(session_id, copied_messages[:-1], **kwargs)

    async def _shrink(self, session_id: str | None, messages: list[Message], **kwargs: Any) -> list[Message]:
        """Rewrite a session stored in chunks."""
        folded_messages = [_fold(message) for message in messages]
        is_folded = all(len(a.contents) == len(b.contents) for a, b in zip(messages, folded_messages, strict=True))
        if is_folded or not session_id or not isinstance(self.wrapped, _Clears):
            return messages
        folded_messages[0].additional_properties = folded_messages[0].additional_properties | {
            REWRITTEN: len(folded_messages)
        }
        for message in folded_messages:
            message.message_id = message.message_id or f"message-{uuid4().hex}"
        end = Message("system", [], message_id=_END_OF_COPY)
        _number([*folded_messages, end], 0)
        await self.wrapped.clear(session_id + _COPY)
        await self._append(session_id + _COPY, [*folded_messages, end], **kwargs)
        return await self._replace(session_id, folded_messages, **kwargs)

    async def _replace(self, session_id: str, messages: list[Message], **kwargs: Any) -> list[Message]:
        clears = cast("_Clears", self.wrapped)
        await clears.clear(session_id)
        await self._append(session_id, messages, **kwargs)
        await clears.clear(session_id + _COPY)
        return messages

    async def _append(self, session_id: str | None, messages: Sequence[Message], **kwargs: Any) -> None:
        for start in range(0, len(messages), self._max_batch):
            await self.wrapped.save_messages(session_id, messages[start : start + self._max_batch], **kwargs)


def _number(messages: Sequence[Message], first: int) -> None:
    for position, message in enumerate(messages, first):
        message.additional_properties[POSITION] = position


def _fold(message: Message) -> Message:
    result = copy.copy(message)
    result.contents = fold_contents(message.contents)
    result.additional_properties = dict(message.additional_properties)
    result.raw_representation = None
    return result


def _without_marks(message: Message) -> Message:
    """Remove this provider's own marks before a model's client sees the message."""
    for name in (IDENTITY, POSITION, REWRITTEN):
        message.additional_properties.pop(name, None)
    return message
