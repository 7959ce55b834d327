"""A framework history provider that stores folded messages, each once, through any other history provider.

Messages are folded when saved and when loaded. One without an id gets one, so saving the same objects again is
recognized, while two messages with the same text stay two.
"""

import copy
from collections.abc import Sequence
from typing import Any, Final
from uuid import uuid4

from agent_framework import HistoryProvider, Message

from durable_agent_host.features.histories.message_names import (
    IDENTITY,
    POSITION,
    in_order,
    name_of,
    select_unsaved,
)
from durable_agent_host.stream.fold import fold_contents

_MAX_BATCH: Final = 100
"""Messages per save: Cosmos DB writes as many atomically. More would be two writes, of which the second can fail."""


class CoalescingHistoryProvider(HistoryProvider):
    """Wraps a history provider of the framework: folds what it saves and loads, and saves each message once.

    Old sessions that were stored chunk by chunk are loaded folded, and stay as they are. Turns of
    one session must not run at the same time; this host ensures that.

    Args:
        wrapped: owns the storage; its flags (what is loaded and stored) apply.

    Attributes:
        wrapped: as given.
        keeps_marks: whether loaded messages keep the marks by which this host recognizes them.
    """

    def __init__(self, wrapped: HistoryProvider) -> None:
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
        messages = [_fold(message) for message in await self._load(session_id, state=state, **kwargs)]
        return messages if self.keeps_marks else [_without_marks(message) for message in messages]

    async def save_messages(
        self, session_id: str | None, messages: Sequence[Message], *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Save messages, folded, except those already stored.

        Guarantee: idempotent by the name that a hosted run gives a message, or else by its message id.

        Args:
            session_id: the session.
            messages: new ones, in order. One without an id gets a ``message_id``, in place.
            state: passed on.
            kwargs: passed on.
        """
        for message in messages:
            message.message_id = message.message_id or name_of(message) or f"message-{uuid4().hex}"
        new = select_unsaved(map(_fold, messages), await self._load(session_id, state=state, **kwargs))
        for start in range(0, len(new), _MAX_BATCH):
            await self.wrapped.save_messages(session_id, new[start : start + _MAX_BATCH], state=state, **kwargs)

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
