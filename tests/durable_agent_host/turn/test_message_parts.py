"""Messages of several parts, in the forms that callers know."""

import pytest
from agent_framework import Content

from durable_agent_host.codec.content import decode_content
from durable_agent_host.errors import RequestError
from durable_agent_host.turn.message_input import read_message

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG = f"data:image/png;base64,{PIXEL}"
WEBP = PNG.replace("png", "webp")
WAV = "data:audio/wav;base64,YWJj"
OCTETS = "application/octet-stream"
PRIVATE_URLS = [
    *(
        "ftp://x.org/a",
        "s3://bucket/a",
        "http:127.0.0.1",
        "http:///x.org",
        "http://user@x.org/a",
        "javascript:alert(1)",
    ),
    *("http://localhost:80/", "http://LOCALHOST./", "http://a.localhost", "http://redis:6379/", "http://a.svc/"),
    *("http://metadata.google.internal/", "http://metadata.goog/", "http://a.local/", "http://lo\u00adcalhost/"),
    *("http://127.0.0.1/", "http://127.1/", "http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/"),
    *("http://10.0.0.1/", "http://169.254.169.254/", "http://168.63.129.16/", "http://0/", "http://127.0.0.1./"),
    *("http://\uff11\uff12\uff17.0.0.1/", "http://127\u30020\u30020\u30021/", "http://%31%32%37.0.0.1/"),
    *("http://[::1]/", "http://[::ffff:127.0.0.1]/", "http://[::ffff:a9fe:a9fe]/", "http://[64:ff9b::7f00:1]/"),
    *("http://[fd00:ec2::254]/", "http://[2002:7f00:1::]/", "http://[fe80::1%25eth0]/", "http://[::1"),
    *("http://x.org\\@127.0.0.1/", "http://x.org\t/", "http:\\\\127.0.0.1/"),
]
"""Addresses that no service should be sent to, in spellings that some programs read as a private host."""
PUBLIC_URLS = [
    *("https://x.org:8080/a?b=c@d#e", "HTTPS://X.org.", "https://m\u00fcnchen.de/a.png", "https://internal.x.org/"),
    *("https://8.8.8.8/", "https://[2606:4700::1111]/a", "gs://bucket/a"),
]
PDF_URL = "https://x.org/a.pdf?b=c.png"


def only_content(part):
    """The content of a message that has one part."""
    message = read_message([{"type": "text", "text": "look"}, part])
    assert message.text == "look"
    return decode_content(message.contents[1])


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


@pytest.mark.parametrize("url", PUBLIC_URLS)
def test_a_public_url_is_sent_as_it_is(url):
    """Names are not looked up, and nothing is changed."""
    assert only_content({"type": "file", "url": url}).uri == url


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
        ({"type": "image", "url": "https://a.org", "detail": "most"}, "'detail'"),
        ({"type": "file", "data": "YWJj", "name": "a\nb"}, "name"),
        ({"type": "file", "data": "YWJj", "name": "../.."}, "name"),
        ({"type": "file", "data": "YWJj", "name": "a" * 300}, "300 characters"),
        *(
            ({"type": "file", "file_id": part}, "not the id of a file")
            for part in (
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
        *(({"type": "file", "file_id": url}, "not the id of a file") for url in PRIVATE_URLS if "://" in url),
        *(({"type": "image", "url": url}, "no private host") for url in PRIVATE_URLS),
        ({"type": "input_audio", "input_audio": "YWJj"}, "data and format"),
        ({"type": "hosted_file", "file_id": "a", "additional_properties": {"a": 1}}, "additional_properties"),
    ],
)
def test_a_part_that_cannot_be_used_is_named(part, reason):
    """The error says which part, and what is wrong with it."""
    with pytest.raises(RequestError, match=reason) as error:
        read_message([{"type": "text", "text": "look"}, part])
    assert "part 2 of 'message'" in str(error.value)
