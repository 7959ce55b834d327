"""How a provider's contents represent its items: the data for writing and reading the compact form.

The codec knows no provider's words. The package registers one provider's forms when it is imported; the marks in stored
parts have no room for a provider's name, so a second provider's forms need a new mark of packed entries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from durable_agent_host.errors import RegistrationError


@dataclass(frozen=True)
class ItemForm:
    """How the contents of one ``$type`` repeat their provider's item.

    Attributes:
        item_type: type of the item that such a content begins; None where it begins none that has a short stamp.
        id_field: the content's own field that holds the item's id; None where the provider's block holds it.
        beside: name in the block → the name of its copy beside the block, where the two differ.
    """

    item_type: str | None = None
    id_field: str | None = None
    beside: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, eq=False)
class ItemForms:
    """Data that a provider's client writes more than once.

    Attributes:
        provider: its name in stamps, and the key of its block in ``additional_properties`` and in stored parts.
        item_id: name of the item's id in the block.
        new_usual_block: makes the block of a content without further data from the client.
        contents: ``$type`` → its form; the others repeat the block beside it under the same names.
        usage_twins: name of a token count → the name under which the client repeats it.
    """

    provider: str
    item_id: str
    new_usual_block: Callable[[], dict[str, Any]]
    contents: Mapping[str, ItemForm]
    usage_twins: Mapping[str, str]

    def form_of(self, wire_type: str) -> ItemForm:
        """Return the form of the contents of a ``$type``. Guarantee: pure."""
        return self.contents.get(wire_type, _NOTHING_SPECIAL)


_NOTHING_SPECIAL: Final = ItemForm()
_registered: list[Callable[[], ItemForms]] = []
_loaded: list[ItemForms] = []


def register_item_forms(load: Callable[[], ItemForms]) -> None:
    """Set the forms that the codec uses, for the composition root.

    Args:
        load: returns the forms; called when an entry is first read or written, so that an import costs nothing.
    """
    _registered[:] = [load]
    _loaded.clear()


def item_forms() -> ItemForms:
    """Return the registered forms.

    Returns:
        The same object at every call.

    Raises:
        RegistrationError: none are registered, so no packed entry can be read or written; nothing was changed.
    """
    if not _loaded:
        if not _registered:
            raise RegistrationError(
                "no provider's item forms are registered, without which stored conversations cannot be read: "
                "call register_item_forms, as importing durable_agent_host does; nothing was changed"
            )
        _loaded.append(_registered[0]())
    return _loaded[0]
