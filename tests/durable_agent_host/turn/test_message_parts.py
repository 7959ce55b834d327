"""Messages of several parts, in the forms that callers know."""

import base64

import pytest
from agent_framework import Content
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.content import decode_content
from durable_agent_host.errors import RequestError
from durable_agent_host.turn.message_input import MAX_PARTS, MessageInput, file_content, read_message, with_contents

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG = f"data:image/png;base64,{PIXEL}"
WEBP = PNG.replace("png", "webp")
WAV = "data:audio/wav;base64,YWJj"
OCTETS = "application/octet-stream"
PDF_URL = "https://x.org/a.pdf?b=c.png"


def only_content(part):
    """The content of a message that has one part."""
    said = read_message([{"type": "text", "text": "look"}, part])
    assert said.text == "look"
    return decode_content(said.contents[1])


@pytest.mark.parametrize(
    ("part", "kind", "uri", "media_type"),
    [
        ({"type": "image", "url": "https://example.org/a.png"}, "uri", "https://example.org/a.png", "image/png"),
        ({"type": "image", "url": "https://example.org/a"}, "uri", "https://example.org/a", "image/*"),
        ({"type": "image", "url": PNG}, "data", PNG, "image/png"),
        ({"type": "image", "data": PIXEL}, "data", PNG, "image/png"),
        (
            {"type": "image", "data": PIXEL, "media_type": "image/webp"},
            "data",
            WEBP,
            "image/webp",
        ),
        ({"type": "input_image", "image_url": PNG}, "data", PNG, "image/png"),
        ({"type": "data", "uri": PNG, "media_type": "image/png"}, "data", PNG, "image/png"),
        (
            {"type": "audio", "data": "YWJj", "media_type": "audio/wav"},
            "data",
            WAV,
            "audio/wav",
        ),
        (
            {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
            "data",
            WAV,
            "audio/wav",
        ),
        (
            {"type": "file", "url": PDF_URL},
            "uri",
            PDF_URL,
            "application/pdf",
        ),
        (
            {"type": "file", "data": "YWJj"},
            "data",
            f"data:{OCTETS};base64,YWJj",
            OCTETS,
        ),
        ({"type": "file", "data": "YWJj", "name": "a.csv"}, "data", "data:text/csv;base64,YWJj", "text/csv"),
        (
            {"type": "input_file", "file_data": "data:application/pdf;base64,YWJj", "filename": "a.pdf"},
            "data",
            "data:application/pdf;base64,YWJj",
            "application/pdf",
        ),
        ({"type": "file", "url": "data:,a%20b"}, "data", "data:text/plain;base64,YSBi", "text/plain"),
        ({"type": "file", "url": "data:text/html;charset=x,%3Cp"}, "data", "data:text/html;base64,PHA=", "text/html"),
        ({"type": "uri", "uri": "gs://b/a.mp4", "media_type": "video/mp4"}, "uri", "gs://b/a.mp4", "video/mp4"),
    ],
)
def test_a_part_becomes_a_content(part, kind, uri, media_type):
    """Our own parts, those of the Responses API and the framework's contents mean the same."""
    content = only_content(part)
    assert (content.type, content.uri, content.media_type) == (kind, uri, media_type)


@pytest.mark.parametrize(
    "content",
    [
        Content.from_uri("https://x.org/a.png", media_type="image/png"),
        Content.from_data(b"abc", "application/pdf"),
        Content.from_hosted_file("file-abc", media_type="application/pdf", name="a.pdf"),
    ],
)
def test_the_frameworks_own_dictionaries_are_parts(content):
    """What ``Content.to_dict`` writes is read as the content."""
    read = only_content(content.to_dict())
    assert (read.type, read.text, read.uri, read.file_id, read.media_type, read.name) == (
        *(content.type, content.text, content.uri, content.file_id),
        *(content.media_type, content.name),
    )


def test_a_file_id_is_kept_as_it_is():
    """An id is that of an upload or of the provider; the part says what the file is."""
    content = only_content({"type": "image", "file_id": "file-abc", "detail": "low"})
    assert (content.type, content.file_id, content.media_type) == ("hosted_file", "file-abc", "image/*")
    assert content.additional_properties == {"detail": "low"}


def test_a_list_of_one_text_is_that_text():
    """Several texts are one text with line ends for lists and logs, and stay apart for the model."""
    assert read_message([{"type": "text", "text": "hi"}]) == read_message("hi") == MessageInput("hi")
    said = read_message([{"type": "text", "text": "a"}, {"type": "input_text", "text": "b"}])
    assert (said.text, len(said.contents)) == ("a\nb", 2)


def test_text_that_looks_like_something_else_is_text():
    """Data URLs, parts and references within a text are words."""
    for text in (PNG, '{"type": "image", "url": "x"}', '{"$type": "data"}', "sha256:" + "0" * 64):
        assert read_message(text) == MessageInput(text)
        assert read_message([{"type": "text", "text": text}]) == MessageInput(text)


@pytest.mark.parametrize(
    ("part", "reason"),
    [
        ("hi", "is a text: give an object"),
        ({}, "has the type None"),
        ({"type": ["text"]}, "has the type"),
        ({"type": "video"}, "use text, image, audio or file"),
        ({"type": "text", "text": " "}, "blank"),
        ({"type": "text", "text": 5}, "a number"),
        ({"type": "text", "text": "\ud800"}, "surrogate"),
        ({"type": "text", "text": "a", "uri": "b"}, "no field 'uri'"),
        ({"type": "image"}, "and has none"),
        ({"type": "image", "url": "https://a", "data": "YWJj"}, "'url' and 'data'"),
        ({"type": "image", "url": "a.png"}, "not a URL"),
        ({"type": "image", "url": "file:///etc/passwd"}, "not a URL"),
        ({"type": "image", "url": "https://a b"}, "not a URL"),
        ({"type": "image", "url": "https://a/" + "b" * 9000}, "not a URL"),
        ({"type": "image", "url": {"url": "https://a"}}, "an object"),
        ({"type": "image", "data": "@@"}, "no base64"),
        ({"type": "image", "data": "é"}, "no base64"),
        ({"type": "image", "url": "data:image/png;base64,"}, "empty"),
        ({"type": "image", "url": "data:image/png"}, "no comma"),
        ({"type": "image", "data": "YWJj"}, "give 'media_type'"),
        ({"type": "image", "data": "YWJj", "media_type": "application/pdf"}, "use 'file'"),
        ({"type": "image", "data": "YWJj", "media_type": "a\r\nb: c"}, "media type"),
        ({"type": "image", "url": "https://a", "detail": "most"}, "'detail'"),
        ({"type": "file", "data": "YWJj", "name": "a\nb"}, "name"),
        ({"type": "file", "data": "YWJj", "name": "../.."}, "name"),
        ({"type": "file", "data": "YWJj", "name": "a" * 300}, "300 characters"),
        *(
            ({"type": "file", "file_id": one}, "not the id of a file")
            for one in (
                "a b",
                "..",
                ".",
                "a/..",
                "../a",
                "a//b",
                "/a",
                "a?b",
                "a#b",
                "a%2e",
                "-a",
                "é",
                "a" * 257,
                "a\n",
            )
        ),
        ({"type": "input_audio", "input_audio": "YWJj"}, "data and format"),
        ({"type": "hosted_file", "file_id": "a", "additional_properties": {"a": 1}}, "additional_properties"),
    ],
)
def test_a_part_that_cannot_be_used_is_named(part, reason):
    """The error says which part, and what is wrong with it."""
    with pytest.raises(RequestError, match=reason) as error:
        read_message([{"type": "text", "text": "look"}, part])
    assert "part 2 of 'message'" in str(error.value)


@pytest.mark.parametrize(
    "file_id",
    [
        "file-abc",
        "file_011CNha8iCJcU1wXNR6q4V8w",
        "files/abc-123",
        "assistant-1",
        "cfile_6",
        "https://a.org/v1/files/b",
    ],
)
def test_ids_of_services_are_ids_of_files(file_id):
    """Each service has a form of its own."""
    (content,) = read_message([{"type": "file", "file_id": file_id}]).contents
    assert decode_content(content).file_id == file_id


def test_there_is_a_most_of_parts():
    """A message has parts, and not too many."""
    text = {"type": "text", "text": "a"}
    assert len(read_message([text] * MAX_PARTS).contents) == MAX_PARTS
    for parts in ([], [text] * (MAX_PARTS + 1)):
        with pytest.raises(RequestError):
            read_message(parts)


@given(st.binary(min_size=1), st.text())
def test_bytes_of_files_reach_the_content(data, text):
    """Whatever a file holds, its content holds it, after the text."""
    said = with_contents(MessageInput(text), [file_content(data, name="a.bin", media_type=None)])
    content = decode_content(said.contents[-1])
    assert base64.b64decode(content.uri.partition(",")[2]) == data
    assert (content.name, content.media_type, said.text) == ("a.bin", OCTETS, text)
    assert len(said.contents) == (2 if text else 1)
