"""A caller's message to an agent: a text, or a list of parts, as the contents of a message.

A part is an object with a ``type``. `_PART_FORMATS` lists the types and their fields: our own (text, image, audio,
file), the input parts of OpenAI's Responses API, and the framework's contents as written by its ``to_dict``. Each part
becomes one of three contents: a text, bytes as a data URI, or a reference (a URL, or the id of a file).
"""

import base64
import binascii
import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content, detect_media_type_from_base64

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.strict_json import SURROGATE
from durable_agent_host.errors import RequestError
from durable_agent_host.model.conversation_file import is_public_url, media_type_of_name

MAX_NAME_CHARACTERS: Final = 255
"""Of a file, without folders."""
OCTETS: Final = "application/octet-stream"
"""The media type of unknown bytes."""

_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}/[a-z0-9*][a-z0-9!#$&^_.+-]{0,126}")

MAX_PARTS: Final = 256
"""Maximum parts of one message."""

_MAX_URL_CHARACTERS: Final = 8192
"""Of a URL that a model's service fetches."""
_MAX_FILE_ID_CHARACTERS: Final = 256
_FILE_ID: Final = re.compile(r"(?:[a-z][a-z0-9+.-]*://)?[A-Za-z0-9][\w.:=+@-]*(?:/[A-Za-z0-9][\w.:=+@-]*)*", re.ASCII)
"""What services call files: ``file-abc``, ``files/abc``, and addresses; no step of a path upwards."""
_ESCAPED: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_DETAILS: Final = ("auto", "low", "high", "original")
_MEDIA: Final = {"url": "url", "data": "data", "file_id": "file_id", "media_type": "media_type", "name": "name"}
_FRAMEWORK: Final = {"media_type": "media_type", "name": "name", "additional_properties": "additional_properties"}

_PART_FORMATS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "text": ("text", {"text": "text", "additional_properties": "additional_properties"}),
    "image": ("image", _MEDIA | {"detail": "detail"}),
    "audio": ("audio", _MEDIA),
    "file": ("file", _MEDIA),
    "input_text": ("text", {"text": "text"}),
    "input_image": ("image", {"image_url": "url", "file_id": "file_id", "detail": "detail"}),
    "input_audio": ("audio", {"input_audio": "input_audio"}),
    "input_file": ("file", {"file_url": "url", "file_data": "data", "file_id": "file_id", "filename": "name"}),
    "data": ("file", _FRAMEWORK | {"uri": "url"}),
    "uri": ("file", _FRAMEWORK | {"uri": "url"}),
    "hosted_file": ("file", _FRAMEWORK | {"file_id": "file_id"}),
}
"""Type of a part → its kind, and its fields by our names."""


class MessageInput(NamedTuple):
    """A caller's message.

    Attributes:
        text: all of its text, for lists and logs; empty when it has none.
        contents: the message's contents as stored; empty when it is only a text.
    """

    text: str
    contents: tuple[Mapping[str, Any], ...] = ()


class _Bytes(NamedTuple):
    """Bytes from a part: their base64, and their type from a data URI."""

    base64_text: str
    media_type: str | None


def read_message(message: Any) -> MessageInput:
    """Read a message: a text, or a list of parts.

    Returns:
        The message. A list of one text is the same as the text.

    Raises:
        RequestError: it is something else, or a part is invalid; names the part, counted from 1, and its field.
    """
    if isinstance(message, list):
        return message_from_contents(read_parts(message, "'message'"))
    return MessageInput(checked_text(message))


def read_parts(parts: Any, location: str) -> list[Content]:
    """Read a list of texts, images, audio and files.

    Raises:
        RequestError: a part is invalid; names it, counted from 1, and its field.
    """
    numbered_parts = _number_parts(cast("list[Any]", parts))
    return [_read_part(part, f"part {number} of {location}") for number, part in numbered_parts]


def message_from_contents(contents: Sequence[Content]) -> MessageInput:
    """Return contents as a message."""
    texts = [content.text or "" for content in contents if content.type == "text"]
    if len(texts) == len(contents) == 1:
        return MessageInput(texts[0])
    return MessageInput("\n".join(texts), tuple(cast("Any", encode_content(content)) for content in contents))


def file_content(data: bytes | memoryview, *, name: str | None, media_type: str | None) -> Content:
    """Make the content of an uploaded file."""
    kind = media_type or media_type_of_name(name) or "application/octet-stream"
    return _data(base64.b64encode(data).decode(), kind, name)


def file_reference(file_id: str, name: str | None, media_type: str | None) -> Content:
    """Make the content that refers to a file by its id."""
    return Content("hosted_file", file_id=file_id, name=name, media_type=media_type)


def with_contents(message: MessageInput, new_contents: Sequence[Content]) -> MessageInput:
    """Add contents to a message, after its own."""
    if not new_contents:
        return message
    before = [decode_content(content) for content in message.contents]
    if message.text and not before:
        before = [Content("text", text=message.text)]
    return message_from_contents([*before, *new_contents])


def _number_parts(message: Sequence[Any]) -> list[tuple[int, Any]]:
    if not message:
        raise RequestError("'message' is an empty list: give at least one part")
    if len(message) > MAX_PARTS:
        raise RequestError(f"'message' has {len(message)} parts, and {MAX_PARTS} are allowed: send fewer")
    return list(enumerate(message, 1))


def checked_text(message: Any) -> str:
    """Check a text message.

    Raises:
        RequestError: it is missing, blank, not a text, or has an unpaired surrogate.
    """
    if message is None or message == "":
        raise RequestError('Message is required: send text, or JSON like {"message": "Hello"}')
    if not isinstance(message, str):
        raise RequestError(f"'message' is {json_name(message)}: it must be a string or a list of parts")
    if not message.strip():
        raise RequestError("'message' is blank: write a message for the agent")
    return _without_surrogates(message, "'message'")


def _read_part(part: Any, where: str) -> Content:
    if not isinstance(part, dict):
        raise RequestError(f'{where} is {json_name(part)}: give an object like {{"type": "text", "text": "…"}}')
    part_fields = cast("dict[str, Any]", part)
    part_format = _PART_FORMATS.get(part_fields["type"]) if isinstance(part_fields.get("type"), str) else None
    if part_format is None:
        raise RequestError(f"{where} has the type {part_fields.get('type')!r}: use text, image, audio or file")
    kind, names = part_format
    if unknown := sorted(part_fields.keys() - names.keys() - {"type"}):
        unknown_names = ", ".join(map(repr, unknown))
        raise RequestError(
            f"{where} has no field {unknown_names}: a part of type {part_fields['type']!r} has {', '.join(names)}"
        )
    fields = {names[name]: value for name, value in part_fields.items() if name != "type" and value is not None}
    if fields.pop("additional_properties", None):
        raise RequestError(f"{where} has 'additional_properties': leave them out")
    if kind == "text":
        return Content("text", text=_text_of(fields, where))
    return _read_media(kind, _with_audio(fields, where), where)


def _text_of(fields: Mapping[str, Any], where: str) -> str:
    text = fields.get("text")
    if not isinstance(text, str) or not text.strip():
        raise RequestError(
            f"'text' of {where} is {json_name(text) if not isinstance(text, str) else 'blank'}: write one"
        )
    return _without_surrogates(text, where)


def _with_audio(fields: dict[str, Any], where: str) -> dict[str, Any]:
    """Read OpenAI's audio, which is a nested object."""
    if "input_audio" not in fields:
        return fields
    audio: Any = fields["input_audio"]
    if not isinstance(audio, dict) or cast("dict[str, Any]", audio).keys() != {"data", "format"}:
        raise RequestError(f"'input_audio' of {where} has to be an object with data and format")
    return {"data": audio["data"], "media_type": f"audio/{audio['format']}"}


def _read_media(kind: str, fields: Mapping[str, Any], where: str) -> Content:
    for name, value in fields.items():
        if not isinstance(value, str) or not value:
            raise RequestError(f"{name!r} of {where} is {json_name(value)}: give a text")
        if SURROGATE.search(value):
            raise RequestError(f"{name!r} of {where} has half of a surrogate pair, which is no character")
    sources = [name for name in ("url", "data", "file_id") if name in fields]
    if len(sources) != 1:
        source_names = " and ".join(map(repr, sources)) or "none"
        raise RequestError(f"{where} needs one of 'url', 'data' and 'file_id', and has {source_names}")
    name = check_name(fields["name"], where) if "name" in fields else None
    media_type = check_media_type(fields["media_type"], where) if "media_type" in fields else None
    content = _SOURCES[sources[0]](kind, fields[sources[0]], media_type, name, where)
    if content.media_type is not None and kind != "file" and not content.media_type.startswith(f"{kind}/"):
        raise RequestError(f"{where} is of type {kind!r}, and its media type is {content.media_type!r}: use 'file'")
    if (detail := fields.get("detail")) is not None:
        if detail not in _DETAILS:
            raise RequestError(f"'detail' of {where} is {detail!r}: use {', '.join(_DETAILS)}")
        content.additional_properties["detail"] = detail
    return content


def _by_url(kind: str, url: str, media_type: str | None, name: str | None, where: str) -> Content:
    if url[:5].lower() == "data:":
        return _by_data(kind, url, media_type, name, where)
    if not is_public_url(url) or len(url) > _MAX_URL_CHARACTERS:
        raise RequestError(
            f"'url' of {where} is not a URL that a model's service could read: give one of http, https or gs with at "
            f"most {_MAX_URL_CHARACTERS} characters, of no private host and without a user's name, or send the bytes"
        )
    path = re.split(r"[?#]", url, maxsplit=1)[0]
    probable_type = media_type or media_type_of_name(name) or media_type_of_name(path)
    if kind != "file" and not (probable_type or "").startswith(f"{kind}/"):
        probable_type = media_type or f"{kind}/*"
    return Content("uri", uri=url, media_type=probable_type or "application/octet-stream", name=name)


def _by_data(kind: str, data: str, media_type: str | None, name: str | None, where: str) -> Content:
    part_bytes = _bytes_of(data, where)
    known_type = (
        media_type or part_bytes.media_type or media_type_of_name(name) or _detect_media_type(part_bytes.base64_text)
    )
    if known_type is None and kind != "file":
        raise RequestError(f"{where} has no media type: give 'media_type'")
    return _data(part_bytes.base64_text, known_type or "application/octet-stream", name)


def _by_id(kind: str, file_id: str, media_type: str | None, name: str | None, where: str) -> Content:
    is_id = len(file_id) <= _MAX_FILE_ID_CHARACTERS and _FILE_ID.fullmatch(file_id)
    if not is_id or ("://" in file_id and not is_public_url(file_id)):
        raise RequestError(
            f"'file_id' of {where} is not the id of a file: give the id that the upload returned, or one of the "
            "model's service, of letters, digits and _ . : = + @ - with a letter or digit first"
        )
    known_type = media_type or media_type_of_name(name) or (None if kind == "file" else f"{kind}/*")
    return Content("hosted_file", file_id=file_id, media_type=known_type, name=name)


_SOURCES: Final = {"url": _by_url, "data": _by_data, "file_id": _by_id}


def _bytes_of(data: str, where: str) -> _Bytes:
    """Decode base64, or a data URL of RFC 2397."""
    media_type = None
    if data[:5].lower() == "data:":
        head, comma, data = data[5:].partition(",")
        declared_type, *parameters = head.split(";")
        if not comma:
            raise RequestError(f"the data URL of {where} has no comma: write data:TYPE;base64,DATA")
        media_type = check_media_type(declared_type, where) if declared_type else "text/plain"
        if not parameters or parameters[-1].strip().lower() != "base64":
            plain = _ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), data.encode())
            data = base64.b64encode(plain).decode()
    try:
        plain_bytes = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(
            f"the data of {where} is no base64: encode the bytes as RFC 4648 says, in one line"
        ) from None
    if not plain_bytes:
        raise RequestError(f"the data of {where} is empty: give the bytes")
    return _Bytes(base64.b64encode(plain_bytes).decode(), media_type)


def _detect_media_type(base64_text: str) -> str | None:
    return detect_media_type_from_base64(data_str=base64_text[:1024])


def _data(base64_text: str, media_type: str, name: str | None) -> Content:
    return Content("data", uri=f"data:{media_type};base64,{base64_text}", media_type=media_type, name=name)


def _without_surrogates(text: str, where: str) -> str:
    if SURROGATE.search(text):
        raise RequestError(f"{where} has half of a surrogate pair, which is no character: send whole characters")
    return text


def json_name(value: Any) -> str:
    """Name the type of a JSON value in a sentence."""
    if value is None:
        return "null"
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", int: "a number"}
    return names.get(cast("type[Any]", type(value)), "a number")


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
