"""Names and media types of files, from callers and for headers."""

import re
import unicodedata
from typing import Final

from durable_agent_host.errors import RequestError

MAX_NAME_CHARACTERS: Final = 255
"""Of a file, without folders."""
OCTETS: Final = "application/octet-stream"
"""The media type of unknown bytes."""

_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9*][a-z0-9!#$&^_.+-]{0,126}")
_INLINE_TYPES: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain", "application/json"}
)
_IN_HEADERS: Final = re.compile(r"[^A-Za-z0-9._ ()+-]")


def check_media_type(media_type: str, where: str) -> str:
    """Check a media type, and remove its parameters.

    Returns:
        Type and subtype in lower case.

    Raises:
        RequestError: it is not a media type.
    """
    bare = media_type.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(bare):
        raise RequestError(f"the media type of {where} is {media_type[:100]!r}: write it like image/png")
    return bare


def check_name(raw_name: str, where: str) -> str:
    """Check the name of a file, and remove folders.

    Raises:
        RequestError: it is empty or too long, or has an unprintable character.
    """
    name = raw_name.replace("\\", "/").rpartition("/")[2].strip()
    if not name.strip(". "):
        raise RequestError(f"the name of {where} is {raw_name[:100]!r}: give it a name with a letter or digit")
    if len(name) > MAX_NAME_CHARACTERS:
        raise RequestError(f"the name of {where} has {len(name)} characters: {MAX_NAME_CHARACTERS} are allowed")
    for character in name:
        if unicodedata.category(character)[0] == "C":
            raise RequestError(f"the name of {where} has the character {character!r}: use characters that are printed")
    return name


def is_inline_displayable(media_type: str) -> bool:
    """Return whether a browser may show bytes of a type inline, because it cannot execute them.

    Returns:
        True for the images and texts of a short list; HTML, SVG and unknown types are downloads.
    """
    return media_type in _INLINE_TYPES


def disposition(name: str, media_type: str) -> str:
    """Write the header ``Content-Disposition`` of a file.

    Returns:
        The value, in ASCII, with nothing in it that could end it. Source: RFC 6266, appendix D; RFC 8187.
    """
    plain = _IN_HEADERS.sub("_", name)[:MAX_NAME_CHARACTERS]
    kind = "inline" if is_inline_displayable(media_type) else "attachment"
    value = f'{kind}; filename="{plain}"'
    if plain == name:
        return value
    octets = name.encode("utf-8", "replace")
    escaped_name = "".join(
        chr(octet) if chr(octet).isascii() and chr(octet).isalnum() else f"%{octet:02X}" for octet in octets
    )
    return f"{value}; filename*=UTF-8''{escaped_name}"
