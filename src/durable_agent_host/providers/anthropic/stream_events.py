"""Converts the events of an adapted client's stream to updates. Uses the SDK's objects by attribute only.

Nearly all events are deltas, so the frequent ones are parsed here and not by the framework.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import Any, Final

from agent_framework import ChatResponseUpdate, Content
from agent_framework.exceptions import ResponseInvalidatedException

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.response_normalization import with_text_names
from durable_agent_host.providers import stream_completion
from durable_agent_host.providers.adapted_client import ItemUpdate, unwrap_update
from durable_agent_host.providers.anthropic.block_mapping import streamed_annotations
from durable_agent_host.providers.anthropic.block_types import block_contents
from durable_agent_host.providers.anthropic.message_accumulator import Block, MessageAccumulator, OpenBlock
from durable_agent_host.providers.http_client_guards import closing_stream
from durable_agent_host.providers.neutral_contents import sdk_json

Parse = Callable[[Any], list[Content]]
"""A block of the SDK → the framework's contents of it."""


class UpdateGroup(ChatResponseUpdate):
    """Holds several updates of one event; `flatten_groups` separates them."""

    def __init__(self, updates: list[ChatResponseUpdate]) -> None:
        super().__init__()
        self.updates = updates


async def flatten_groups(updates: AsyncIterable[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
    """Yield updates, those in `UpdateGroup` one by one."""
    async with closing_stream(updates):
        async for update in updates:
            if isinstance(update, UpdateGroup):
                for part_update in update.updates:
                    yield part_update
            else:
                yield update


class Reader:
    """Reads the events of one stream.

    Calls of the app's tools are held back until the service says why the model has stopped: the framework fails a
    response with calls that was refused or cut off.

    Args:
        parse: the framework's reading of a block; used only for calls of the app's tools.
    """

    def __init__(self, parse: Parse) -> None:
        self._parse = parse
        self._accumulator = MessageAccumulator()
        self._container: Block | None = None
        self._calls: list[ChatResponseUpdate] = []

    def begin(self, event: Any) -> list[ChatResponseUpdate]:
        """Read the blocks and the container with which the message starts."""
        self._container = plain_block(container) if (container := getattr(event.message, "container", None)) else None
        updates: list[ChatResponseUpdate] = []
        for block in event.message.content:
            updates.append(self._start_block(event, None, block))
            updates += self._item_updates(event, self._accumulator.stop_all())
        return updates

    def start(self, event: Any) -> ChatResponseUpdate | None:
        """Read ``content_block_start``."""
        return self._hold_call(event.index, self._start_block(event, event.index, event.content_block))

    def delta(self, event: Any) -> ChatResponseUpdate | None:
        """Read ``content_block_delta``."""
        delta = event.delta
        kind = str(getattr(delta, "type", None) or "")
        open_block = self._accumulator.find_or_start(event.index, kind)
        if kind == "text_delta" and delta.__class__.__name__ == "BetaTextDelta":
            text: Any = delta.text
            if isinstance(text, str):
                open_block.fragments.setdefault("text", []).append(text)
                return _update(Content("text", text=text, merge_mode="append"), ItemUpdate(open_block.part, event))
        plain = plain_block(delta)
        open_block.add(plain)
        content = _LIVE[kind](plain, open_block) if kind in _LIVE else None
        return self._hold_call(event.index, _update(content, ItemUpdate(open_block.part, event)))

    def stop(self, event: Any) -> ChatResponseUpdate | None:
        """Read ``content_block_stop``."""
        is_call = self._accumulator.is_open_call(event.index)
        part = self._accumulator.stop(event.index)
        if part is None:
            return None
        update = _update(None, ItemUpdate(part, event))
        if not is_call:
            return update
        self._calls.append(update)
        return None

    def end(self, event: Any) -> list[ChatResponseUpdate]:
        """Read ``message_delta``: finish what is open, emit the calls, and report where code ran."""
        stop_reason = getattr(event.delta, "stop_reason", None)
        calls: list[ChatResponseUpdate] = []
        if stop_reason in _STOPS:
            calls, self._calls = self._calls, []
        if (container := getattr(event.delta, "container", None)) is not None:
            self._container = plain_block(container)
        if self._accumulator.has_open_calls and stop_reason not in _CUT:
            raise _invalid_calls_error()
        parts = [*self._accumulator.stop_all(), *self._accumulator.set_container(self._container)]
        return [*calls, *self._item_updates(event, parts)]

    def finish(self) -> None:
        """Read ``message_stop``.

        Raises:
            ResponseInvalidatedException: the model has called tools, and has not stopped for them.
        """
        if self._calls:
            raise _invalid_calls_error()

    def _hold_call(self, index: Any, update: ChatResponseUpdate) -> ChatResponseUpdate | None:
        if not self._accumulator.is_open_call(index):
            return update
        self._calls.append(update)
        return None

    def _start_block(self, event: Any, index: Any, block: Any) -> ChatResponseUpdate:
        plain = with_text_names(plain_block(block))
        open_block = self._accumulator.start(index, plain)
        if plain.get("type") == "tool_use":
            contents = self._parse(block)
        elif plain.get("type") == "text":
            contents = [Content("text", text=str(plain.get("text") or ""), merge_mode="append")]
        else:
            contents = block_contents(plain)
        for content in contents:
            if content.type in _APPENDED_TYPES:
                content.merge_mode = "append"
        return ChatResponseUpdate(contents=contents, raw_representation=ItemUpdate(open_block.part, event))

    def _item_updates(self, event: Any, parts: Iterable[ItemPart]) -> list[ChatResponseUpdate]:
        return [_update(None, ItemUpdate(part, event)) for part in parts]


_CUT: Final = frozenset({"max_tokens", "model_context_window_exceeded", "refusal"})
"""Stop reasons of responses that may end within a call."""
_STOPS: Final = _CUT | {"tool_use"}


def _invalid_calls_error() -> ResponseInvalidatedException:
    return ResponseInvalidatedException("the response ended within a tool call")


_APPENDED_TYPES: Final = frozenset({"text", "text_reasoning", "function_call", "code_interpreter_tool_call"})


def _update(content: Content | None, block_update: ItemUpdate) -> ChatResponseUpdate:
    return ChatResponseUpdate(contents=[] if content is None else [content], raw_representation=block_update)


def _thinking(delta: Block, _open_block: OpenBlock) -> Content:
    return Content("text_reasoning", text=str(delta.get("thinking") or ""), merge_mode="append")


def _signature(delta: Block, _open_block: OpenBlock) -> Content:
    return Content("text_reasoning", protected_data=delta.get("signature"), merge_mode="append")


def _input(delta: Block, open_block: OpenBlock) -> Content | None:
    call_id = str(open_block.block.get("id") or "")
    if open_block.block.get("name") == "code_execution" and open_block.block.get("type") == "server_tool_use":
        code = Content("text", text=open_block.code.feed(str(delta.get("partial_json") or "")))
        return Content.from_code_interpreter_tool_call(call_id=call_id, inputs=[code], merge_mode="append")
    if open_block.block.get("type") != "tool_use":
        return None
    return Content.from_function_call(call_id, "", arguments=str(delta.get("partial_json") or ""), merge_mode="append")


def _citation(delta: Block, _open_block: OpenBlock) -> Content:
    annotations = streamed_annotations(delta.get("citation"))
    return Content("text", text="", annotations=annotations, merge_mode="append")


_LIVE: Final[dict[str, Callable[[Block, OpenBlock], Content | None]]] = {
    "thinking_delta": _thinking,
    "signature_delta": _signature,
    "input_json_delta": _input,
    "citations_delta": _citation,
}
"""Type of delta → its streamed text; texts are handled separately."""


def plain_block(sdk_object: Any) -> Block:
    """Return an object of the SDK as received, without unset fields."""
    return sdk_json(sdk_object)


def is_truncated(updates: Iterable[Any]) -> bool:
    """Return whether a response ended without ``message_stop``; without a stop reason, where the client hides that.

    The framework judges at ``message_stop`` whether the calls of a response may run.
    """
    for update in updates:
        raw = unwrap_update(update)
        if raw.event.type == "message_stop" if type(raw) is ItemUpdate else not stream_completion.is_truncated([raw]):
            return False
    return True
