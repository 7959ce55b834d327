"""Reads each event of a stream of the hosted client into the framework's updates. Knows the SDK by shape only.

Nearly all events are deltas, so the frequent ones are parsed here and not by the framework.
"""

from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable
from typing import Any, Final, NamedTuple, cast

from agent_framework import AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Content

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.model.text_names import with_text_names
from durable_agent_host.providers import endings
from durable_agent_host.providers.anthropic.assembly import Assembly, Block, OpenBlock
from durable_agent_host.providers.anthropic.block_types import block_type
from durable_agent_host.providers.anthropic.blocks import complete_item
from durable_agent_host.providers.anthropic.texts import annotations_of
from durable_agent_host.providers.open_answers import closed_when_left

Parse = Callable[[Any], list[Content]]
"""A block of the SDK → the framework's contents of it."""


class Said(NamedTuple):
    """The raw representation of an update.

    Attributes:
        part: the update's place in the output, or None.
        event: of the SDK, unchanged.
    """

    part: ItemPart | None
    event: Any


class Several(ChatResponseUpdate):
    """Holds several updates of one event; `flattened` separates them."""

    def __init__(self, updates: list[ChatResponseUpdate]) -> None:
        super().__init__()
        self.updates = updates


async def flattened(updates: AsyncIterable[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
    """Yield updates, those in `Several` one by one."""
    async with closed_when_left(updates):
        async for update in updates:
            if isinstance(update, Several):
                for one in update.updates:
                    yield one
            else:
                yield update


class Reader:
    """Reads the events of one stream.

    Args:
        parse: the framework's reading of a block; used only for calls of the app's tools.
    """

    def __init__(self, parse: Parse) -> None:
        self._parse = parse
        self._assembly = Assembly()
        self._container: Block | None = None

    def begin(self, event: Any) -> list[ChatResponseUpdate]:
        """Read the blocks and the container with which the message begins.

        Args:
            event: ``message_start``.
        """
        self._container = _plain(container) if (container := getattr(event.message, "container", None)) else None
        updates: list[ChatResponseUpdate] = []
        for block in event.message.content:
            updates.append(self._started(event, None, block))
            updates += self._told(event, self._assembly.stop_all())
        return updates

    def start(self, event: Any) -> ChatResponseUpdate:
        """Read ``content_block_start``."""
        return self._started(event, event.index, event.content_block)

    def delta(self, event: Any) -> ChatResponseUpdate:
        """Read ``content_block_delta``."""
        delta = event.delta
        kind = str(getattr(delta, "type", None) or "")
        opened = self._assembly.of(event.index, kind)
        if kind == "text_delta" and delta.__class__.__name__ == "BetaTextDelta":
            text: Any = delta.text
            if isinstance(text, str):
                opened.pieces.setdefault("text", []).append(text)
                return _update(Content("text", text=text, merge_mode="append"), Said(opened.part, event))
        plain = _plain(delta)
        opened.add(plain)
        content = _LIVE[kind](plain, opened) if kind in _LIVE else None
        return _update(content, Said(opened.part, event))

    def stop(self, event: Any) -> ChatResponseUpdate | None:
        """Read ``content_block_stop``."""
        part = self._assembly.stop(event.index)
        return None if part is None else _update(None, Said(part, event))

    def end(self, event: Any) -> list[ChatResponseUpdate]:
        """Finish what is open, and report where code ran.

        Args:
            event: ``message_delta`` or ``message_stop``.
        """
        if (container := getattr(getattr(event, "delta", None), "container", None)) is not None:
            self._container = _plain(container)
        parts = self._assembly.stop_all()
        if event.type == "message_stop":
            parts += self._assembly.contain(self._container)
        return self._told(event, parts)

    def _started(self, event: Any, index: Any, block: Any) -> ChatResponseUpdate:
        plain = with_text_names(_plain(block))
        opened = self._assembly.start(index, plain)
        if plain.get("type") == "tool_use":
            contents = self._parse(block)
        elif plain.get("type") == "text":
            contents = [Content("text", text=str(plain.get("text") or ""), merge_mode="append")]
        else:
            contents = block_type(plain.get("type")).contents(plain)
        for content in contents:
            if content.type in _IN_PIECES:
                content.merge_mode = "append"
        return ChatResponseUpdate(contents=contents, raw_representation=Said(opened.part, event))

    def _told(self, event: Any, parts: Iterable[ItemPart]) -> list[ChatResponseUpdate]:
        return [_update(None, Said(part, event)) for part in parts]


_IN_PIECES: Final = frozenset({"text", "text_reasoning", "function_call", "code_interpreter_tool_call"})


def _update(content: Content | None, said: Said) -> ChatResponseUpdate:
    return ChatResponseUpdate(contents=[] if content is None else [content], raw_representation=said)


def _thinking(delta: Block, _opened: OpenBlock) -> Content:
    return Content("text_reasoning", text=str(delta.get("thinking") or ""), merge_mode="append")


def _signature(delta: Block, _opened: OpenBlock) -> Content:
    return Content("text_reasoning", protected_data=delta.get("signature"), merge_mode="append")


def _input(delta: Block, opened: OpenBlock) -> Content | None:
    call_id = str(opened.block.get("id") or "")
    if opened.block.get("name") == "code_execution" and opened.block.get("type") == "server_tool_use":
        code = Content("text", text=opened.code.feed(str(delta.get("partial_json") or "")))
        return Content.from_code_interpreter_tool_call(call_id=call_id, inputs=[code], merge_mode="append")
    if opened.block.get("type") != "tool_use":
        return None
    return Content.from_function_call(call_id, "", arguments=str(delta.get("partial_json") or ""), merge_mode="append")


def _citation(delta: Block, _opened: OpenBlock) -> Content:
    notes = annotations_of(delta.get("citation"))
    return Content("text", text="", annotations=notes, merge_mode="append")


_LIVE: Final[dict[str, Callable[[Block, OpenBlock], Content | None]]] = {
    "thinking_delta": _thinking,
    "signature_delta": _signature,
    "input_json_delta": _input,
    "citations_delta": _citation,
}
"""Type of delta → its streamed text; texts are handled separately."""


def _plain(said: Any) -> Block:
    """Return an object of the SDK as the service wrote it, without fields that it left out."""
    if isinstance(said, dict):
        return dict(cast("Block", said))
    return cast("Block", said.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False))


plain_block: Final = _plain


def read_item(update: Any) -> ItemPart | None:
    """Return an update's place in the output; None for updates of other clients. Guarantee: pure."""
    raw: Any = update.raw_representation
    while isinstance(raw, ChatResponseUpdate) or type(raw).__name__ == "AgentResponseUpdate":
        raw = raw.raw_representation
    if type(raw) is Said:
        return raw.part
    return raw if type(raw) is ItemPart else None


def ended_early(updates: Iterable[Any]) -> bool:
    """Return whether an answer ended without ``message_stop``; without a stop reason, where the client hides that."""
    for update in updates:
        raw: Any = update
        while isinstance(raw, ChatResponseUpdate | AgentResponseUpdate | ChatResponse):
            raw = raw.raw_representation
        if raw.event.type == "message_stop" if type(raw) is Said else not endings.ended_early([raw]):
            return False
    return True


class _Blocks:
    """Reads and completes blocks, for the fold."""

    read_item = staticmethod(read_item)
    complete_item = staticmethod(complete_item)


BLOCKS: Final = _Blocks()
