"""Gemini behind the port: its client is adapted; all else is neutral."""

import re
from collections.abc import Sequence
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.errors import ProviderError, RequestError
from durable_agent_host.providers.foreign import TOOLS_OF_SERVICES, Target
from durable_agent_host.providers.gemini.client import adapt_client
from durable_agent_host.providers.gemini.errors import explain_error
from durable_agent_host.providers.gemini.parts import STAMPS
from durable_agent_host.providers.neutral import NeutralProvider, without_answered_approvals

_TARGET: Final = Target(
    STAMPS.provider,
    unsent=TOOLS_OF_SERVICES,
    media=re.compile(r"(image|audio|video|application|text)/.*"),
)


class GeminiProvider(NeutralProvider):
    """Clients of Google's Gemini, whose parts are kept and sent back."""

    @property
    def target(self) -> Target:
        """Parts of the API are the provider's own."""
        return _TARGET

    def adapt(self, client: Any, /) -> Any:
        """Copy the client with overrides that keep its parts."""
        return adapt_client(client)

    def as_history(self, messages: Sequence[Message], /) -> list[Message]:
        """Leave out hosted approvals that were answered; carriers of parts stay."""
        return without_answered_approvals(messages)

    def check_message(self, message: Message, /) -> None:
        """Refuse ids of files, which the client leaves out."""
        if any(content.type == "hosted_file" for content in message.contents):
            raise RequestError("the agent's client sends no ids of files: send the file's bytes, or its URL at Gemini")

    def explain(self, error: BaseException, /) -> ProviderError | None:
        """Name the setting that may be wrong."""
        return explain_error(error)


GEMINI: Final = GeminiProvider()
