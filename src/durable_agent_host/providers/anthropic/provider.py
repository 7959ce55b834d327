"""Anthropic behind the port: clients of the Messages API, those of Bedrock, Vertex and Foundry among them."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import AgentResponseUpdate, ChatResponse, ChatResponseUpdate, Content, Message

from durable_agent_host.errors import ProviderError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import Forgotten, ItemPart
from durable_agent_host.providers.anthropic.block_types import PROVIDER, block_type
from durable_agent_host.providers.anthropic.blocks import complete_item, stamp_of
from durable_agent_host.providers.anthropic.client import PAUSE, adapt_client
from durable_agent_host.providers.anthropic.errors import explain_error, forgotten_by_service
from durable_agent_host.providers.anthropic.forgotten import without_forgotten
from durable_agent_host.providers.anthropic.request_messages import with_pause
from durable_agent_host.providers.anthropic.service_files import made_files, read_file
from durable_agent_host.providers.anthropic.stream_events import Said, read_item
from durable_agent_host.providers.foreign import TOOLS_OF_SERVICES, Target
from durable_agent_host.providers.neutral import NeutralProvider

_TARGET: Final = Target(
    PROVIDER,
    unsent=TOOLS_OF_SERVICES,
    call_ids=re.compile(r"[a-zA-Z0-9_-]{1,64}"),
    media=re.compile(r"image/(png|jpeg|gif|webp)|application/pdf|text/plain"),
)


class AnthropicProvider(NeutralProvider):
    """Clients of Anthropic's Messages API, whose blocks are kept and sent back."""

    @property
    def target(self) -> Target:
        """Blocks of the API are the provider's own."""
        return _TARGET

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep its blocks."""
        return adapt_client(client)

    def sums_up(self, options: Mapping[str, Any], /) -> Callable[[Message], bool] | None:
        """Know the compaction blocks that the option ``context_management`` makes the service emit."""
        return _has_compaction if options.get("context_management") else None

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Read it from what the hosted client says."""
        return read_item(update)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of finished blocks."""
        return complete_item(contents, item)

    def finished_calls(self, update: Any, /) -> list[tuple[str, bool]]:
        """Name the call that a result of the service's own tools answers."""
        part = read_item(update)
        if part is None or part.item is None:
            return []
        ended = (block for block in part.item.get("blocks", ()) if block_type(block.get("type")).answers)
        return [(str(block.get("tool_use_id") or ""), _has_failed(block)) for block in ended]

    def ended_early(self, updates: Iterable[Any], /) -> bool:
        """Look for ``message_stop``; an answer that was not streamed has its stop reason."""
        for update in updates:
            raw: Any = update
            while isinstance(raw, ChatResponseUpdate | AgentResponseUpdate | ChatResponse):
                raw = raw.raw_representation
            event: Any = raw.event if type(raw) is Said else raw
            kind = getattr(event, "type", None)
            if kind == "message_stop" or (kind == "message" and getattr(event, "stop_reason", None) is not None):
                return False
        return True

    def goes_on(self, response: ChatResponse[Any], /) -> list[Message] | None:
        """Send the answer back as it is when the model has paused."""
        return with_pause(response.messages) if response.finish_reason == PAUSE else None

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Return the messages: its client sends what it knows, and leaves out the rest."""
        return list(messages)

    def carry(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Remember containers that are gone, and thoughts that the service cannot read."""
        return without_forgotten(messages, remembered, lost)

    def service_files(self, content: Content, /) -> Iterable[ServiceFile]:
        """List hosted files, and those that code has made."""
        yield from super().service_files(content)
        yield from made_files(content)

    async def read_service_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download it by the Files API."""
        return await read_file(client, file)

    def forgotten(self, error: BaseException, /) -> Forgotten | None:
        """Read it from the service's own words."""
        return forgotten_by_service(error)

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Name the type of the service's error, and what to do about it."""
        return explain_error(error)


def _has_compaction(message: Message) -> bool:
    return any((stamp_of(content) or {}).get("type") == "compaction" for content in message.contents)


def _has_failed(block: Mapping[str, Any]) -> bool:
    told: Any = block.get("content")
    return bool(block.get("is_error")) or (isinstance(told, Mapping) and "error_code" in told)


ANTHROPIC: Final = AnthropicProvider()
