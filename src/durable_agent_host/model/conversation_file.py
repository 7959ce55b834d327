"""Files of a conversation: sent by callers and made by agents, with the location of their bytes."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, IPv6Network
from typing import Final

from agent_framework import Content


@dataclass(frozen=True)
class ServiceFile:
    """A file kept by the model's service.

    Attributes:
        file_id: the service's.
        name: from the service or the caller, or None.
        media_type: likewise.
        location: where the service has it, in a form that only its provider reads.
    """

    file_id: str
    name: str | None
    media_type: str | None = None
    location: Mapping[str, str] = field(default_factory=dict[str, str])


ServiceFilesOf = Callable[[Content], Iterable[ServiceFile]]
"""Returns the files of the model's service in one content."""


def no_files(_content: Content) -> Iterable[ServiceFile]:
    """Return none: for an agent whose service keeps no files."""
    return ()


@dataclass(frozen=True)
class ServedFile:
    """A file downloaded from the model's service.

    Attributes:
        data: its bytes.
        name: from the service, or None.
        media_type: likewise.
    """

    data: bytes
    name: str | None = None
    media_type: str | None = None


@dataclass(frozen=True)
class ConversationFile:
    """A file of a conversation.

    Attributes:
        file_id: for bytes stored here, their SHA-256; otherwise the service's id.
        name: unchecked, or None.
        media_type: unchecked, or None.
        size: bytes, or None when only the service knows.
        role: of its source: ``user``, ``assistant`` or ``tool``.
        turn_id: of its turn; None for an upload that no message has used.
        blob: namespace and name of the blob with its bytes, or None.
        data: the bytes of a small file that is in the conversation itself; or None.
        service: the file of the model's service, or None.
    """

    file_id: str
    name: str | None
    media_type: str | None
    size: int | None
    role: str
    turn_id: str | None = None
    blob: tuple[str, str] | None = None
    data: bytes | None = None
    service: ServiceFile | None = None


_OFFICE = "application/vnd.openxmlformats-officedocument"
_ENDINGS: Final = {
    "image/": "png gif webp bmp heic heif avif tiff jpeg",
    "audio/": "wav ogg flac mpeg",
    "video/": "mp4 webm",
    "text/": "csv html css",
    "application/": "pdf json xml zip yaml",
    "image/jpeg": "jpg",
    "image/svg+xml": "svg",
    "audio/mpeg": "mp3",
    "audio/mp4": "m4a",
    "video/quicktime": "mov",
    "text/plain": "txt log",
    "text/markdown": "md",
    "text/html": "htm",
    "application/yaml": "yml",
    f"{_OFFICE}.wordprocessingml.document": "docx",
    f"{_OFFICE}.spreadsheetml.sheet": "xlsx",
    f"{_OFFICE}.presentationml.presentation": "pptx",
}
"""Media type → endings of names; after a slash the ending is the subtype. Not the machine's table, which differs."""

_BY_ENDING: Final = {
    ending: kind + ending if kind.endswith("/") else kind
    for kind, endings in _ENDINGS.items()
    for ending in endings.split()
}


def media_type_of_name(name: str | None) -> str | None:
    """Return the media type for a name's extension.

    Returns:
        The type, or None when the extension is unknown.
    """
    return _BY_ENDING.get(name.rpartition(".")[2].lower()) if name and "." in name else None


_URL: Final = re.compile(
    r"(?:gs://[^/?#\\\s\x00-\x1f\x7f]+|"
    r"https?://(?:\[(?P<ipv6>[0-9a-f:.]+)\]|(?P<name>[^/?#@:%\[\]\\\s\x00-\x1f\x7f]+))(?::\d*)?)(?:[/?#][^\\\s\x00-\x1f\x7f]*)?",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"\d+|0x[0-9a-f]*")
_UNICAST: Final = IPv6Network("2000::/3")
_PRIVATE_NAMES: Final = (
    *(".localhost", ".local", ".localdomain", ".internal", ".intranet", ".home"),
    *(".home.arpa", ".svc", ".metadata.goog"),
)
"""The last is Google's, of what a machine may know about itself."""
_AZURE: Final = IPv4Address("168.63.129.16")
"""The same, of Azure."""


def is_public_url(url: str) -> bool:
    """Return whether a model's service may be sent to an address: of http, https or gs, in no private network.

    No name is looked up. An address in digits is public in its usual form alone: services read the others differently.
    """
    parts = _URL.fullmatch(url)
    if parts is None:
        return False
    try:
        if parts["ipv6"]:
            address = IPv6Address(parts["ipv6"])
            return address in _UNICAST and address.is_global and address.sixtofour is None
        if parts["name"] is None:
            return True
        name = parts["name"].encode("idna").decode().lower().rstrip(".")
        if _NUMBER.fullmatch(name.rpartition(".")[2]):
            address = IPv4Address(name)
            return address.is_global and address != _AZURE
    except ValueError:
        return False
    return "." in name and not f".{name}".endswith(_PRIVATE_NAMES)
