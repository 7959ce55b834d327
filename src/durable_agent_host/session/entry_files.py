"""The files of stored entries: images, audio and other bytes, and files of the model's service.

Listing files does not read large contents: each is replaced by its name after a mark, which the caller draws anew for
each list, so that no content of a user, a tool or a model is mistaken for one.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, cast

from agent_framework import Content

from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.codec.content_fields import bytes_of_data_url
from durable_agent_host.codec.message import RESPONSE, decode_messages
from durable_agent_host.codec.offloaded_text import OffloadedText, get_offloaded_texts, restore
from durable_agent_host.errors import CorruptStateError, RequestError
from durable_agent_host.model.conversation_file import ConversationFile, ServiceFilesOf, is_public_url
from durable_agent_host.turn.message_input import file_content

_FILE_ID: Final = re.compile(r"[0-9a-f]{64}")
_HOSTED_FILE: Final = "hostedFile"
_LINKS: Final = ("data", "uri")
_MODEL_ROLE: Final = "assistant"
_INNER: Final = ("items", "inputs", "outputs", "output", "screenshot")


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


def is_stored_id(file_id: str) -> bool:
    """Return whether an id is one of ours: the SHA-256 of the bytes."""
    return _FILE_ID.fullmatch(file_id) is not None


def files_of_entries(
    entries: Iterable[Mapping[str, Any]],
    namespace: str,
    *,
    mark: str,
    service_files: ServiceFilesOf,
    is_response_files_only: bool = False,
) -> list[ConversationFile]:
    """List the files of entries.

    Returns:
        The files in order; duplicates are listed again.
    """
    all_files: list[ConversationFile] = []
    for entry in entries:
        try:
            files = _files_of(entry, namespace, mark, service_files)
            if is_response_files_only:
                is_answer = entry.get("$type") == RESPONSE
                files = [file for file in files if file.service is None or (is_answer and file.role == _MODEL_ROLE)]
            all_files += files
        except CorruptStateError:
            continue  # the conversation's own routes list it
    return all_files


def named_files(contents: Sequence[Mapping[str, Any]]) -> list[str]:
    """List the ids of stored files that a message refers to."""
    ids = [str(content.get("fileId")) for content in contents if content.get("$type") == _HOSTED_FILE]
    return [file_id for file_id in ids if is_stored_id(file_id)]


def with_named_files(
    contents: Sequence[Mapping[str, Any]], files: Mapping[str, FileBytes]
) -> tuple[Mapping[str, Any], ...]:
    """Put the bytes of stored files into a message that refers to them.

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
    if (file := files.get(file_id)) is None:
        raise RequestError(
            f"the message names the file {file_id!r}, which the session does not have (any more): upload it again"
        )
    message_content = decode_content(content)
    media_type = None if (message_content.media_type or "").endswith("/*") else message_content.media_type
    full_content = file_content(
        file.data, name=message_content.name or file.name, media_type=media_type or file.media_type
    )
    full_content.additional_properties.update(message_content.additional_properties)
    return cast("Mapping[str, Any]", encode_content(full_content))


def _files_of(
    entry: Mapping[str, Any], namespace: str, mark: str, service_files: ServiceFilesOf
) -> Iterator[ConversationFile]:
    texts_by_name = {text.name: text for text in get_offloaded_texts(entry)}
    marked_entry = restore(entry, {name: f"{mark}{name}".encode() for name in texts_by_name})
    turn_id = entry.get("correlationId")
    for message in decode_messages([marked_entry]):
        for content in _all_of(message.contents):
            if content.type == "data" and (found := _data_file(content, texts_by_name, namespace, mark)) is not None:
                yield replace(found, role=str(message.role), turn_id=turn_id)
            for file in service_files(content):
                yield ConversationFile(
                    file.file_id, file.name, file.media_type, None, str(message.role), turn_id, service=file
                )


def find_private_url(entry: Mapping[str, Any]) -> str | None:
    """Find the address of a file that is neither public nor a data URL, so that no service should be sent to it."""
    for message in decode_messages([entry]):
        for content in _all_of(message.contents):
            url = (content.uri if content.type in _LINKS else content.file_id) or ""
            is_address = content.type in _LINKS or "://" in url
            if url and is_address and url[:5].lower() != "data:" and not is_public_url(url):
                return url
    return None


def _all_of(contents: Iterable[Content]) -> Iterator[Content]:
    for content in contents:
        yield content
        for name in _INNER:
            inner: Any = getattr(content, name, None)
            if isinstance(inner, Content):
                inner = [inner]
            if isinstance(inner, list | tuple):
                yield from _all_of(
                    inner_content
                    for inner_content in cast("Iterable[Any]", inner)
                    if isinstance(inner_content, Content)
                )


def _data_file(
    content: Content, texts_by_name: Mapping[str, OffloadedText], namespace: str, mark: str
) -> ConversationFile | None:
    data = bytes_of_data_url(content.uri or "")
    if data is None:
        return None
    if (
        data.startswith(mark.encode())
        and (text := texts_by_name.get(data.decode("ascii").removeprefix(mark))) is not None
    ):
        return ConversationFile(
            text.name, _name_of(content), content.media_type, text.size, "", blob=(namespace, text.name)
        )
    name = hashlib.sha256(data).hexdigest()
    return ConversationFile(name, _name_of(content), content.media_type, len(data), "", data=data)


def _name_of(content: Content) -> str | None:
    name = content.name or content.additional_properties.get("filename")
    return name if isinstance(name, str) else None
