"""The mark by which a content represents an item of its provider, and what a provider can lose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from agent_framework import Content

from durable_agent_host.model.journal_entry import ToolOutcome

STAMP: Final = "durable_agent_host.item"
"""Key in a content's ``additional_properties``: ``provider``, ``type`` and ``id`` of the provider's item that begins
with this content, the item, and a fingerprint of its contents."""

ITEM: Final = "item"
"""Key in a stamp: the item exactly as the service sent it."""

PART_OF: Final = "durable_agent_host.part_of"
"""Key in a content's ``additional_properties``: it belongs to an earlier content's item; the value is its id."""

OWNER: Final = "durable_agent_host.owner"
"""Key in the ``additional_properties`` of reasoning without a stamp, because its chunks are joined: the provider that
produced it, and receives it back.
"""

SERVICE_TIER: Final = "durable_agent_host.service_tier"
"""Key in a response's ``additional_properties``: the service tier of the response, in the provider's word."""

CONTEXT_EDITS: Final = "durable_agent_host.context_edits"
"""Key in a response's ``additional_properties``: what the service has left out of the request, in its own form."""

LOST_RESULT: Final = "The result of this call is not known: the turn ended before it was stored."
"""The result for the model of a call that was never answered."""


def is_carrier(content: Content) -> bool:
    """Return whether a content is an empty text that only carries a provider's item.

    Args:
        content: of any type.

    Returns:
        True when it has nothing for any other provider.
    """
    return content.type == "text" and not content.text and STAMP in content.additional_properties


@dataclass(frozen=True)
class LostState:
    """What a model's service no longer has, can no longer use, or refuses.

    Attributes:
        kind: the continuation of a conversation, a container in which code ran, encrypted reasoning, a field that the
            service does not accept, or files in its messages.
        name: of the container, the field, or the answer which the turn had continued; empty when unknown.
    """

    kind: Literal["continuation", "container", "reasoning", "field", "files"]
    name: str = ""

    @property
    def reason(self) -> str:
        """Why the request is sent again, as a sentence."""
        if self.kind == "field":
            return f"the model's service refuses the field {self.name!r}"
        if self.kind == "files":
            return "the model's service refuses files of the request"
        return f"the model's service can no longer use the {self.kind}"


class HostedCall(NamedTuple):
    """What a finished item of the model's output says of a call of a tool of the service.

    Attributes:
        call_id: as the call's contents have it.
        name: of the tool; empty in the item of a result.
        arguments: final, as the service has them; None when the item does not have them.
        outcome: ``success``, ``error``, ``not_run``; None while the call has no result.
        result: the result, where no content has it.
        approval_request_id: of the approval that the call needed, if any.
        has_output: False when the service sends the output of the ended call later.
    """

    call_id: str
    name: str = ""
    arguments: Any = None
    outcome: ToolOutcome | None = None
    result: str = ""
    approval_request_id: str | None = None
    has_output: bool = True


@dataclass(frozen=True)
class ItemPart:
    """Where in the output of one model call an update belongs. Also used in folded updates.

    Attributes:
        position: position of the provider's item in the output, from 0, or the item's id where the provider gives no
            position; None for complete contents without a known item.
        part: the part of the item; empty for the item as a whole.
        item: the finished item as the provider wrote it, when this update has it.
        first_item_id: the id of the item that begins with this update; some services give all items one position.
    """

    position: int | str | None
    part: str = ""
    item: Mapping[str, Any] | None = None
    first_item_id: str | None = None
