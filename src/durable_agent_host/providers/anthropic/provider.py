"""Anthropic behind the port: clients of the Messages API, including those of Bedrock, Vertex and Foundry."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import ChatResponse, Content, Message

from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.provider_item import ItemPart
from durable_agent_host.providers.anthropic.block_mapping import complete_item, find_item_metadata
from durable_agent_host.providers.anthropic.block_types import PROVIDER, block_type
from durable_agent_host.providers.anthropic.client import PAUSE, adapt_client
from durable_agent_host.providers.anthropic.errors import explain_error, find_lost_state
from durable_agent_host.providers.anthropic.lost_state import remove_lost_items
from durable_agent_host.providers.anthropic.request_messages import CALL_ID, with_pause
from durable_agent_host.providers.anthropic.stream_events import is_truncated, read_item
from durable_agent_host.providers.cross_provider_history import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.provider_base import ProviderBase, ProviderHooks

_UNAVAILABLE_STATUSES: Final = frozenset({400, 403, 404, 410})


def generated_files(content: Content) -> Iterator[ServiceFile]:
    """List the files in the outputs of a run of code.

    Args:
        content: of any type.
    """
    outputs: Any = content.outputs
    for output in cast("list[Any]", outputs) if isinstance(outputs, list) else ():
        if isinstance(output, Content) and output.type == "hosted_file" and output.file_id:
            yield ServiceFile(output.file_id, output.name, output.media_type)


async def read_file(client: Any, file: ServiceFile) -> ServedFile:
    """Download a file by the Files API.

    Args:
        client: the agent's chat client.
        file: as listed.

    Returns:
        Its bytes, with name and type, which no block has.

    Raises:
        NotFoundError: the service does not have it, or does not release it, such as a caller's upload.
        ProviderError: the service failed.
    """
    from anthropic import APIStatusError  # noqa: PLC0415 - one SDK per file, loaded when used

    try:
        files = client.anthropic_client.beta.files
        metadata = await files.retrieve_metadata(file.file_id)
        response = await files.download(file.file_id)
        return ServedFile(bytes(await response.read()), metadata.filename, metadata.mime_type)
    except APIStatusError as error:
        if error.status_code in _UNAVAILABLE_STATUSES:
            raise NotFoundError(
                f"the model's service does not provide the file {file.file_id!r}: {error.message}"
            ) from error
        raise explain_error(error) or error from error


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
