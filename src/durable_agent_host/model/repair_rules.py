"""A model service's requirements on a stored conversation, given by its provider: data for `session.repair`."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RepairRules:
    """The rules of one service. Without arguments: the requirements of every service.

    Attributes:
        provider: whose items the rows of `items` are about.
        knows_items: whether the service checks its own items: their ids, that none occurs twice, that reasoning is
            followed by what it led to. Others reject calls of hosted tools without a result.
        optional_ids: types of items that the service accepts without their id.
        item_id_paths: paths to the item id in the properties of a function call; the first is authoritative.
        max_id_characters: of the ids of calls and items.
        max_bare_call_id_characters: of the ids of calls without an item id.
        never_sent: stored ``$type`` of the contents that no client sends when they represent no item.
        omits_refusals: whether the model goes on refusing while it reads a turn that it has refused, so that
            such a turn is not sent again.
    """

    provider: str = ""
    knows_items: bool = False
    optional_ids: frozenset[str] = frozenset()
    item_id_paths: tuple[tuple[str, ...], ...] = ()
    max_id_characters: int = 64
    max_bare_call_id_characters: int = 64
    never_sent: frozenset[str] = frozenset()
    omits_refusals: bool = False
