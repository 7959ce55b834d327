"""Gemini behind the port: its client is adapted; the rest is neutral."""

import re
from collections.abc import Sequence
from typing import Final

from agent_framework import Message

from durable_agent_host.errors import RequestError
from durable_agent_host.providers.foreign import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.gemini.client import adapt_client
from durable_agent_host.providers.gemini.errors import explain_error, find_lost_state
from durable_agent_host.providers.gemini.forgotten import mark_lost_signatures
from durable_agent_host.providers.gemini.parts import METADATA
from durable_agent_host.providers.hosted_provider import ProviderBase, ProviderHooks
from durable_agent_host.providers.neutral import remove_completed_approvals


class GeminiProvider(ProviderBase):
    """Clients of Google's Gemini, whose parts are stored and sent back."""

    hooks = ProviderHooks(
        target=ReplayTarget(
            METADATA.provider, unsent=TOOLS_OF_SERVICES, media=re.compile(r"(image|audio|video|application|text)/.*")
        ),
        adapt=adapt_client,
        carry=mark_lost_signatures,
        lost_state=find_lost_state,
        explain=explain_error,
    )

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Remove completed hosted approvals; carriers of parts stay."""
        return remove_completed_approvals(messages)

    def check_message(self, message: Message, /) -> None:
        """Reject file ids, which the client would omit."""
        if any(content.type == "hosted_file" for content in message.contents):
            raise RequestError("the agent's client does not send file ids: send the file's bytes, or its URL at Gemini")


GEMINI: Final = GeminiProvider()
