"""Reads the stream of a client: an update for each part of the message, and at its end the messages themselves."""

import copy
from collections.abc import AsyncGenerator, AsyncIterable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, cast

from agent_framework import ChatResponseUpdate, Content, Message

from durable_agent_host.agent.response_limits import until_its_end
from durable_agent_host.agent.retry_classification import read_failure
from durable_agent_host.errors import ProviderError
from durable_agent_host.model.ending import CONTENT_FILTER, is_refusal
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.providers.adapted_client import ItemUpdate
from durable_agent_host.providers.chat_completions.content_mapping import (
    SOURCE_FIELDS,
    find_references,
    reasoning_text,
    spoken_text,
)
from durable_agent_host.providers.chat_completions.message_accumulator import MessageAccumulator
from durable_agent_host.providers.chat_completions.message_metadata import call_name, finished_item
from durable_agent_host.providers.chat_completions.stream_normalization import STREAM_END
from durable_agent_host.providers.client_errors import response_failure
from durable_agent_host.providers.neutral_contents import filtered_categories, refusal_properties, sdk_json
from durable_agent_host.providers.stream_completion import READ_TO_END

_IGNORED_FIELDS: Final = frozenset(
    {
        *("obfuscation", "content_filter_results", "content_filter_offset", "prompt_filter_results", "provider"),
        *("native_finish_reason", "stop_reason", "token_ids", "prompt_token_ids", "prompt_logprobs", "x_groq"),
        *("usage", STREAM_END),
    }
)
"""Fields of a response that are not stored: padding, filters, routing, tokens."""

_FAILURES: Final = frozenset({"error", "network_error", "abort", "ERROR", "TIMEOUT", "insufficient_system_resource"})
"""Finish reasons of failed responses: of OpenRouter, of Zhipu, of vLLM and SGLang, two of Cohere, of DeepSeek."""

_PLAIN_DELTA: Final = frozenset({"content", "role"})


class CompletionReader:
    """Reads the response of one call.

    Args:
        service: host of the service.
        audio_format: requested format.
        history: the messages of the request.
        has_parser: whether the app has its own message parser.

    Attributes:
        properties: of the response: what the service says of a filtered answer.
    """

    def __init__(self, service: str, audio_format: str, history: Sequence[Message] = (), *, has_parser: bool) -> None:
        self._history = history
        self._item_options: dict[str, Any] = {"service": service, "audio_format": audio_format, "is_parsed": has_parser}
        self._has_parser = has_parser
        self._completion_id = ""
        self._accumulators: dict[int, MessageAccumulator] = {}
        self._extra_fields: dict[int, dict[str, Any]] = {}
        self._finish_reasons: dict[int, str] = {}
        self._has_end_mark = False
        self.properties: dict[str, Any] = {}

    async def read(self, updates: AsyncIterable[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
        """Split the updates of a stream by the parts of the message, and end with the item.

        Only the first choice is the answer; the messages of further choices are stored with its item.

        Raises:
            ProviderError: the service reports a failure, or has finished only some of the choices.
        """
        last: ChatResponseUpdate | None = None
        async with aclosing(until_its_end(updates, lambda _: not self._is_complete)) as stream:
            async for update in stream:
                last = update
                for part_update in self._split_update(update):
                    yield part_update
        if last is not None and self._is_complete:
            item = self._item()
            end = self._copy_update(last, [], ItemPart(0, item=item))
            end.raw_representation = ItemUpdate(ItemPart(0, item=item), READ_TO_END)
            yield end
        elif self._finish_reasons:
            raise ProviderError("the model's stream ended before the response was complete; try again", retryable=True)

    @property
    def _is_complete(self) -> bool:
        """Whether every choice has a finish reason, or the service has marked the end otherwise."""
        return bool(self._accumulators) and (
            self._has_end_mark or self._finish_reasons.keys() == self._accumulators.keys()
        )

    def _item(self) -> dict[str, Any]:
        messages = {index: accumulator.message() for index, accumulator in self._accumulators.items()}
        first, *other_indexes = sorted(messages)
        other_choices = [
            {**self._extra_fields.get(index, {}), "index": index, "message": messages[index]} for index in other_indexes
        ]
        extra_fields = self._extra_fields.get(first, {}) | ({"other_choices": other_choices} if other_indexes else {})
        references = find_references(messages[first], self._history)
        return {"references": references} | finished_item(
            messages[first], completion_id=self._completion_id, extra_fields=extra_fields, **self._item_options
        )

    def _record(self, completion: Any, choice: Any) -> None:
        """Record the fields of a chunk outside of the message."""
        self._completion_id = self._completion_id or str(getattr(completion, "id", None) or "")
        fields = cast("dict[str, Any]", {**(completion.model_extra or {}), **(choice.model_extra or {})})
        if choice.finish_reason:
            self._finish_reasons[choice.index] = choice.finish_reason
            if choice.finish_reason in _FAILURES:
                raise response_failure(*read_failure(fields.get("error")))
            if choice.finish_reason == CONTENT_FILTER:
                self.properties = refusal_properties(category=filtered_categories(fields))
        extra_fields = {
            name: value for name, value in fields.items() if value is not None and name not in _IGNORED_FIELDS
        }
        self._extra_fields.setdefault(choice.index, {}).update(extra_fields)

    def _copy_update(self, update: ChatResponseUpdate, contents: list[Content], part: ItemPart) -> ChatResponseUpdate:
        """Copy an update with some of its contents, and without the finish reason.

        All copies have the first id: some proxies give every chunk another one.
        """
        part_update = copy.copy(update)
        part_update.contents = contents
        part_update.raw_representation = ItemUpdate(part, update.raw_representation)
        part_update.message_id = part_update.response_id = self._completion_id or update.response_id
        part_update.finish_reason = None
        return part_update

    def _split_update(self, update: ChatResponseUpdate) -> Iterator[ChatResponseUpdate]:
        chunk = cast("Any", update.raw_representation)
        choices: list[Any] = chunk.choices
        usage = [content for content in update.contents if content.type == "usage"]
        chunk_fields: dict[str, Any] = chunk.model_extra or {}
        self._has_end_mark = STREAM_END in chunk_fields or (bool(usage) and not choices)
        groups: list[tuple[ItemPart, list[Content]]] = []
        if not choices and (sources := SOURCE_FIELDS & chunk_fields.keys()):  # beside the usage (xAI)
            self._extra_fields.setdefault(0, {}).update({name: chunk_fields[name] for name in sources})
        for choice in choices:
            self._record(chunk, choice)
            if choice.delta is not None:
                groups += self._groups(choice, update.contents if len(choices) == 1 else [])
        if not groups or usage:
            groups.append((ItemPart(0, ""), usage))
        part_updates = [self._copy_update(update, contents, part) for part, contents in groups]
        part_updates[-1].finish_reason = next((choice.finish_reason for choice in choices if not choice.index), None)
        if self.properties:
            part_updates[-1].additional_properties = {**(update.additional_properties or {}), **self.properties}
        yield from part_updates

    def _groups(self, choice: Any, contents: Iterable[Content]) -> list[tuple[ItemPart, list[Content]]]:
        """Assemble a delta, and sort its contents by part; those of further choices are not visible."""
        choice_index = choice.index
        is_visible = choice_index == 0
        accumulator = self._accumulators.get(choice_index)
        if accumulator is None:
            accumulator = self._accumulators[choice_index] = MessageAccumulator(f"{self._completion_id}:{choice_index}")
        delta = choice.delta
        text = delta.content
        if isinstance(text, str) and delta.model_fields_set <= _PLAIN_DELTA and not delta.model_extra:
            accumulator.add_text(text)
            text_contents = [content for content in contents if content.type != "usage"] if is_visible else []
            return [(ItemPart(0, "text"), text_contents or _text(text))] if is_visible and text else []
        delta_fields = sdk_json(delta)
        calls = accumulator.add(delta_fields)
        if not is_visible:
            return []
        part_contents = [content for content in contents if content.type != "usage"]
        if not self._has_parser:
            part_contents = [
                *_parse_ignored_fields(delta_fields),
                *(content for content in part_contents if content.type != "text_reasoning"),
            ]
        return list(_sorted_by_part(part_contents, iter(calls), accumulator, self._completion_id))


def _sorted_by_part(
    contents: Iterable[Content], calls: Iterator[tuple[int, bool]], accumulator: MessageAccumulator, completion_id: str
) -> Iterator[tuple[ItemPart, list[Content]]]:
    for content in contents:
        if content.type == "function_call" and (call := next(calls, None)) is not None:
            call_index, is_repeat = call
            content.arguments = "" if is_repeat else content.arguments
            content.call_id = accumulator.call_id(call_index)
            content.id = call_name(completion_id, call_index, content.call_id)
            content.additional_properties = {}
            yield ItemPart(0, f"call:{call_index}"), [content]
        else:
            yield ItemPart(0, "refusal" if is_refusal(content) else content.type), [content]


def _parse_ignored_fields(delta: Mapping[str, Any]) -> Iterator[Content]:
    """Read fields that the framework's client ignores."""
    if thought := reasoning_text(delta):
        yield Content("text_reasoning", text=thought, merge_mode="append")
    if spoken := spoken_text(delta):
        yield from _text(spoken)


def _text(text: str) -> list[Content]:
    return [Content("text", text=text, merge_mode="append")] if text else []
