"""The context of one run: before each model call, the strategies decide which messages are sent.

Theory of operation. The framework applies a strategy to the list that its tool loop keeps. A hosted run applies it
here instead, before the journal, on copies: the loop's list stays whole, and the strategies' decisions are kept in
slots, one per message, plus slots for messages that a strategy inserts. A model call answered by the journal passes
here as well, so afterwards the slots are what they were when it was made. Their decisions on the record, at the end of
the turn, become the session's overlay.

Messages of the session's stored context carry the name of their place (`durable_agent_host.session.context_selection`);
the others are the turn's own: what context providers add, the request, and the output of model and tools.
"""

import copy
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, cast

from agent_framework import (
    EXCLUDE_REASON_KEY,
    EXCLUDED_KEY,
    GROUP_ANNOTATION_KEY,
    SUMMARY_OF_MESSAGE_IDS_KEY,
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

from durable_agent_host.agent.compaction import Compaction, CompactionModelCalls, answering, tightened
from durable_agent_host.codec.overlay import encode_overlay
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_long
from durable_agent_host.errors import log_reason
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.overlay import Overlay, SummaryMessage
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.session.context_selection import (
    RECORD,
    MessageSlot,
    build_overlay,
    decode_position,
    decode_turn_id,
    encode_summary_id,
    expand_to_groups,
)
from durable_agent_host.turn.turn_redactor import Redactor

_LOGGER = logging.getLogger(__name__)
_MARKS: Final = (GROUP_ANNOTATION_KEY, EXCLUDED_KEY, EXCLUDE_REASON_KEY)
_REPLIES: Final = frozenset({"function_approval_response", "function_result"})
_TOKENIZER: Final = CharacterEstimatorTokenizer()
_LEAST_PART: Final = 1 / 16
"""Of the share to which a request that is too long is to shrink: a strategy's limits are lowered no further."""
_STRATEGY_FAILED: Final = "%s: its context could not be compacted, and goes to the model as it was before: %s"


@dataclass
class ContextWindow:
    """The context of one run.

    Attributes:
        compaction: the agent's.
        request: of the turn.
        before: the session's overlay before the turn, or None.
        entries: the number of entries in the record then.
        has_our_history: whether the stored conversation is the agent's history; otherwise no context is kept.
        usage: tokens of the strategies' model calls.
        question: the request, as given to the agent.
        new_calls: returns what makes the strategies' calls before a model call.
        label: of the run, for log lines.
        shares: by model call whose request was too long, how much of the messages' tokens its next request keeps.
        redactor: for the stored context, or None.
    """

    compaction: Compaction
    request: TurnRequest
    before: Overlay | None
    entries: int
    new_calls: Callable[[CallPath], CompactionModelCalls]
    label: str
    shares: Mapping[CallPath, float]
    redactor: Redactor | None = None
    has_our_history: bool = True
    usage: UsageDetails | None = None
    question: Message | None = None
    _slots: list[MessageSlot] = field(default_factory=list[MessageSlot])
    _by_token: dict[str | int, MessageSlot] = field(default_factory=dict[str | int, MessageSlot])
    _inserted_count: int = 0
    _unnamed_count: int = 0

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
        self._update_slots(messages)
        calls = self.new_calls(path)
        strategies = self.compaction.strategies
        await self._apply_all(strategies, calls, replayed=replayed)
        if (share := self.shares.get(path)) is not None:
            max_tokens = max(int(self._count_tokens() * share), 1)
            part = share
            while strategies and part > share * _LEAST_PART and self._count_tokens() > max_tokens:
                await self._apply_all([tightened(strategy, part) for strategy in strategies], calls, replayed=replayed)
                part /= 2
            oldest_first = TruncationStrategy(max_n=max_tokens, compact_to=max_tokens, tokenizer=_TOKENIZER)
            await self._apply(oldest_first, _TOKENIZER)
        if self.before is not None or not all(slot.is_in for slot in self._slots):
            self._begin_with_question()
        self.usage = add_usage_details(self.usage, calls.usage)
        return [slot.message for slot in self._slots if slot.is_in]

    def _count_tokens(self) -> int:
        copies = [_copy(slot) for slot in self._slots if slot.is_in]
        annotate_message_groups(copies, tokenizer=_TOKENIZER)
        return included_token_count(copies)

    def _begin_with_question(self) -> None:
        """Leave out what precedes the first question: services refuse a context that begins with an answer or a call.

        A summary of questions stays; when it comes first, it is the user's message.
        """
        slots = [slot for slot in self._slots if slot.is_in]
        is_item = self.compaction.is_compaction_item
        first = next(
            (
                n
                for n, slot in enumerate(slots)
                if _has_question(slot) or (is_item is not None and is_item(slot.message))
            ),
            0,
        )
        if slots and _has_question(slots[first]):
            slots[first].message.role = "user"
        self._keep({slot for n, slot in enumerate(slots) if n >= first or _instructs(slot)})

    async def _apply_all(self, strategies: Sequence[Any], calls: CompactionModelCalls, *, replayed: bool) -> None:
        """Apply strategies; when one fails, the context stays as it was."""
        before = [(slot, slot.is_in, slot.is_replaced) for slot in self._slots]
        try:
            self._leave_out_compacted()
            with answering(calls):
                for strategy in strategies:
                    await self._apply(strategy, self.compaction.tokenizer)
        except Exception as error:  # noqa: BLE001 - a strategy's; the turn continues without it
            if not replayed:
                _LOGGER.warning(_STRATEGY_FAILED, self.label, log_reason(error))
            self._slots = [slot for slot, _, _ in before]
            for slot, is_in, is_replaced in before:
                slot.is_in = is_in
                slot.is_replaced = is_replaced

    def _update_slots(self, messages: Sequence[Message]) -> None:
        """Make slots for messages new to the list, and drop slots of removed ones."""
        slots_by_token: dict[str | int, MessageSlot] = {}
        new_after: dict[MessageSlot | None, list[MessageSlot]] = {}
        last: MessageSlot | None = None
        for message in messages:
            token = _token(message, slots_by_token)
            if (slot := self._by_token.get(token)) is not None:
                slot.message = message
                last = slot
            else:
                slot = self._create_slot(message, token)
                new_after.setdefault(last, []).append(slot)
            slots_by_token[token] = slot
        current_slots = set(slots_by_token.values())
        retained_slots = [slot for slot in self._slots if slot.replaced_slots is not None or slot in current_slots]
        self._slots = new_after.get(None, []) + [
            ordered_slot for slot in retained_slots for ordered_slot in (slot, *new_after.get(slot, ()))
        ]
        self._by_token = slots_by_token

    def _create_slot(self, message: Message, token: str | int) -> MessageSlot:
        name = message.additional_properties.get(RECORD)
        if not isinstance(name, str):
            self._unnamed_count += 1
            return MessageSlot(message, f"turn-{self._unnamed_count}")
        if (position := decode_position(name)) is not None:
            return MessageSlot(message, str(token), position, decode_turn_id(name))
        pieces = self.before.pieces if self.before is not None else ()
        summaries = (
            piece for piece in pieces if isinstance(piece, SummaryMessage) and encode_summary_id(piece.name) == name
        )
        return MessageSlot(message, str(token), summary=next(summaries, None))

    def _leave_out_compacted(self) -> None:
        """Leave out what the model's service has compacted into a later message; instructions stay."""
        is_compaction_item = self.compaction.is_compaction_item
        if is_compaction_item is None:
            return
        last = max(
            (n for n, slot in enumerate(self._slots) if slot.is_in and is_compaction_item(slot.message)), default=0
        )
        if last:
            self._keep({slot for n, slot in enumerate(self._slots) if slot.is_in and (n >= last or _instructs(slot))})

    async def _apply(self, strategy: Any, tokenizer: TokenizerProtocol | None) -> None:
        """Apply one strategy to copies of the included messages, and store its decisions."""
        slots = [slot for slot in self._slots if slot.is_in]
        copies = [_copy(slot) for slot in slots]
        by_copy = {id(message_copy): slot for message_copy, slot in zip(copies, slots, strict=True)}
        by_name = {slot.name: slot for slot in slots}
        chosen = await apply_compaction(list(copies), strategy=strategy, tokenizer=tokenizer)
        retained_slots: set[MessageSlot] = set()
        ordered_slots: list[MessageSlot] = []
        remaining_slots = iter(self._slots)
        visited_slots: set[MessageSlot] = set()
        for message in chosen:
            slot = by_copy.get(id(message))
            while slot is not None and slot not in visited_slots:
                ordered_slots.append(next(remaining_slots))
                visited_slots.add(ordered_slots[-1])
            if slot is not None and _is_same(message, slot.message):
                retained_slots.add(slot)
                continue
            if slot is not None:
                slot.is_replaced = True
            ordered_slots.append(
                self._insert(message, (slot,) if slot is not None else _find_summarized_slots(message, by_name))
            )
            retained_slots.add(ordered_slots[-1])
        self._slots = [*ordered_slots, *remaining_slots]
        left_out = tuple(slot for slot in slots if slot not in retained_slots and not slot.is_replaced)
        for slot in ordered_slots:
            if (
                slot.replaced_slots == () and slot not in visited_slots
            ):  # the strategy does not declare what it summarizes
                slot.replaced_slots = left_out
        self._keep(retained_slots)

    def _keep(self, retained_slots: set[MessageSlot]) -> None:
        """Leave out the other messages, except the request, without separating messages that belong together."""
        if (request_slot := self.request_slot()) is not None:
            retained_slots = retained_slots | {request_slot}
        candidates = [slot for slot in self._slots if not slot.is_replaced]
        included_indexes = expand_to_groups(
            [slot.message for slot in candidates],
            [index for index, slot in enumerate(candidates) if slot in retained_slots],
        )
        still_in = {candidates[index] for index in included_indexes}
        for slot in self._slots:
            slot.is_in = slot in still_in

    def _insert(self, message: Message, replaced_slots: Sequence[MessageSlot]) -> MessageSlot:
        self._inserted_count += 1
        name = f"{self.request.turn_id}/{self._inserted_count}"
        summary_message = copy.copy(message)
        summary_message.message_id = None
        summary_message.additional_properties = {
            k: v for k, v in message.additional_properties.items() if k not in _MARKS
        }
        return MessageSlot(summary_message, name, replaced_slots=tuple(replaced_slots))

    def request_slot(self) -> MessageSlot | None:
        """Return the slot of the request, which is never left out."""
        question = self.question
        if question is None or not question.contents:
            return None
        turn_slots = [
            slot for slot in reversed(self._slots) if slot.position is slot.summary is slot.replaced_slots is None
        ]
        copies = (
            slot for slot in turn_slots if any(content is question.contents[0] for content in slot.message.contents)
        )
        alike = (
            slot for slot in turn_slots if slot.message.role == question.role and slot.message.text == question.text
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
        if (redactor := self.redactor) is not None:
            overlay = await run_in_thread_if_long(overlay, partial(redactor.overlay, overlay))
        return {} if overlay.is_full else encode_overlay(overlay)

    def overlay(self, response: Sequence[Message] | None) -> Overlay | None:
        """Return the overlay for the context from now on.

        Args:
            response: None for a turn that has failed: of what the strategies did in it, only summaries stay.

        Returns:
            The overlay; None when the previous one stays.
        """
        if not self._slots or not self.has_our_history:
            return None
        if response is None:
            replaced_slots = {replaced_slot for slot in self._slots for replaced_slot in slot.replaced_slots or ()}
            if self.shares or not replaced_slots:
                return None
            for slot in self._slots:
                slot.is_in = slot not in replaced_slots
        return build_overlay(
            self._slots,
            self.request_slot(),
            response,
            before=self.before,
            entries=self.entries,
            compaction_id=self.compaction.compaction_id,
            turn_id=self.request.turn_id,
        )


def _token(message: Message, used_tokens: Mapping[str | int, MessageSlot]) -> str | int:
    """Return a message's identity: its name in the record, else its object."""
    name = message.additional_properties.get(RECORD)
    if not isinstance(name, str):
        return id(message)
    token = name
    times = 1
    while token in used_tokens:  # the provider's adapter split this message
        token = f"{name}#{times}"
        times = times + 1
    return token


def _instructs(slot: MessageSlot) -> bool:
    return slot.message.role in {"system", "developer"}


def _has_question(slot: MessageSlot) -> bool:
    """Return whether a message is a user's question, or the summary of some."""
    is_question = slot.message.role == "user" and any(content.type not in _REPLIES for content in slot.message.contents)
    summary = slot.summary
    return (
        is_question
        or (summary is not None and summary.first.entry < summary.last.entry)
        or any(map(_has_question, slot.replaced_slots or ()))
    )


def _copy(slot: MessageSlot) -> Message:
    message_copy = copy.copy(slot.message)
    message_copy.message_id = slot.name
    message_copy.contents = [copy.copy(content) for content in slot.message.contents]
    message_copy.additional_properties = {
        name: value for name, value in slot.message.additional_properties.items() if name not in _MARKS
    }
    return message_copy


def _is_same(message_copy: Message, message: Message) -> bool:
    return len(message_copy.contents) == len(message.contents) and all(
        vars(copied_content) == vars(content)
        for copied_content, content in zip(message_copy.contents, message.contents, strict=True)
    )


def _find_summarized_slots(message: Message, by_name: Mapping[str, MessageSlot]) -> list[MessageSlot]:
    """Return the slots that a strategy's message replaces, as the strategy declares."""
    annotation: Any = message.additional_properties.get(GROUP_ANNOTATION_KEY)
    names: Any = cast("Mapping[str, Any]", annotation).get(SUMMARY_OF_MESSAGE_IDS_KEY) if annotation else None
    return [by_name[name] for name in names or () if name in by_name]
