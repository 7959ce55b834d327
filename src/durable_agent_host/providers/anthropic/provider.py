"""Anthropic behind the port: clients of the Messages API, including those of Bedrock, Vertex and Foundry."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import ChatResponse, Content, Message

from durable_agent_host.codec.strict_json import value_at
from durable_agent_host.model.conversation_file import ServedFile, ServiceFile
from durable_agent_host.model.ending import PAUSE
from durable_agent_host.model.provider_item import HostedCall, LostState
from durable_agent_host.providers.anthropic.block_mapping import complete_item
from durable_agent_host.providers.anthropic.block_types import PROVIDER, hosted_call
from durable_agent_host.providers.anthropic.client import BlockPreservingMixin, NormalizedMessagesMixin
from durable_agent_host.providers.anthropic.request_messages import LOSS_RULES, with_pause
from durable_agent_host.providers.anthropic.stream_events import is_truncated
from durable_agent_host.providers.call_pairing import client_function
from durable_agent_host.providers.client_errors import rejection_text
from durable_agent_host.providers.cross_provider_history import ReplayTarget
from durable_agent_host.providers.event_normalization import normalize_streams
from durable_agent_host.providers.generic_provider import IMAGE_TYPES, GenericProvider
from durable_agent_host.providers.lost_state import find_refusal

_CONTAINER_EXPIRED: Final = re.compile(
    r"container\b.*?(?:not found|expired|does not exist|no longer|invalid|unknown)"
    r"|(?:not find|expired|unknown) container",
    re.IGNORECASE | re.DOTALL,
)
_CONTAINER_ID: Final = re.compile(r"container_\w+")
_RUNS_AT_CLIENT: Final = re.compile(r"(bash|computer|memory|text_editor)_\d{8}")

_SIGNATURE_REJECTED: Final = re.compile(
    r"Invalid `?(?:signature|data)`?\s+in\s+`?(?:redacted_)?thinking`?\s+block", re.IGNORECASE
)
"""With marks in Anthropic's wording, without in Bedrock's (chenhg5/cc-connect#897, can1357/oh-my-pi#333)."""


class AnthropicProvider(GenericProvider):
    """Clients of Anthropic's Messages API, whose blocks are stored and sent back."""

    target = ReplayTarget(
        PROVIDER,
        media=re.compile(r"image/(png|jpeg|gif|webp)|application/.*|text/.*"),
    )
    overrides = BlockPreservingMixin
    image_types = IMAGE_TYPES
    compaction_type = "compaction"
    loss_rules = LOSS_RULES
    omits_refusals = True  # "Reset context after refusal" of the API's documentation

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it keeps the provider's blocks, and reads what compatible services send otherwise."""
        return normalize_streams(super().adapt(client), client, NormalizedMessagesMixin)

    async def download_file(self, client: Any, file: ServiceFile, /) -> ServedFile:
        """Download it with its name and type, which no block has; a caller's upload is not released."""
        files = client.anthropic_client.beta.files
        metadata = await files.retrieve_metadata(file.file_id)
        response = await files.download(file.file_id)
        return ServedFile(bytes(await response.read()), metadata.filename, metadata.mime_type)

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return the container that no longer exists, ``reasoning`` for a rejected signature, or what is refused."""
        text = rejection_text(error, {400, 404, 410})
        if _SIGNATURE_REJECTED.search(text):
            return LostState("reasoning")
        if _CONTAINER_EXPIRED.search(text):
            match = _CONTAINER_ID.search(text)
            return LostState("container", match[0] if match else "")
        return find_refusal(error)

    def client_tools(self, tool: Any, /) -> Sequence[Any]:
        """Return tools that the client runs as what their calls are: ``tool_use`` blocks with the tool's name."""
        if not _RUNS_AT_CLIENT.fullmatch(str(value_at(tool, "type"))):
            return (tool,)
        return (client_function(str(value_at(tool, "name")), tool),)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of finished blocks."""
        return complete_item(contents, item)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List the calls of the service's own tools, their results, and blocks of unknown types."""
        return [call for block in item.get("blocks", ()) if (call := hosted_call(block)) is not None]

    def is_truncated(self, updates: Iterable[Any], /) -> bool:
        """Check for ``message_stop``; a response that was not streamed has its stop reason."""
        return is_truncated(updates)

    def continuation_messages(self, response: ChatResponse[Any], /) -> list[Message] | None:
        """Send the response back unchanged when the model has paused."""
        return with_pause(response.messages) if response.finish_reason == PAUSE else None


ANTHROPIC: Final = AnthropicProvider()
