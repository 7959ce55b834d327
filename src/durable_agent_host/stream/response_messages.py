"""The messages of a response: texts with their citations and files, as events and answers have them.

Theory of operation. The contents of each of the framework's messages are read in order. A text begins a message, unless
it is another part of the item that is open; a call or reasoning ends it. An image or another file belongs to the open
message. A source without a range is one of the whole message: its range is empty, at the message's end.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.codec.content_fields import bytes_of_data_url
from durable_agent_host.model.conversation_file import ServiceFilesOf, media_type_of_name, no_files
from durable_agent_host.model.provider_item import PART_OF
from durable_agent_host.turn.turn_events import SEPARATOR, CitationWire, MessageFileWire, ResponseMessageWire

FILES: Final = frozenset({"data", "uri", "hosted_file"})
"""Types of contents that are files."""
_IGNORED: Final = frozenset({"usage", "error"})


def response_text(messages: Iterable[Message]) -> str:
    """Return the text of a response: that of its messages, with a blank line between two."""
    return SEPARATOR.join(message["text"] for message in response_messages(messages, no_files))


def response_messages(messages: Iterable[Message], service_files: ServiceFilesOf) -> list[ResponseMessageWire]:
    """Return the messages of a response; those of the user, in the middle of a turn, are not among them."""
    return [
        response_message
        for message in messages
        if message.role != "user"
        for response_message in _read_message(message, service_files)
    ]


def _read_message(message: Message, service_files: ServiceFilesOf) -> list[ResponseMessageWire]:
    found: list[ResponseMessageWire] = []
    open_message: ResponseMessageWire | None = None
    for content in message.contents:
        if content.type == "text" and not content.text:
            if content.annotations and found:
                _add(found[-1], content, service_files)
        elif content.type == "text" or content.type in FILES:
            is_part = content.type != "text" or PART_OF in content.additional_properties
            if open_message is None or (open_message["text"] and not is_part):
                open_message = ResponseMessageWire(text="", citations=[], files=[])
                if message.author_name:
                    open_message["author"] = message.author_name
                found.append(open_message)
            _add(open_message, content, service_files)
        elif content.type not in _IGNORED:
            open_message = None
    return found


def _add(message: ResponseMessageWire, content: Content, service_files: ServiceFilesOf) -> None:
    text = content.text or "" if content.type == "text" else ""
    start = len(message["text"])
    message["text"] += text
    for annotation in content.annotations or ():
        message["citations"] += _citations(cast("Mapping[str, Any]", annotation), start, len(message["text"]))
    message["files"] += [file for file in files_of(content, service_files) if file not in message["files"]]


def _citations(annotation: Mapping[str, Any], start: int, end: int) -> Iterator[CitationWire]:
    """Yield a citation for each range of an annotation, or one at the end of its text."""
    source = {"title": annotation.get("title"), "url": annotation.get("url"), "file_id": annotation.get("file_id")}
    if source["file_id"] and "://" not in str(source["url"]):  # the framework has the file's name there
        source |= {"title": source["title"] or source["url"], "url": None}
    source["quote"] = annotation.get("snippet")
    fields = {name: value for name, value in source.items() if value}
    regions = cast("Sequence[Mapping[str, Any]]", annotation.get("annotated_regions") or ())
    ranges = [(start + first, start + last) for region in regions for first, last in _range(region, end - start)]
    for citation_start, citation_end in ranges or [(end, end)]:
        yield cast("CitationWire", {"start": citation_start, "end": citation_end, **fields})


def _range(region: Mapping[str, Any], size: int) -> list[tuple[int, int]]:
    first: Any = region.get("start_index")
    last: Any = region.get("end_index")
    is_valid = isinstance(first, int) and isinstance(last, int) and 0 <= first <= last <= size
    return [(first, last)] if is_valid else []


def files_of(content: Content, service_files: ServiceFilesOf) -> list[MessageFileWire]:
    """List the files in a content and its outputs, and those of the service to which it refers.

    Returns:
        ``id``, ``name`` and ``media_type`` of each; a file elsewhere on the web has its ``file_url``, and no id.
    """
    files: list[MessageFileWire] = [
        {"id": file.file_id, "name": file.name, "media_type": file.media_type or media_type_of_name(file.name)}
        for file in service_files(content)
    ]
    for part in (content, *_outputs(content)):
        data = bytes_of_data_url(part.uri or "") if part.type == "data" else None
        name: Any = part.name or part.additional_properties.get("filename")
        if data is not None:
            files.append({"id": hashlib.sha256(data).hexdigest(), "name": name, "media_type": part.media_type})
        elif part.type == "uri":
            files.append({"id": None, "name": name, "media_type": part.media_type, "file_url": part.uri or ""})
    return files


def _outputs(content: Content) -> list[Content]:
    values: Any = content.outputs if content.outputs is not None else content.output
    outputs = cast("list[Any]", values) if isinstance(values, list) else [values]
    return [output for output in outputs if isinstance(output, Content)]
