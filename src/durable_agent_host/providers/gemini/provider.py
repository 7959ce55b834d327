"""Gemini behind the port: its client is adapted; the rest is neutral."""

# ruff: noqa: SLF001 - the framework's client has no public name for the SDK's

import re
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.errors import RequestError
from durable_agent_host.model.provider_item import LostState
from durable_agent_host.providers.client_errors import rejection_text
from durable_agent_host.providers.cross_provider_history import TOOLS_OF_SERVICES, ReplayTarget
from durable_agent_host.providers.gemini.client import PartPreservingMixin
from durable_agent_host.providers.gemini.part_mapping import LOSS_RULES, METADATA
from durable_agent_host.providers.gemini.raw_json_transport import with_raw_json
from durable_agent_host.providers.generic_provider import GenericProvider

_SIGNATURE_REJECTED: Final = re.compile(
    r"(?:corrupted|invalid) thought.?signature|thought.?signature is (?:not valid|invalid|corrupted)", re.IGNORECASE
)
"""As quoted in public projects (google-gemini/gemini-cli#13467, alphaXiv/agents#61)."""


class GeminiProvider(GenericProvider):
    """Clients of Google's Gemini, whose parts are stored and sent back."""

    hints = (
        (400, r"(?i)API[ _]key", "check GOOGLE_API_KEY"),
        (400, r"(?i)thought.?signature", "verify the session, or begin a new one"),
        (400, "location is not supported", "the service does not serve the place that the host runs in"),
        (401, "", "check GOOGLE_API_KEY, or the Google Cloud credentials"),
        (403, "", "check that the key may use this model, and that files in the conversation still exist"),
        (404, "", "check GOOGLE_MODEL, and the endpoint"),
    )

    target = ReplayTarget(
        METADATA.provider,
        unsent=TOOLS_OF_SERVICES,
        media=re.compile(r"(image|audio|video|application|text)/.*"),
    )
    overrides = PartPreservingMixin
    loss_rules = LOSS_RULES

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it keeps the provider's parts."""
        adapter = super().adapt(client)
        if adapter is not client:
            adapter._genai_client = with_raw_json(adapter._genai_client)
        return adapter

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return ``reasoning`` when the service cannot read a signature; a missing one is another error."""
        return LostState("reasoning") if _SIGNATURE_REJECTED.search(rejection_text(error, {400})) else None

    def check_message(self, message: Message, /) -> None:
        """Reject file ids, which the client would omit."""
        if any(content.type == "hosted_file" for content in message.contents):
            raise RequestError("the agent's client does not send file ids: send the file's bytes, or its URL at Gemini")


GEMINI: Final = GeminiProvider()
