"""Our own object in the ``extensionData`` of what upstream defines. Pure but for what `set_extension` is given."""

from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.codec.wire import EXTENSION

_DICT: Final[Any] = dict


def extension_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Find our extension. Guarantee: pure.

    Args:
        holder: an entry, a message or a content.

    Returns:
        The object itself, or an empty one.
    """
    extensions: Any = holder.get("extensionData")
    ours: Any = extensions.get(EXTENSION) if isinstance(extensions, _DICT) else None
    return ours if isinstance(ours, _DICT) else {}


def take_extension(holder: dict[str, Any]) -> dict[str, Any]:
    """Remove our extension from its holder, and the wrapper that this leaves empty.

    Args:
        holder: is changed, unless our extension is missing or empty.

    Returns:
        Our extension, or an empty object.
    """
    if ours := extension_of(holder):
        set_extension(holder, {})
    return ours


def set_extension(holder: dict[str, Any], ours: dict[str, Any]) -> None:
    """Put our extension beside those of others.

    Args:
        holder: is changed; its ``extensionData`` is replaced, not modified.
        ours: our extension; an empty one removes it.
    """
    if "extensionData" not in holder:
        if ours:
            holder["extensionData"] = {EXTENSION: ours}
        return
    found: dict[str, Any] = holder["extensionData"] or {}
    extensions = {name: value for name, value in found.items() if name != EXTENSION}
    if ours:
        extensions[EXTENSION] = ours
    if extensions:
        holder["extensionData"] = extensions
    else:
        del holder["extensionData"]


def with_extension(holder: Mapping[str, Any], ours: dict[str, Any]) -> dict[str, Any]:
    """Give a copy of the holder with another extension of ours.

    Guarantee: pure.

    Args:
        holder: is not changed.
        ours: our extension; an empty one leaves it out.

    Returns:
        The copy, which shares all but the extension.
    """
    changed = dict(holder)
    set_extension(changed, ours)
    return changed
