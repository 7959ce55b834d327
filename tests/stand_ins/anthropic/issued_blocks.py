"""Blocks, files and containers that the service has issued."""

from collections.abc import Iterable, Sequence
from typing import Any, cast

from practice_model.dialects.responses import sealed
from practice_model.dialects.responses.items import Json
from tests.stand_ins.anthropic.reading import find_issued_values


class IssuedBlocks:
    """Blocks, files and containers that the service has issued.

    Args:
        genuine_values: signatures of recorded traffic.
        containers: containers of recorded traffic.

    Attributes:
        files: names of the files that code has generated, by id.
    """

    def __init__(self, genuine_values: set[str], containers: Iterable[str]) -> None:
        self.files: dict[str, str] = {}
        self._genuine_values = genuine_values
        self._is_usable_by_container: dict[str, bool] = dict.fromkeys(containers, True)
        self._thinking_by_signature: dict[str, str] = {}
        self._signatures_by_call: dict[str, list[str]] = {}
        self._block_types: set[str] = set()

    def record_response(self, blocks: Sequence[Json], container: Any) -> None:
        """Record the blocks of a response."""
        values = list(find_issued_values(blocks))
        self._genuine_values |= set(values)
        for block in blocks:
            self._block_types.add(str(block.get("type")))
            if block.get("type") == "thinking":
                self._thinking_by_signature[str(block["signature"])] = str(block["thinking"])
            if block.get("type") == "tool_use":
                self._signatures_by_call[str(block["id"])] = values
            content: Any = block.get("content")
            nested_content: Any = cast("Json", content).get("content") if isinstance(content, dict) else None
            file_outputs = cast("list[Json]", nested_content) if isinstance(nested_content, list) else []
            for file_id in (str(file_output["file_id"]) for file_output in file_outputs if file_output.get("file_id")):
                self.files.setdefault(file_id, f"{file_id}.png")
        if isinstance(container, dict):
            self._is_usable_by_container[str(cast("Json", container)["id"])] = True

    def is_genuine_signature(self, value: str) -> bool:
        """Return whether a signature or redacted thinking is genuine."""
        return value in self._genuine_values or sealed.is_genuine(value)

    def find_thought(self, signature: str) -> str | None:
        """Return the thinking that was issued with a signature; None if it is unknown."""
        return self._thinking_by_signature.get(signature)

    def find_thought_signatures(self, call_id: str) -> Sequence[str]:
        """Return the thinking signatures of the message that issued a call."""
        return self._signatures_by_call.get(call_id, ())

    def has_issued_type(self, kind: str) -> bool:
        """Return whether a block of this type was issued."""
        return kind in self._block_types

    def container_error(self, container_id: str) -> str | None:
        """Return why a container cannot be used, or None; containers of earlier server runs are accepted."""
        if self._is_usable_by_container.get(container_id, container_id.startswith("container_")):
            return None
        return f"Container '{container_id}' not found or expired."

    def expire_containers(self) -> int:
        """Expire all containers; return their number."""
        count = sum(self._is_usable_by_container.values())
        self._is_usable_by_container = dict.fromkeys(self._is_usable_by_container, False)
        return count
