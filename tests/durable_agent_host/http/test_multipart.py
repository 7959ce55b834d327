"""Forms with files: what usual libraries send is read, and what breaks the rules is refused."""

from contextlib import suppress

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.errors import RequestError
from durable_agent_host.http.parse import MAX_FORM_PARTS, read_files, read_run_fields

TYPE = "multipart/form-data; boundary=B"


FILE = ('Content-Disposition: form-data; name="f"; filename="a.txt"', b"x")


def form(*parts: tuple[str, bytes], boundary: bytes = b"B") -> bytes:
    """A body of parts, each with its header lines and data."""
    body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head.encode(), data) for head, data in parts)
    return body + b"--%b--\r\n" % boundary


def field(name, data=b"x", more=""):
    """A field of a form."""
    return f'Content-Disposition: form-data; name="{name}"{more}', data


@given(st.lists(st.binary(min_size=1), min_size=1, max_size=5))
def test_what_a_library_sends_is_read(contents):
    """Names and bytes come out as `requests` sent them, whatever the bytes are."""
    sent = requests.Request("POST", "http://a", files=[("file", ('a "ö";.txt', data)) for data in contents]).prepare()
    parsed_files = read_files(sent.body, sent.headers["Content-Type"])
    assert parsed_files == [('a "ö";.txt', "text/plain", data) for data in contents]


def test_names_types_and_fields_of_a_form():
    """Escapes are undone; a browser's file input without a file is none; JSON is known by its type or its name."""
    fields, (file,) = read_run_fields(
        form(
            (field("message")[0] + "\r\nContent-Type: application/json", b'[{"type": "text", "text": "hi"}]'),
            field("options", b'{"temperature": 0}'),
            field("f", b"", '; filename=""'),
            (field("f", more='; filename="C:\\\\a\\"%22ö.pdf"')[0] + "\r\nContent-Type: Application/PDF; x=y", b"x"),
        ),
        TYPE,
    )
    assert fields == {"message": [{"type": "text", "text": "hi"}], "options": {"temperature": 0}}
    assert file == ('a""ö.pdf', "application/pdf", b"x")


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(FILE), "multipart/form-data"),
        (form(FILE), "multipart/form-data; boundary=C"),
        (form(FILE), "multipart/form-data; boundary=" + "B" * 300),
        (b"", TYPE),
        (b"--B\r\n", TYPE),
        (form(FILE).removesuffix(b"--B--\r\n"), TYPE),
        (form(FILE).replace(b"\r\n", b"\n"), TYPE),
        (form(("Content-Type: text/plain", b"x")), TYPE),
        (form(("no header", b"x")), TYPE),
        (form((FILE[0] + "\r\nX: " + "y" * 9000, b"x")), TYPE),
        (form(*[FILE] * (MAX_FORM_PARTS + 1)), TYPE),
        (form(FILE).replace(b"name", b"\xff\xfe"), TYPE),
    ],
)
def test_an_invalid_form_is_rejected(body, content_type):
    """A form that breaks a rule is the caller's mistake; nothing of it is used."""
    with pytest.raises(RequestError):
        read_files(body, content_type)


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_rejected(data):
    """Whatever stands between the boundaries, it is read or refused, and never fails otherwise."""
    for body in (b"--B\r\n" + data + b"\r\n--B--", form(("Content-Disposition: " + data.decode("latin-1"), b"x"))):
        with suppress(RequestError):
            read_files(body, TYPE)


@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ([field("message"), field("message")], "twice"),
        ([field("message"), field("attachment")], "'attachment'"),
        ([field("message", b"\xff")], "UTF-8"),
        ([(field("message")[0] + "\r\nContent-Type: text/plain; charset=utf-16", b"\xff\xfeh\x00")], "UTF-8"),
        ([field("options", b"{")], "not valid JSON"),
        ([field("f", b"", '; filename="a.pdf"')], "empty"),
        ([field("f", b"x", '; filename="a%0D%0Ab.pdf"')], "name"),
        ([(field("f", more="; filename=a")[0] + "\r\nContent-Type: nonsense", b"x")], "media type"),
    ],
)
def test_fields_that_cannot_be_used(parts, reason):
    """Each mistake is named."""
    with pytest.raises(RequestError, match=reason):
        read_run_fields(form(*parts), TYPE)
