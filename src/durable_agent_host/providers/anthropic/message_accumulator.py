"""Accumulates a streamed message, block by block. Does not use the SDK.

Theory of operation. Blocks are numbered in order of arrival, since proxies may repeat an index, and a message may start
with complete blocks without an event. Adjacent text blocks share one position in the output: they are one text, cut
where a citation starts. A finished block is emitted with its position as the *item* ``{"blocks": [...]}``, all blocks
of that position so far; the sandbox, which the service names at the end, is emitted as ``container`` of the same item.

Source: ``accumulate_event`` of anthropic 1.17 (``lib/streaming/_beta_messages.py``) defines what each delta does. A
delta of an unknown type adds to the field of its block that has the same name.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from durable_agent_host.codec.strict_json import find_limit_violations, is_nested_too_deeply
from durable_agent_host.model.provider_item import ItemPart

_OPENING: Final = re.compile(r'\s*\{\s*"code"\s*:\s*"')
_MAX_OPENING_CHARACTERS: Final = 40
_COMPLETE_CHARACTERS: Final = re.compile(
    r'(?:[^"\\]|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u(?![dD][89abAB])[0-9a-fA-F]{4}|\\[^u])*'
)
"""Complete characters and escapes of a JSON string; the halves of a surrogate pair belong together."""


class CodeText:
    """The code in an input that streams as ``{"code": "..."}``; other inputs are ignored."""

    def __init__(self) -> None:
        self._remaining = ""
        self._is_open = False
        self._is_over = False

    def feed(self, chunk: str) -> str:
        """Read the next chunk of the JSON text, and return the new part of the code."""
        if self._is_over:
            return ""
        self._remaining += chunk
        if not self._is_open:
            opening = _OPENING.match(self._remaining)
            if opening is None:
                self._is_over = len(self._remaining) > _MAX_OPENING_CHARACTERS
                return ""
            self._is_open, self._remaining = True, self._remaining[opening.end() :]
        match = _COMPLETE_CHARACTERS.match(self._remaining)
        end = match.end() if match is not None else 0
        raw = self._remaining[:end]
        self._remaining = self._remaining[end:]
        self._is_over = self._remaining.startswith('"')
        try:
            return str(json.loads(f'"{raw}"', strict=False))
        except ValueError:
            self._is_over = True
            return ""


Block = dict[str, Any]

RUNS_CODE: Final = frozenset({"code_execution", "bash_code_execution", "text_editor_code_execution"})
"""Names of the service's tools that run in a container."""

_OF_DELTA: Final = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "thinking",
    "input_json_delta": "tool_use",
}
"""Type of delta → the type of its block, for streams that did not announce the block."""

_REPLACED_FIELDS: Final = frozenset({"signature", "encrypted_content"})
"""Fields that a delta replaces; all other strings are appended."""


@dataclass
class OpenBlock:
    """A streaming block.

    Attributes:
        part: the position of its updates.
        block: as started by the service; complete when finished.
        blocks: all blocks of its position, this one last.
        fragments: strings to be joined, by field.
        code: reads the code of a run as it streams.
    """

    part: ItemPart
    block: Block
    blocks: list[Block]
    fragments: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    code: CodeText = field(default_factory=CodeText)

    def add(self, delta: Mapping[str, Any]) -> None:
        """Add a delta, as sent by the service."""
        kind = delta.get("type")
        if kind == "input_json_delta":
            self.fragments.setdefault("input", []).append(str(delta.get("partial_json") or ""))
        elif kind == "citations_delta":
            self.block["citations"] = [*(self.block.get("citations") or []), delta.get("citation")]
        else:
            for name, value in delta.items():
                self._add_field(name, value)

    def _add_field(self, name: str, value: Any) -> None:
        if name == "type" or value is None:
            return
        if isinstance(value, str) and name not in _REPLACED_FIELDS:
            self.fragments.setdefault(name, []).append(value)
        elif isinstance(value, list) and isinstance(elements := self.block.get(name), list):
            self.block[name] = [*cast("list[Any]", elements), *cast("list[Any]", value)]
        else:
            self.block[name] = value

    def finish(self) -> ItemPart:
        """Complete the block, and return it with its position."""
        for name, fragments in self.fragments.items():
            text = "".join(fragments)
            if name == "input":
                self.block["input"] = _parse_input(text, self.block.get("input"))
            else:
                initial_value = self.block.get(name)
                self.block[name] = (initial_value if isinstance(initial_value, str) else "") + text
        self.fragments = {}
        return ItemPart(self.part.position, self.part.part, item={"blocks": list(self.blocks)})


class MessageAccumulator:
    """The message of one stream, as it arrives."""

    def __init__(self) -> None:
        self._open: dict[Any, OpenBlock] = {}
        self._last: OpenBlock | None = None
        self._item_positions: list[tuple[ItemPart, list[Block]]] = []

    def start(self, index: Any, block: Block) -> OpenBlock:
        """Start a block; finish one that is still open under the same index."""
        if (earlier_block := self._open.pop(index, None)) is not None:
            earlier_block.finish()
        last = self._last
        if last is not None and block.get("type") == last.block.get("type") == "text":
            position = last.part.position
            blocks = [*last.blocks, block]
        else:
            position = len(self._item_positions)
            blocks = [block]
        open_block = OpenBlock(ItemPart(position, str(len(blocks) - 1)), block, blocks)
        if position == len(self._item_positions):
            self._item_positions.append((open_block.part, blocks))
        else:
            self._item_positions[-1] = (open_block.part, blocks)
        self._open[index] = self._last = open_block
        return open_block

    def find_or_start(self, index: Any, delta_type: str) -> OpenBlock:
        """Return the block of a delta; start the block if the stream did not announce it."""
        open_block = self._open.get(index)
        if open_block is None:
            kind = _OF_DELTA.get(delta_type, delta_type.removesuffix("_delta") or "text")
            open_block = self.start(index, {"type": kind})
        return open_block

    def is_open_call(self, index: Any) -> bool:
        """Return whether an open block is a call of one of the app's tools."""
        return index in self._open and self._open[index].block.get("type") == "tool_use"

    @property
    def has_open_calls(self) -> bool:
        """Whether such a call is not finished."""
        return any(map(self.is_open_call, self._open))

    def stop(self, index: Any) -> ItemPart | None:
        """Finish a block; None when it is not open."""
        open_block = self._open.pop(index, None)
        return None if open_block is None else open_block.finish()

    def stop_all(self) -> list[ItemPart]:
        """Finish the blocks that the stream left open."""
        return [part for index in list(self._open) if (part := self.stop(index)) is not None]

    def set_container(self, container: Mapping[str, Any] | None) -> list[ItemPart]:
        """Set the container in which the code of the message ran.

        Returns:
            An item for each call of a tool that ran there, or otherwise one item without blocks.
        """
        if not container:
            return []
        items = [
            ItemPart(part.position, item={"blocks": list(blocks), "container": dict(container)})
            for part, blocks in self._item_positions
            if runs_code(blocks[0])
        ]
        return items or [ItemPart(len(self._item_positions), item={"blocks": [], "container": dict(container)})]


def runs_code(block: Mapping[str, Any]) -> bool:
    """Return whether a block calls one of the service's tools that run in a container."""
    return block.get("type") == "server_tool_use" and block.get("name") in RUNS_CODE


def _parse_input(text: str, initial_input: Any) -> Any:
    """Parse the input of a tool; store input that is not JSON in the framework's form."""
    if not text:
        return initial_input if initial_input is not None else {}
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return {"raw": text}
    is_storable = not is_nested_too_deeply(read) and not any(find_limit_violations(read))
    return read if is_storable else {"raw": text}
