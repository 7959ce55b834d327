"""The mark by which a content stands for an item of its provider, and what a provider can forget."""

from dataclasses import dataclass
from typing import Final, Literal

from agent_framework import Content

STAMP: Final = "durable_agent_host.item"
"""Key in a content's ``additional_properties``: ``provider``, ``type`` and ``id`` of the provider's item that begins
with this content, and the fields of the item that its contents do not have."""

PART_OF: Final = "durable_agent_host.part_of"
"""Key in a content's ``additional_properties``: it belongs to the item that began before it; the value is its id."""


def is_carrier(content: Content) -> bool:
    """Tell whether a content is an empty text that only carries a provider's item. Guarantee: pure.

    Args:
        content: of any type.

    Returns:
        True when there is nothing on it for any other provider.
    """
    return content.type == "text" and not content.text and STAMP in content.additional_properties


@dataclass(frozen=True)
class Forgotten:
    """What a model's service no longer has.

    Attributes:
        what: the continuation of a conversation, or a container in which code ran.
        name: the container's id; empty when the service did not name it.
    """

    what: Literal["continuation", "container"]
    name: str = ""
