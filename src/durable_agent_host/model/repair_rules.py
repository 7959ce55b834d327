"""A model service's requirements on a stored conversation, given by its provider: data for `session.repair`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StoredItem:
    """What keeps one type of a provider's items intact in a stored conversation.

    Attributes:
        field: of the item; if the stamp has it, the item needs no contents.
        contents: stored ``$type`` of each content that the item needs otherwise.
        is_null_valid: whether a null in that field of the stamp counts as present.
        empty_result: for an item that is a call and its result, the stored result that replaces a lost one; its
            ``$type`` is the last of `contents`.
        call_name: the name of that call in repairs.
        owner: a property that the first of `contents` must have, and its name in repairs.
        is_id_optional: whether the service accepts the item without its id.
    """

    field: str = ""
    contents: tuple[str, ...] = ()
    is_null_valid: bool = True
    empty_result: Mapping[str, Any] | None = None
    call_name: str = ""
    owner: tuple[str, str] | None = None
    is_id_optional: bool = False


@dataclass(frozen=True)
class RepairRules:
    """The rules of one service. Without arguments: the requirements of every service.

    Attributes:
        provider: whose items the rows of `items` are about.
        knows_items: whether the service checks its own items: their ids, that none occurs twice, that reasoning is
            followed by what it led to. Others reject calls of hosted tools without a result.
        items: type of item → what keeps it intact; items of other types stay unchanged.
        item_id_paths: paths to the item id in the properties of a function call; the first is authoritative.
        max_id_characters: of the ids of calls and items.
        max_bare_call_id_characters: of the ids of calls without an item id.
        never_sent: stored ``$type`` of the contents that no client sends when they represent no item.
        omits_refusals: whether the model goes on refusing while it reads a turn that it has refused, so that
            such a turn is not sent again.
    """

    provider: str = ""
    knows_items: bool = False
    items: Mapping[str, StoredItem] = field(default_factory=dict[str, StoredItem])
    item_id_paths: tuple[tuple[str, ...], ...] = ()
    max_id_characters: int = 64
    max_bare_call_id_characters: int = 64
    never_sent: frozenset[str] = frozenset()
    omits_refusals: bool = False
