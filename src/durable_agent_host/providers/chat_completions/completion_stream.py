"""Reads the stream of a client: an update for each part of the message, and at its end the messages themselves."""

from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping
from contextlib import aclosing
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate, Content

from durable_agent_host.agent.bounds import until_its_end
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.providers.chat_completions.contents import is_refusal, reasoning_text, spoken_text
from durable_agent_host.providers.chat_completions.deltas import MessageAssembly
from durable_agent_host.providers.chat_completions.messages import call_name, complete_item, finished_item
from durable_agent_host.providers.endings import ended_early

_NOT_SAID: Final = frozenset(
    {
        *("obfuscation", "content_filter_results", "content_filter_offset", "prompt_filter_results", "provider"),
        *("native_finish_reason", "stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs", "x_groq"),
    }
)
"""Data of an answer that is not part of it: padding, filters, routing, tokens."""

_PLAIN_DELTA: Final = frozenset({"content", "role"})


class PieceUpdate(ChatResponseUpdate):
    """An update with the message and part that its contents belong to."""

    item_part: ItemPart


def read_item(update: Any) -> ItemPart | None:
    """Return the message that an update belongs to; None for those of other clients. Guarantee: pure.

    Args:
        update: of the chat client or of the agent.
    """
    found = update if type(update) is PieceUpdate else update.raw_representation
    return found.item_part if type(found) is PieceUpdate else None


class ItemsOfCompletions:
    """Reads and completes messages of Chat Completions, for the fold."""

    read_item = staticmethod(read_item)
    complete_item = staticmethod(complete_item)


ITEMS: Final = ItemsOfCompletions()


class CompletionReader:
    """Reads the answer of one call.

    Args:
        service: the answering host.
        audio_format: requested format.
        has_parser: whether the app reads messages with a parser of its own.
    """

    def __init__(self, service: str, audio_format: str, *, has_parser: bool) -> None:
        self._told: dict[str, Any] = {"service": service, "audio_format": audio_format, "is_parsed": has_parser}
        self._has_parser = has_parser
        self._answer_id = ""
        self._assemblies: dict[int, MessageAssembly] = {}
        self._beside: dict[int, dict[str, Any]] = {}
        self._ends: dict[int, str] = {}

    async def read(self, updates: AsyncIterable[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
        """Split the updates of a stream by the parts of the message, and end with the items.

        The text of a second choice is held back until the end, so that two answers are not interleaved.

        Raises:
            ProviderError: the service reports a failure, or has finished only some of the choices.
        """
        last: ChatResponseUpdate | None = None
        async with aclosing(until_its_end(updates, ended_early)) as answer:
            async for update in answer:
                last = update
                for piece in self._pieces(update):
                    yield piece
        if last is None or not self._ends:
            return
        if self._ends.keys() != self._assemblies.keys():
            raise ProviderError("the model's stream ended before the answer was complete; try again", retryable=True)
        for choice, assembly in sorted(self._assemblies.items()):
            item = self.item(choice, assembly.message())
            yield self._piece(last, [], ItemPart(choice, item=item), is_last=True)

    def item(self, choice: int, message: Mapping[str, Any]) -> dict[str, Any]:
        """Make the item of a finished message."""
        beside = self._beside.get(choice, {})
        return finished_item(message, answer_id=self._answer_id, choice=choice, beside=beside, **self._told)

    def note(self, answer: Any, choice: Any) -> None:
        """Record data of an answer or chunk besides the message.

        Raises:
            ProviderError: the service reports a failure.
        """
        self._answer_id = self._answer_id or str(getattr(answer, "id", None) or "")
        said = cast("dict[str, Any]", {**(answer.model_extra or {}), **(choice.model_extra or {})})
        if choice.finish_reason:
            self._ends[choice.index or 0] = choice.finish_reason
            if choice.finish_reason == "error":
                raise _failure(said.get("error"))
        told = {name: value for name, value in said.items() if value is not None and name not in _NOT_SAID}
        if told:
            self._beside.setdefault(choice.index or 0, {}).update(told)

    def _piece(
        self, update: ChatResponseUpdate, contents: list[Content], part: ItemPart, *, is_last: bool
    ) -> PieceUpdate:
        """Copy an update with some of its contents; only the last copy has the finish reason.

        All of them have the first id: some proxies give every chunk another one.
        """
        piece = object.__new__(PieceUpdate)
        piece.__dict__.update(update.__dict__)
        piece.contents, piece.item_part = contents, part
        piece.message_id = piece.response_id = self._answer_id or update.response_id
        if not is_last:
            piece.finish_reason = None
        return piece

    def _pieces(self, update: ChatResponseUpdate) -> Iterator[ChatResponseUpdate]:
        chunk = cast("Any", update.raw_representation)
        choices: list[Any] = getattr(chunk, "choices", None) or []
        groups: list[tuple[ItemPart, list[Content]]] = []
        held = len(choices) > 1 or any((choice.index or 0) != self._first(choice) for choice in choices)
        for choice in choices:
            self.note(chunk, choice)
            if choice.delta is None:
                continue
            is_first = (choice.index or 0) == self._first(choice)
            groups += self._groups(choice, [] if held else update.contents, is_shown=is_first)
        usage = [content for content in update.contents if content.type == "usage"]
        if not groups or usage:
            groups.append((_part(""), usage))
        for number, (part, contents) in enumerate(groups):
            yield self._piece(update, contents, part, is_last=number + 1 == len(groups))

    def _first(self, choice: Any) -> int:
        return next(iter(self._assemblies), choice.index or 0)

    def _groups(
        self, choice: Any, contents: Iterable[Content], *, is_shown: bool
    ) -> list[tuple[ItemPart, list[Content]]]:
        """Assemble a delta, and sort its visible contents by part."""
        place = choice.index or 0
        assembly = self._assemblies.get(place)
        if assembly is None:
            assembly = self._assemblies[place] = MessageAssembly(f"{self._answer_id}:{place}")
        delta = choice.delta
        text = delta.content
        if isinstance(text, str) and delta.model_fields_set <= _PLAIN_DELTA and not delta.model_extra:
            assembly.add_text(text)
            said = [one for one in contents if one.type != "usage"] if is_shown else []
            return [(_part("text"), said or _text(text))] if is_shown and text else []
        told = cast("dict[str, Any]", delta.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))
        calls = assembly.add(told)
        if not is_shown:
            return []
        mine = [content for content in contents if content.type != "usage"]
        if not self._has_parser:
            mine = [*_unread(told), *(one for one in mine if one.type != "text_reasoning")]
        return list(_sorted_by_part(mine, iter(calls), assembly, self._answer_id))


def _sorted_by_part(
    contents: Iterable[Content], calls: Iterator[int], assembly: MessageAssembly, answer_id: str
) -> Iterator[tuple[ItemPart, list[Content]]]:
    for content in contents:
        if content.type == "function_call" and (place := next(calls, None)) is not None:
            content.call_id = assembly.call_id(place)
            content.id = call_name(answer_id, place, content.call_id)
            content.additional_properties = {}
            yield _part(f"call:{place}"), [content]
        else:
            yield _part("refusal" if is_refusal(content) else content.type), [content]


def _unread(delta: Mapping[str, Any]) -> Iterator[Content]:
    """Read fields that the framework's client ignores."""
    if thought := reasoning_text(delta):
        yield Content("text_reasoning", text=thought, merge_mode="append")
    if spoken := spoken_text(delta):
        yield from _text(spoken)


def _text(text: str) -> list[Content]:
    return [Content("text", text=text, merge_mode="append")] if text else []


_PARTS: Final[dict[str, ItemPart]] = {}


def _part(name: str) -> ItemPart:
    """Return the same object for every piece of a part, so that the fold recognizes continuations."""
    return _PARTS.setdefault(name, ItemPart(0, name)) if len(_PARTS) < 1024 else ItemPart(0, name)  # noqa: PLR2004


def _failure(error: Any) -> ProviderError:
    told = cast("dict[str, Any]", error) if isinstance(error, dict) else {}
    reason = ": ".join(str(told[name]) for name in ("code", "message") if told.get(name)) or "no reason was given"
    return ProviderError(
        f"the model's service failed in the middle of its answer: {reason.rstrip('. ')} - try again", retryable=True
    )
