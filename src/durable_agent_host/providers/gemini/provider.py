"""Gemini behind the port: its client is adapted; the rest is neutral."""

# ruff: noqa: SLF001 - the framework's client has no public name for the SDK's

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from agent_framework import Message

from durable_agent_host.errors import RequestError
from durable_agent_host.model.provider_item import HostedCall, ItemPart, LostState
from durable_agent_host.providers.call_pairing import client_function
from durable_agent_host.providers.client_errors import rejection_text
from durable_agent_host.providers.cross_provider_history import ReplayTarget
from durable_agent_host.providers.gemini.client import PartPreservingMixin
from durable_agent_host.providers.gemini.part_mapping import LOSS_RULES, METADATA, unknown_call, unknown_part
from durable_agent_host.providers.gemini.raw_json_transport import with_raw_json
from durable_agent_host.providers.generic_provider import IMAGE_TYPES, GenericProvider
from durable_agent_host.providers.lost_state import find_refusal

_COMPUTER_FUNCTIONS: Final = (
    *("open_web_browser", "wait_5_seconds", "go_back", "go_forward", "search", "navigate", "click_at", "hover_at"),
    *("type_text_at", "key_combination", "scroll_document", "scroll_at", "drag_and_drop"),
)
"""Functions of Google's tool for computer use."""

_SIGNATURE_REJECTED: Final = re.compile(
    r"(?:corrupted|invalid) thought.?signature|thought.?signature is (?:not valid|invalid|corrupted)", re.IGNORECASE
)
"""As quoted in public projects (google-gemini/gemini-cli#13467, alphaXiv/agents#61)."""


class GeminiProvider(GenericProvider):
    """Clients of Google's Gemini, whose parts are stored and sent back."""

    target = ReplayTarget(
        METADATA.provider,
        media=re.compile(r"(image|audio|video|application|text)/.*"),
    )
    overrides = PartPreservingMixin
    image_types = IMAGE_TYPES | {"image/heic"}
    loss_rules = LOSS_RULES

    def adapt(self, client: Any, /) -> Any:
        """Copy the client so that it keeps the provider's parts."""
        adapter = super().adapt(client)
        if adapter is not client:
            adapter._genai_client = with_raw_json(adapter._genai_client)
        return adapter

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Return the part of unknown kind in an update."""
        parts = (unknown_part(content) for content in update.contents)
        part = next(filter(None, parts), None)
        return None if part is None else ItemPart(None, item=part)

    def hosted_calls(self, item: Mapping[str, Any], /) -> Iterable[HostedCall]:
        """List the call that a part of unknown kind is told as; the others are in the contents."""
        call = unknown_call(dict(item))
        return () if call is None else (call,)

    def client_tools(self, tool: Any, /) -> Sequence[Any]:
        """Return the functions of the computer, which the client uses."""
        if (computer := getattr(tool, "computer_use", None)) is None:
            return (tool,)
        excluded_names = getattr(computer, "excluded_predefined_functions", None) or ()
        return [client_function(name, tool) for name in _COMPUTER_FUNCTIONS if name not in excluded_names]

    def lost_state(self, error: BaseException, /) -> LostState | None:
        """Return ``reasoning`` when the service cannot read a signature, or a refused file."""
        if _SIGNATURE_REJECTED.search(rejection_text(error, {400})):
            return LostState("reasoning")
        loss = find_refusal(error)
        return loss if loss is not None and loss.kind == "files" else None

    def check_message(self, message: Message, /) -> None:
        """Reject file ids, which the client would omit, and images that the service does not take."""
        super().check_message(message)
        if any(content.type == "hosted_file" for content in message.contents):
            raise RequestError("the agent's client does not send file ids: send the file's bytes, or its URL at Gemini")


GEMINI: Final = GeminiProvider()
