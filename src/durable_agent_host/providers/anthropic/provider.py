"""Anthropic behind the port: clients of the Messages API, including those of Bedrock, Vertex and Foundry."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import ChatResponse, Content, Message

from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.providers.anthropic.block_mapping import complete_item, find_item_metadata
from durable_agent_host.providers.anthropic.block_types import PROVIDER, block_type
from durable_agent_host.providers.anthropic.client import PAUSE, adapt_client
from durable_agent_host.providers.anthropic.errors import explain_error, find_lost_state
from durable_agent_host.providers.anthropic.lost_state import remove_lost_items
from durable_agent_host.providers.anthropic.request_messages import CALL_ID, with_pause
from durable_agent_host.providers.anthropic.service_files import generated_files, read_file
from durable_agent_host.providers.anthropic.stream_events import is_truncated, read_item
from durable_agent_host.providers.cross_provider_history import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.provider_base import ProviderBase, ProviderHooks


class AnthropicProvider(ProviderBase):
    """Clients of Anthropic's Messages API, whose blocks are stored and sent back."""

    hooks = ProviderHooks(
        target=ReplayTarget(
            PROVIDER,
            unsent=TOOLS_OF_SERVICES,
            call_ids=CALL_ID,
            media=re.compile(r"image/(png|jpeg|gif|webp)|application/pdf|text/plain"),
        ),
        adapt=adapt_client,
        carry=remove_lost_items,
        lost_state=find_lost_state,
        explain=explain_error,
        generated_files=generated_files,
        read_file=read_file,
    )

    def is_compaction_item(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Recognize the compaction blocks that the option ``context_management`` makes the service emit."""
        return _has_compaction if options.get("context_management") else None

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Read it from the hosted client's updates."""
        return read_item(update)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of finished blocks."""
        return complete_item(contents, item)

    def finished_calls(self, update: Any, /) -> list[tuple[str, bool]]:
        """Return the call that a result of the service's own tools belongs to."""
        part = read_item(update)
        if part is None or part.item is None:
            return []
        result_blocks = (block for block in part.item.get("blocks", ()) if block_type(block.get("type")).is_result)
        return [(str(block.get("tool_use_id") or ""), _has_failed(block)) for block in result_blocks]

    def is_truncated(self, updates: Iterable[Any], /) -> bool:
        """Check for ``message_stop``; a response that was not streamed has its stop reason."""
        return is_truncated(updates)

    def continuation_messages(self, response: ChatResponse[Any], /) -> list[Message] | None:
        """Send the response back unchanged when the model has paused."""
        return with_pause(response.messages) if response.finish_reason == PAUSE else None

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Return the messages: its client sends known contents, and omits the others."""
        return list(messages)


def _has_compaction(message: Message) -> bool:
    return any((find_item_metadata(content) or {}).get("type") == "compaction" for content in message.contents)


def _has_failed(block: Mapping[str, Any]) -> bool:
    raw_content: Any = block.get("content")
    return bool(block.get("is_error")) or (isinstance(raw_content, Mapping) and "error_code" in raw_content)


ANTHROPIC: Final = AnthropicProvider()
