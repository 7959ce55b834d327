"""Our own object in the ``extensionData`` of upstream's objects."""

from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.codec.wire_types import EXTENSION

_DICT: Final[Any] = dict


def extension_of(holder: Mapping[str, Any]) -> dict[str, Any]:
    """Return our extension.

    Returns:
        The object itself, or an empty one.
    """
    extensions: Any = holder.get("extensionData")
    extension: Any = extensions.get(EXTENSION) if isinstance(extensions, _DICT) else None
    return extension if isinstance(extension, _DICT) else {}


def set_extension(holder: dict[str, Any], extension: dict[str, Any]) -> None:
    """Put our extension beside others' extensions."""
    if "extensionData" not in holder:
        if extension:
            holder["extensionData"] = {EXTENSION: extension}
        return
    found: dict[str, Any] = holder["extensionData"] or {}
    extensions = {name: value for name, value in found.items() if name != EXTENSION}
    if extension:
        extensions[EXTENSION] = extension
    if extensions:
        holder["extensionData"] = extensions
    else:
        del holder["extensionData"]


def with_extension(holder: Mapping[str, Any], extension: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of the holder with a different extension of ours.

    Returns:
        The copy, which shares all but the extension.
    """
    changed_object = dict(holder)
    set_extension(changed_object, extension)
    return changed_object
