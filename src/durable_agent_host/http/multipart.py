"""Bodies of type ``multipart/form-data``, read strictly. Pure.

The body is split without copying: parts are views of it. Accepts what browsers, curl and the usual libraries send;
refuses everything else, naming the rule that it breaks. Source: RFC 7578, and RFC 2046, section 5.1.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from durable_agent_host.errors import RequestError

MAX_FORM_PARTS: Final = 300
"""Fields and files of one body."""
MAX_PART_HEADER_BYTES: Final = 8192

_BOUNDARY: Final = re.compile(r'(?:^|;)\s*boundary=(?:"([^"\\]{1,70})"|([^\s;"]{1,70}))\s*(?=;|$)', re.IGNORECASE)
_BOUNDARY_CHARACTERS: Final = re.compile(r"[0-9A-Za-z'()+_,\-./:=? ]*[0-9A-Za-z'()+_,\-./:=?]")
_END: Final = r"(?=\s*(?:;|$))"
_PARAMETER: Final = re.compile(rf';\s*([A-Za-z0-9*_-]+)=(?:"((?:[^"\\]|\\.)*)"{_END}|"([^"]*)"{_END}|([^\s;"]*))\s*')
"""Quoted text with escapes, as curl writes it; otherwise text ending in a backslash, as browsers write it."""
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_PLAIN_ENCODINGS: Final = frozenset({"", "7bit", "8bit", "binary"})


class FormPart(NamedTuple):
    """One part of a form.

    Attributes:
        name: of the field.
        file_name: as sent, unchecked; None when the part is not a file.
        content_type: of the part, in full; empty when it has none.
        data: the bytes, a view of the body.
    """

    name: str
    file_name: str | None
    content_type: str
    data: memoryview


def parse_form(body: bytes, content_type: str) -> list[FormPart]:
    """Split a form into its parts.

    Guarantee: pure; the parts are views of the body.

    Args:
        body: the whole body.
        content_type: the request's, with its boundary.

    Returns:
        The parts in order.

    Raises:
        RequestError: it is not a form, or has too many parts or too long headers; the message says why.
    """
    delimiter = b"--" + _boundary_of(content_type)
    parts: list[FormPart] = []
    for head, data in _slices(body, delimiter):
        if len(parts) == MAX_FORM_PARTS:
            raise RequestError(f"the form has more than {MAX_FORM_PARTS} parts: send fewer")
        parts.append(_read_part(head, data))
    if not parts:
        raise RequestError("the form has no parts: send a field 'message', or a file")
    return parts


def _boundary_of(content_type: str) -> bytes:
    found = _BOUNDARY.findall(content_type)
    boundary = (found[0][0] or found[0][1]) if len(found) == 1 else ""
    if not _BOUNDARY_CHARACTERS.fullmatch(boundary):
        raise RequestError(
            "the Content-Type multipart/form-data needs one boundary of 1 to 70 characters: "
            "let your HTTP library write the header, and do not set it yourself"
        )
    return boundary.encode("ascii")


def _slices(body: bytes, delimiter: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Find the parts between the delimiters; yields each part's header bytes and data."""
    view = memoryview(body)
    place = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if place == 1 or not body.startswith(delimiter, place):
        raise RequestError("the form does not begin with its boundary: the body is not what its Content-Type says")
    while True:
        place += len(delimiter)
        if body.startswith(b"--", place):
            return
        line_end = body.find(b"\r\n", place, place + 256)
        if line_end < 0 or body[place:line_end].strip(b" \t"):
            raise RequestError("the form has a boundary that does not end its line with CRLF")
        head_begin = line_end + 2
        if body.startswith(b"\r\n", head_begin):
            raise RequestError("the form has a part without headers: each needs Content-Disposition")
        head_end = body.find(b"\r\n\r\n", head_begin, head_begin + MAX_PART_HEADER_BYTES)
        if head_end < 0:
            raise RequestError(f"the form has a part whose headers do not end within {MAX_PART_HEADER_BYTES} bytes")
        data_end = body.find(b"\r\n" + delimiter, head_end + 2)
        if data_end < 0:
            raise RequestError("the form is cut off: its last boundary is missing")
        yield body[head_begin:head_end], view[min(head_end + 4, data_end) : data_end]
        place = data_end + 2


def _read_part(head: bytes, data: memoryview) -> FormPart:
    headers = _headers_of(head)
    kind, _, _ = headers.get("content-disposition", "").partition(";")
    if kind.strip().lower() != "form-data":
        raise RequestError("the form has a part without 'Content-Disposition: form-data'")
    if headers.get("content-transfer-encoding", "").strip().lower() not in _PLAIN_ENCODINGS:
        raise RequestError("the form has a part with a Content-Transfer-Encoding: send the bytes as they are")
    parameters = _parameters_of(headers["content-disposition"])
    if "name" not in parameters:
        raise RequestError("the form has a part without a name")
    return FormPart(parameters["name"], parameters.get("filename"), headers.get("content-type", ""), data)


def _headers_of(head: bytes) -> dict[str, str]:
    try:
        lines = head.decode("utf-8").split("\r\n")
    except UnicodeDecodeError:
        raise RequestError("the form has headers that are not UTF-8") from None
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not _HEADER_NAME.fullmatch(name) or "\n" in value or "\r" in value or "\0" in value:
            raise RequestError("the form has a part with a line that is no header")
        if name.lower() in headers:
            raise RequestError(f"the form has a part with the header {name} twice")
        headers[name.lower()] = value.strip()
    return headers


def _parameters_of(disposition: str) -> dict[str, str]:
    """Read the parameters of a header; ``filename*`` is ignored, as RFC 7578 forbids it."""
    rest = disposition[disposition.index(";") :] if ";" in disposition else ""
    parameters: dict[str, str] = {}
    place = 0
    while place < len(rest):
        found = _PARAMETER.match(rest, place)
        if found is None or found[1].lower() in parameters:
            raise RequestError("the form has a part whose Content-Disposition cannot be read")
        quoted = re.sub(r'\\(["\\])', r"\1", found[2]) if found[2] is not None else found[3] or found[4] or ""
        parameters[found[1].lower()] = quoted.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
        place = found.end()
    return parameters
