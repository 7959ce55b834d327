"""The context of one run: before each model call, the strategies decide which messages are sent.

Theory of operation. The framework applies a strategy to the list that its tool loop keeps. A hosted run applies it
here instead, before the journal, on copies: the loop's list stays whole. Of the strategies' decisions, two last: which
messages are left out, and which messages were added for them, the summaries; a message that a strategy changes is
changed for one call. A model call answered by the journal passes here as well, so afterwards the decisions are what
they were when it was made. At the end of the turn, they become the session's overlay.

Messages of the session's stored context carry the name of their place (`durable_agent_host.session.context_selection`);
the others are the turn's own: what context providers add, the request, and the output of model and tools.
"""

import copy
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from agent_framework import (
    EXCLUDE_REASON_KEY,
    EXCLUDED_KEY,
    GROUP_ANNOTATION_KEY,
    CharacterEstimatorTokenizer,
    ChatContext,
    Message,
    TokenizerProtocol,
    TruncationStrategy,
    UsageDetails,
    add_usage_details,
    annotate_message_groups,
    apply_compaction,
    included_token_count,
)

from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.codec.message import encode_message
from durable_agent_host.codec.overlay import encode_overlay
from durable_agent_host.errors import CorruptStateError, log_reason
from durable_agent_host.features.compaction.strategies import Compaction, CompactionModelCalls, answering, tightened
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.overlay import MessagePosition, Overlay
from durable_agent_host.segments.turn_data_storage import redact_in_thread
from durable_agent_host.session.context_selection import RECORD, decode_position, expand_to_groups

_LOGGER = logging.getLogger(__name__)
_MARKS: Final = (GROUP_ANNOTATION_KEY, EXCLUDED_KEY, EXCLUDE_REASON_KEY)
_REPLIES: Final = frozenset({"function_approval_response", "function_result"})
_TOKENIZER: Final = CharacterEstimatorTokenizer()
_LEAST_PART: Final = 1 / 16
"""Of the share to which a request that is too long is to shrink: a strategy's limits are lowered no further."""
_STRATEGY_FAILED: Final = "%s: its context could not be compacted, and goes to the model as it was before: %s"


@dataclass(eq=False)
class _ContextMessage:
    """One message before a model call: of the loop's list, or added by a strategy in this turn.

    Attributes:
        message: as the model gets it.
        token: identifies it in the run.
        name: identifies it to strategies.
        position: in the record, or None.
        is_summary: whether it was added for messages that were left out.
        is_in: whether it is part of the context.
        is_added: whether a strategy has added it in this turn.
        is_summarized: whether it was left out when a summary was added.
    """

    message: Message
    token: str | int
    name: str
    position: MessagePosition | None = None
    is_summary: bool = False
    is_in: bool = True
    is_added: bool = False
    is_summarized: bool = False


@dataclass
class ContextWindow:
    """The context of one run.

    Attributes:
        run: of the turn's agent.
        compaction: the agent's.
        before: the session's overlay before the turn, or None.
        shares: by model call whose request was too long, how much of the messages' tokens its next request keeps.
        usage: tokens of the strategies' model calls.
        question: the request, as given to the agent.
    """

    run: CurrentRun
    compaction: Compaction
    before: Overlay | None
    shares: Mapping[CallPath, float]
    usage: UsageDetails | None = None
    question: Message | None = None
    _messages: list[Message] = field(default_factory=list[Message])
    _left_out: dict[str | int, _ContextMessage] = field(default_factory=dict[str | int, _ContextMessage])
    _summaries: list[tuple[_ContextMessage | None, _ContextMessage]] = field(
        default_factory=list[tuple[_ContextMessage | None, _ContextMessage]]
    )
    _request: str | int | None = None
    _added_count: int = 0

    async def project(self, context: ChatContext, path: CallPath, /, *, replayed: bool) -> list[Message]:
        """Choose the messages of a model call.

        Args:
            context: of the call.
            path: of the call.
            replayed: whether the journal has its response.

        Returns:
            The messages to send: all of them when the model's service keeps the conversation.

        Raises:
            RunStoppedError: the run is no longer wanted.
        """
        messages = list(context.messages)
        if (context.options or {}).get("conversation_id"):
            return messages
        self._messages = messages
        items = self._list_items()
        self._request = self._find_request(items)
        calls = CompactionModelCalls(self.run, path)
        strategies = self.compaction.strategies
        items = await self._apply_all(items, strategies, calls, replayed=replayed)
        if (share := self.shares.get(path)) is not None:
            max_tokens = max(int(_count_tokens(items) * share), 1)
            part = share
            while strategies and part > share * _LEAST_PART and _count_tokens(items) > max_tokens:
                tightened_strategies = [tightened(strategy, part) for strategy in strategies]
                items = await self._apply_all(items, tightened_strategies, calls, replayed=replayed)
                part /= 2
            oldest_first = TruncationStrategy(max_n=max_tokens, compact_to=max_tokens, tokenizer=_TOKENIZER)
            items = await self._apply(items, oldest_first, _TOKENIZER)
        if self.before is not None or not all(item.is_in for item in items):
            self._begin_with_question(items)
        self._store_decisions(items)
        self.usage = add_usage_details(self.usage, calls.usage)
        return [item.message for item in items if item.is_in]

    def _list_items(self) -> list[_ContextMessage]:
        """List the loop's messages and the turn's summaries, as the calls before have left them."""
        items = [copy.copy(summary) for previous, summary in self._summaries if previous is None]
        tokens: set[str | int] = set()
        for number, message in enumerate(self._messages):
            name = message.additional_properties.get(RECORD)
            is_stored = isinstance(name, str)
            token = _unused(name, tokens) if is_stored else id(message)
            tokens.add(token)
            position = decode_position(name) if is_stored else None
            item = _ContextMessage(message, token, str(token) if is_stored else f"turn-{number}", position)
            item.is_summary = is_stored and position is None
            if (left_out := self._left_out.get(token)) is not None:
                item.is_in = False
                item.is_summarized = left_out.is_summarized
            items.append(item)
            items += [
                copy.copy(summary)
                for previous, summary in self._summaries
                if previous is not None and previous.token == token
            ]
        return items

    def _store_decisions(self, items: Sequence[_ContextMessage]) -> None:
        """Store what lasts: what is left out, and the turn's summaries, each with the message before it."""
        self._left_out = {item.token: item for item in items if not item.is_in}
        self._summaries.clear()
        previous: _ContextMessage | None = None
        for item in items:
            if not item.is_added:
                previous = item
            elif item.is_summary and item.is_in:
                self._summaries.append((previous, item))

    def _begin_with_question(self, items: Sequence[_ContextMessage]) -> None:
        """Leave out what precedes the first question: services refuse a context that begins with an answer or a call.

        A summary stays; when it comes first, it is the user's message.
        """
        included_items = [item for item in items if item.is_in]
        is_service_item = self.compaction.is_compaction_item
        first = next(
            (
                n
                for n, item in enumerate(included_items)
                if _is_question(item) or (is_service_item is not None and is_service_item(item.message))
            ),
            0,
        )
        if included_items and _is_question(included_items[first]):
            included_items[first].message.role = "user"
        self._keep(items, {item for n, item in enumerate(included_items) if n >= first or _instructs(item)})

    async def _apply_all(
        self,
        items: list[_ContextMessage],
        strategies: Sequence[Any],
        calls: CompactionModelCalls,
        *,
        replayed: bool,
    ) -> list[_ContextMessage]:
        """Apply strategies; when one fails, the context stays as it was."""
        chosen = [copy.copy(item) for item in items]
        try:
            self._leave_out_compacted(chosen)
            with answering(calls):
                for strategy in strategies:
                    chosen = await self._apply(chosen, strategy, self.compaction.tokenizer)
        except Exception as error:  # noqa: BLE001 - a strategy's; the turn continues without it
            if not replayed:
                _LOGGER.warning(_STRATEGY_FAILED, self.run.start.attempt.label, log_reason(error))
            return items
        return chosen

    def _leave_out_compacted(self, items: Sequence[_ContextMessage]) -> None:
        """Leave out what the model's service has compacted into a later message; instructions stay."""
        is_service_item = self.compaction.is_compaction_item
        if is_service_item is None:
            return
        last = max((n for n, item in enumerate(items) if item.is_in and is_service_item(item.message)), default=0)
        if last:
            self._keep(items, {item for n, item in enumerate(items) if item.is_in and (n >= last or _instructs(item))})

    async def _apply(
        self, items: Sequence[_ContextMessage], strategy: Any, tokenizer: TokenizerProtocol | None
    ) -> list[_ContextMessage]:
        """Apply one strategy to copies of the included messages; what it adds follows what it left before it."""
        copies = [(_copy(item), item) for item in items if item.is_in]
        by_copy = {id(message_copy): item for message_copy, item in copies}
        chosen = await apply_compaction(
            [message_copy for message_copy, _ in copies], strategy=strategy, tokenizer=tokenizer
        )
        retained_items = {by_copy[id(message)] for message in chosen if id(message) in by_copy}
        left_out = [item for _, item in copies if item not in retained_items]
        added_items: dict[_ContextMessage | None, list[_ContextMessage]] = {}
        previous: _ContextMessage | None = None
        for message in chosen:
            item = by_copy.get(id(message))
            if item is None:
                added_items.setdefault(previous, []).append(self._add(message, is_summary=bool(left_out)))
                continue
            if not _is_same(message, item.message):
                item.message = _without(message, _MARKS, item.message.message_id)
            previous = item
        result = added_items.get(None, []) + [each for item in items for each in (item, *added_items.get(item, ()))]
        self._keep(result, {*retained_items, *(item for items in added_items.values() for item in items)})
        if added_items:
            for item in left_out:
                item.is_summarized = not item.is_in
        return result

    def _keep(self, items: Sequence[_ContextMessage], retained_items: set[_ContextMessage]) -> None:
        """Leave out the other messages, except the request, without separating messages that belong together."""
        included_indexes = expand_to_groups(
            [item.message for item in items],
            [index for index, item in enumerate(items) if item in retained_items or item.token == self._request],
        )
        for index, item in enumerate(items):
            item.is_in = index in included_indexes

    def _add(self, message: Message, *, is_summary: bool) -> _ContextMessage:
        self._added_count += 1
        name = f"{self.run.start.request.turn_id}/{self._added_count}"
        summary_message = _without(message, (*_MARKS, RECORD), None)
        return _ContextMessage(summary_message, name, name, is_summary=is_summary, is_added=True)

    def _find_request(self, items: Sequence[_ContextMessage]) -> str | int | None:
        """Return the token of the request, which is never left out."""
        question = self.question
        if question is None or not question.contents:
            return None
        own_items = [item for item in reversed(items) if _is_of_turn(item)]
        copies = (
            item.token
            for item in own_items
            if any(content is question.contents[0] for content in item.message.contents)
        )
        alike = (
            item.token
            for item in own_items
            if item.message.role == question.role and item.message.text == question.text
        )
        return next(copies, None) or next(alike, None)

    async def overlay_after(self, response: Sequence[Message] | None) -> dict[str, Any] | None:
        """Return the session's context after the turn.

        Returns:
            The overlay as stored, empty when the context is the whole record; None when the previous one stays.
        """
        overlay = self.overlay(response)
        if overlay is None:
            return None
        if (redactor := self.run.start.redactor) is not None:
            overlay = await redact_in_thread(redactor, partial(redactor.overlay, overlay))
        return {} if overlay.is_full else encode_overlay(overlay)

    def overlay(self, response: Sequence[Message] | None) -> Overlay | None:
        """Return the overlay for the context from now on.

        Args:
            response: None for a turn that has failed: of what the strategies did in it, only summaries stay.

        Returns:
            The overlay; None when the previous one stays: the strategies decided on messages of the turn that are
            missing in the record, or a summary cannot be stored. The next turn decides again.
        """
        if not self._messages or self.run.agent.has_own_history:  # no context is kept
            return None
        count = self.run.start.record.session.message_count
        items = self._list_items()
        if response is None:
            if self.shares or not self._summaries:
                return None
            for item in items:
                item.is_in = item.is_in or not item.is_summarized
        request = next((n for n, item in enumerate(items) if item.token == self._request), len(items))
        output = [item for item in items[request + 1 :] if _is_of_turn(item)]
        if response is not None and request < len(items):
            items[request].position = MessagePosition(count, 0)
            if _are_stored(output, response):
                for number, item in enumerate(output):
                    item.position = MessagePosition(count + 1, number)
        if any(item.position is None and not item.is_in for item in output):
            return None
        end = MessagePosition(count, 0) if response is None else MessagePosition(count + 1, len(output))
        try:
            parts, tail = self._list_parts([item for item in items if item.position or item.is_summary], end)
        except CorruptStateError:
            return None
        entries = count if response is None else count + 2
        return Overlay(parts, tail, self.compaction.compaction_id, entries)

    def _list_parts(
        self, items: Sequence[_ContextMessage], end: MessagePosition
    ) -> tuple[tuple[MessagePosition | Mapping[str, Any], ...], MessagePosition]:
        """Return the context before the last message that is left out or summarizes others, and the tail after it."""
        start = self.before.tail if self.before is not None else MessagePosition(0, 0)
        tail_index = 0
        for index, item in enumerate(items, 1):
            if item.position is None or not item.is_in or item.position < start:
                tail_index = index
        parts: dict[MessagePosition | int, MessagePosition | Mapping[str, Any]] = {}
        for index, item in enumerate(items[:tail_index]):
            if item.is_in:
                parts[item.position or index] = item.position or encode_message(_without(item.message, (RECORD,), None))
        tail = next((item.position for item in items[tail_index:] if item.position is not None), end)
        return tuple(parts.values()), tail


def _unused(name: str, tokens: set[str | int]) -> str:
    """Return a name, with a number when the provider's adapter has split its message."""
    token = name
    times = 1
    while token in tokens:
        token = f"{name}#{times}"
        times = times + 1
    return token


def _count_tokens(items: Sequence[_ContextMessage]) -> int:
    copies = [_copy(item) for item in items if item.is_in]
    annotate_message_groups(copies, tokenizer=_TOKENIZER)
    return included_token_count(copies)


def _instructs(item: _ContextMessage) -> bool:
    return item.message.role in {"system", "developer"}


def _is_of_turn(item: _ContextMessage) -> bool:
    """Return whether a message is of the loop's list and not of the stored context."""
    return item.position is None and not item.is_summary


def _is_question(item: _ContextMessage) -> bool:
    return item.is_summary or (
        item.message.role == "user" and any(content.type not in _REPLIES for content in item.message.contents)
    )


def _without(message: Message, keys: Sequence[str], message_id: str | None) -> Message:
    """Copy a message without some of its additional properties."""
    message_copy = copy.copy(message)
    message_copy.message_id = message_id
    message_copy.additional_properties = {k: v for k, v in message.additional_properties.items() if k not in keys}
    return message_copy


def _copy(item: _ContextMessage) -> Message:
    message_copy = _without(item.message, _MARKS, item.name)
    message_copy.contents = [copy.copy(content) for content in item.message.contents]
    return message_copy


def _is_same(message_copy: Message, message: Message) -> bool:
    return len(message_copy.contents) == len(message.contents) and all(
        vars(copied_content) == vars(content)
        for copied_content, content in zip(message_copy.contents, message.contents, strict=True)
    )


def _are_stored(output: Sequence[_ContextMessage], response: Sequence[Message]) -> bool:
    """Return whether the turn's messages are the first of the response, one by one."""
    return len(output) <= len(response) and all(
        _fingerprint(item.message) == _fingerprint(message) for item, message in zip(output, response, strict=False)
    )


def _fingerprint(message: Message) -> tuple[object, ...]:
    contents = [(content.type, content.call_id) for content in message.contents if content.type != "usage"]
    return (message.role, message.text, contents)
