"""Forms with files: what usual libraries send is read, and what breaks the rules is refused."""

import pytest
import requests
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.errors import RequestError
from durable_agent_host.http.body_parsing import MAX_FORM_PARTS, parse_form, read_run_fields

TYPE = "multipart/form-data; boundary=B"


def form(*parts: tuple[str, bytes], boundary: bytes = b"B") -> bytes:
    """A body of parts, each with its header lines and data."""
    body = b"".join(b"--%b\r\n%b\r\n\r\n%b\r\n" % (boundary, head.encode(), data) for head, data in parts)
    return body + b"--%b--\r\n" % boundary


def field(name, data=b"x", more=""):
    """A field of a form."""
    return f'Content-Disposition: form-data; name="{name}"{more}', data


@given(
    st.lists(st.tuples(st.text(st.characters(exclude_categories=["Cc", "Cs"])), st.binary()), min_size=1, max_size=5)
)
def test_what_a_library_sends_is_read(files):
    """Names and bytes come out as `requests` sent them, whatever they hold."""
    sent = requests.Request("POST", "http://a", files=[("file", (name, data)) for name, data in files]).prepare()
    assert isinstance(sent.body, bytes)
    parts = parse_form(sent.body, sent.headers["Content-Type"])
    assert [bytes(part.data) for part in parts] == [data for _, data in files]


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (form(field("a")), "multipart/form-data"),
        (form(field("a")), "multipart/form-data; boundary="),
        (form(field("a")), "multipart/form-data; boundary=C"),
        (form(field("a")), "multipart/form-data; boundary=B; boundary=B"),
        (form(field("a")), 'multipart/form-data; boundary="B'),
        (form(field("a")), "multipart/form-data; boundary=" + "B" * 71),
        (b"", TYPE),
        (b"--B--\r\n", TYPE),
        (b"--B\r\n", TYPE),
        (form(field("a")).removesuffix(b"--B--\r\n"), TYPE),
        (form(field("a")).replace(b"\r\n", b"\n"), TYPE),
        (b"preamble" + form(field("a")), TYPE),
        (b"--B\r\n\r\nx\r\n--B--", TYPE),
        (form(("Content-Type: text/plain", b"x")), TYPE),
        (form(("Content-Disposition: attachment; name=a", b"x")), TYPE),
        (form(("Content-Disposition: form-data", b"x")), TYPE),
        (form(("Content-Disposition: form-data; name=a; name=b", b"x")), TYPE),
        (form(('Content-Disposition: form-data; name="a', b"x")), TYPE),
        (form(("no header", b"x")), TYPE),
        (form(("A\x00: b", b"x")), TYPE),
        (form((field("a")[0] + "\r\nContent-Disposition: form-data; name=b", b"x")), TYPE),
        (form((field("a")[0] + "\r\nX: " + "y" * 9000, b"x")), TYPE),
        (form((field("a")[0] + "\r\nContent-Transfer-Encoding: base64", b"x")), TYPE),
        (form(*[field(str(n)) for n in range(MAX_FORM_PARTS + 1)]), TYPE),
        (form(field("a")).replace(b"name", b"\xff\xfe"), TYPE),
    ],
)
def test_an_invalid_form_is_rejected(body, content_type):
    """A form that breaks a rule is the caller's mistake; nothing of it is used."""
    with pytest.raises(RequestError):
        parse_form(body, content_type)


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_rejected(data):
    """Whatever stands between the boundaries, it is read or refused, and never fails otherwise."""
    for body in (data, b"--B\r\n" + data + b"\r\n--B--", form(field("a", data))):
        try:
            parse_form(body, TYPE)
        except RequestError:
            continue


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
