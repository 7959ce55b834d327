"""What a model's service requires of a stored conversation, as its provider says it: data for `session.repair`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class StoredItem:
    """What keeps one type of a provider's items whole in a stored conversation.

    Attributes:
        field: of the item; where the stamp holds it, the item needs no contents.
        contents: stored ``$type`` of each content that the item needs otherwise.
        is_null_kept: whether a null in that field of the stamp counts as held.
        empty_result: for an item that is a call and its result, the stored result that replaces a lost one; its
            ``$type`` is the last of `contents`.
        call_name: what a repair calls that call.
        owner: a property that the first of `contents` must have, and what a repair calls it.
        is_id_optional: whether the service takes the item without its id.
    """

    field: str = ""
    contents: tuple[str, ...] = ()
    is_null_kept: bool = True
    empty_result: Mapping[str, Any] | None = None
    call_name: str = ""
    owner: tuple[str, str] | None = None
    is_id_optional: bool = False


@dataclass(frozen=True)
class RepairRules:
    """The rules of one service. Without arguments: what every service requires.

    Attributes:
        knows_items: whether the service checks its own items: their ids, that none comes twice, that reasoning is
            followed by what it led to. Others refuse calls of hosted tools that have no result.
        items: type of item → what keeps it whole; items of other types are kept as they are.
        item_id_paths: where the properties of a function call name its item, as paths; the first is authoritative.
        max_id_characters: of the ids of calls and items.
        max_bare_call_id_characters: of the ids of calls that name no item.
        never_sent: stored ``$type`` of the contents that no client sends when they stand for no item.
    """

    knows_items: bool = False
    items: Mapping[str, StoredItem] = field(default_factory=dict[str, StoredItem])
    item_id_paths: tuple[tuple[str, ...], ...] = ()
    max_id_characters: int = 64
    max_bare_call_id_characters: int = 64
    never_sent: frozenset[str] = frozenset()
