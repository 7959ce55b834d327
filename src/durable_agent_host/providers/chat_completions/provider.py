"""Chat Completions behind the port."""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Content, Message

from durable_agent_host.agent.retry_classification import causes_of
from durable_agent_host.model.provider_item import STAMP, HostedCall, LostState
from durable_agent_host.providers.chat_completions.client import MessagePreservingMixin, NormalizedChunksMixin
from durable_agent_host.providers.chat_completions.content_mapping import executed_tools
from durable_agent_host.providers.chat_completions.message_metadata import METADATA, complete_item
from durable_agent_host.providers.client_errors import rejection_text
from durable_agent_host.providers.cross_provider_history import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.event_normalization import normalize_streams
from durable_agent_host.providers.generic_provider import GenericProvider
from durable_agent_host.providers.lost_state import with_contents
from durable_agent_host.providers.openai.errors import HINTS
from durable_agent_host.providers.openai.media_inputs import check_chat

# Message fields that a service sends but does not accept back: known after it has rejected them.
#
# The rule: all fields of a service are sent back to it, since some reject a conversation without it (DeepSeek since
# V3.2, its ``reasoning_content``) and others reason worse (OpenRouter, ``reasoning_details``); a field that it has
# rejected is not sent again in this session (DeepSeek's R1, Groq, Mistral). Another service gets only the standard
# fields.

_REJECTED_FIELDS: Final = "refused_fields"
_STANDARD: Final = frozenset({"role", "content", "tool_calls", "tool_call_id", "name", "refusal"})
_WORDINGS: Final = tuple(
    re.compile(wording)
    for wording in (
        r"[Pp]lease remove the [`'\"]?(\w+)[`'\"]? from your message",  # DeepSeek R1
        r"property '(?:[\w.]+\.)?(\w+)' is unsupported",  # Groq, Cerebras
        r"\('(\w+)' was unexpected\)",  # Azure, Fireworks
        r"[Uu]nknown (?:parameter|field|name):? ['\"](?:[\w.\[\]]+[.\]])?(\w+)['\"]",  # OpenAI, Google
        r"['\"]extra_forbidden['\"].*?['\"]loc['\"]: ?[\[(][^\])]*['\"](\w+)['\"][\])]",  # Mistral
    )
)


def _mark_rejected(message: Message, rejected_fields: Sequence[str]) -> Message:
    contents: list[Content] = []
    for content in message.contents:
        if (metadata := METADATA.find(content)) is not None:
            content = copy.copy(content)  # noqa: PLW2901 - replaced by the copy
            content.additional_properties = content.additional_properties | {
                STAMP: {**metadata, "refused": list(rejected_fields)}
            }
        contents.append(content)
    return with_contents(message, contents)


class ChatCompletionsProvider(GenericProvider):
    """Clients of Chat Completions. Messages are stored in full; other services' tools are described as text."""

    hints = HINTS

    target = ReplayTarget(METADATA.provider, unsent=TOOLS_OF_SERVICES)
    overrides = MessagePreservingMixin

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it stores full messages, and reads what compatible services send otherwise."""
        return normalize_streams(super().adapt(client), client, NormalizedChunksMixin)

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Make the contents of the finished message."""
        return complete_item(contents, item)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List the calls that the service has run for a message."""
        for index, tool in enumerate(executed_tools(item["message"])):
            call_id = f"executed_{tool.get('index', index)}_{item['id']}"
            name = str(tool.get("type") or "tool")
            result = str(tool.get("output") or "")
            yield HostedCall(call_id, name, tool.get("arguments"), "success", result)

    def carry(
        self, messages: Sequence[Message], stored_losses: Mapping[str, Any], new_losses: Iterable[LostState], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark the fields that are no longer sent: ``refused_fields`` of the stored losses."""
        names = [*stored_losses.get(_REJECTED_FIELDS, ()), *(loss.name for loss in new_losses if loss.kind == "field")]
        rejected_fields = list(dict.fromkeys(names))
        if not rejected_fields:
            return list(messages), dict(stored_losses)
        marked_messages = [_mark_rejected(message, rejected_fields) for message in messages]
        return marked_messages, {**stored_losses, _REJECTED_FIELDS: rejected_fields}

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return which field of a message the service has rejected."""
        if not rejection_text(error, {400, 422}):
            return None
        text = " ".join(str(cause) for cause in causes_of(error))  # some services say it beside their message
        names = (match[1] for wording in _WORDINGS if (match := wording.search(text)))
        name = next((name for name in names if name not in _STANDARD), None)
        return LostState("field", name) if name else None

    def check_message(self, message: Message, /) -> None:
        """Reject files that the client would omit."""
        check_chat(message.contents)


CHAT: Final = ChatCompletionsProvider()
