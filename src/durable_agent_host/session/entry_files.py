"""The files of stored entries: images, audio and other bytes, and files of the model's service. Pure.

Listing files does not read large contents: each is replaced by its name after a mark, which the caller draws anew for
each list, so that no content of a user, a tool or a model is mistaken for one.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.message import RESPONSE, decode_messages
from durable_agent_host.codec.offloaded_text import Detached, attach, detached_of
from durable_agent_host.errors import CorruptStateError, RequestError
from durable_agent_host.model.conversation_file import ConversationFile, ServiceFile
from durable_agent_host.turn.message_input import file_content

ServiceFilesOf = Callable[[Content], Iterable[ServiceFile]]
"""Returns the files of the model's service in one content."""

_FILE_ID: Final = re.compile(r"[0-9a-f]{64}")
_HOSTED: Final = "hostedFile"
_ANSWERS: Final = "assistant"
_INNER: Final = ("items", "inputs", "outputs", "output", "screenshot")
_NAMES: Final = frozenset({"fileId", "file_id"})


class FileBytes(NamedTuple):
    """A file with its bytes.

    Attributes:
        name: or None.
        media_type: or None.
        data: the bytes.
    """

    name: str | None
    media_type: str | None
    data: bytes


def no_files(_content: Content) -> Iterable[ServiceFile]:
    """Return none: for an agent whose service keeps no files. Guarantee: pure."""
    return ()


def is_stored_id(file_id: str) -> bool:
    """Return whether an id is one of ours: the SHA-256 of the bytes. Guarantee: pure."""
    return _FILE_ID.fullmatch(file_id) is not None


def files_of_entries(
    entries: Iterable[Mapping[str, Any]],
    home: str,
    *,
    mark: str,
    service_files: ServiceFilesOf,
    recorded_from: int | None = None,
) -> list[ConversationFile]:
    """List the files of entries.

    Guarantee: pure; entries that cannot be read have none.

    Args:
        entries: as stored, without their large contents.
        home: of what holds them.
        mark: unguessable base64 characters.
        service_files: of the agent's provider.
        recorded_from: place of the first entry that this host has recorded itself, when service files count only where
            the service named them in an answer; None counts those that callers and tools name, too.

    Returns:
        The files in order; duplicates are listed again.
    """
    found: list[ConversationFile] = []
    for place, entry in enumerate(entries):
        if not _may_have_files(entry):
            continue
        try:
            files = _files_of(entry, home, mark, service_files)
            if recorded_from is not None:
                is_answer = place >= recorded_from and entry.get("$type") == RESPONSE
                files = [one for one in files if one.service is None or (is_answer and one.role == _ANSWERS)]
            found += files
        except CorruptStateError:
            continue  # the conversation's own routes list it
    return found


def named_files(contents: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the ids of stored files that a message refers to. Guarantee: pure.

    Args:
        contents: of the message, as stored.
    """
    ids = [str(content.get("fileId")) for content in contents if content.get("$type") == _HOSTED]
    return [file_id for file_id in ids if is_stored_id(file_id)]


def with_named_files(
    contents: Sequence[Mapping[str, Any]], files: Mapping[str, FileBytes]
) -> tuple[Mapping[str, Any], ...]:
    """Put the bytes of stored files into a message that refers to them.

    Guarantee: pure.

    Args:
        contents: of the message, as stored.
        files: by id.

    Returns:
        The contents. Name and type in the message take precedence; missing ones come from the file.

    Raises:
        RequestError: a file is missing.
    """
    return tuple(_with_bytes(content, files) for content in contents)


def _with_bytes(content: Mapping[str, Any], files: Mapping[str, FileBytes]) -> Mapping[str, Any]:
    (file_id,) = named_files([content]) or [None]
    if file_id is None:
        return content
    if (found := files.get(file_id)) is None:
        raise RequestError(
            f"the message names the file {file_id!r}, which the session does not have (any more): upload it again"
        )
    asked = decode_content(content)
    said = None if (asked.media_type or "").endswith("/*") else asked.media_type
    whole = file_content(found.data, name=asked.name or found.name, media_type=said or found.media_type)
    whole.additional_properties.update(asked.additional_properties)
    return cast("Mapping[str, Any]", encode_content(whole))


def _may_have_files(entry: Mapping[str, Any]) -> bool:
    """Check quickly, before decoding, for what every entry with files contains."""
    if detached_of(entry):
        return True
    waiting: list[Any] = [entry]
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            if value.startswith("data:"):
                return True
        elif isinstance(value, Mapping):
            if not _NAMES.isdisjoint(cast("Mapping[str, Any]", value)):
                return True
            waiting += cast("Mapping[str, Any]", value).values()
        elif isinstance(value, list):
            waiting += cast("list[Any]", value)
    return False


def _files_of(
    entry: Mapping[str, Any], home: str, mark: str, service_files: ServiceFilesOf
) -> Iterator[ConversationFile]:
    listed = {one.name: one for one in detached_of(entry)}
    marked = attach(entry, {name: f"{mark}{name}".encode() for name in listed})
    turn_id = entry.get("correlationId")
    for message in decode_messages([marked]):
        for content in _all_of(message.contents):
            if content.type == "data" and (found := _data_file(content, listed, home, mark)) is not None:
                yield replace(found, role=str(message.role), turn_id=turn_id)
            for one in service_files(content):
                yield ConversationFile(
                    one.file_id, one.name, one.media_type, None, str(message.role), turn_id, service=one
                )


def _all_of(contents: Iterable[Content]) -> Iterator[Content]:
    for content in contents:
        yield content
        for name in _INNER:
            inner: Any = getattr(content, name, None)
            if isinstance(inner, Content):
                inner = [inner]
            if isinstance(inner, list | tuple):
                yield from _all_of(one for one in cast("Iterable[Any]", inner) if isinstance(one, Content))


def _data_file(content: Content, listed: Mapping[str, Detached], home: str, mark: str) -> ConversationFile | None:
    uri = content.uri or ""
    if uri.startswith(mark):  # a data URL that is not plain base64
        return _piece_file(content, listed[uri.removeprefix(mark)], home, is_text=True)
    data = bytes_of_data_url(uri)
    if data is None:
        return None
    if data.startswith(mark.encode()) and (one := listed.get(data.decode("ascii").removeprefix(mark))) is not None:
        return _piece_file(content, one, home)
    name = hashlib.sha256(data).hexdigest()
    return ConversationFile(name, _name_of(content), content.media_type, len(data), "", data=data)


def _piece_file(content: Content, one: Detached, home: str, *, is_text: bool = False) -> ConversationFile:
    size = None if is_text else one.size
    piece = (one.home or home, one.name)
    return ConversationFile(one.name, _name_of(content), content.media_type, size, "", piece=piece, is_text=is_text)


def _name_of(content: Content) -> str | None:
    name = content.name or content.additional_properties.get("filename")
    return name if isinstance(name, str) else None


def bytes_of_data_url(uri: str) -> bytes | None:
    """Decode the bytes of a base64 data URL; None when it is not one. Guarantee: pure."""
    head, comma, encoded = uri.partition(",")
    if not comma or not head.startswith("data:") or not head.endswith(";base64"):
        return None
    try:
        return base64.b64decode(encoded)
    except (binascii.Error, ValueError):
        return None
