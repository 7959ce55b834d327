"""Parse request bodies: text, JSON, or the fields and files of a form."""

import json
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.strict_json import names_python_class, parse_strict
from durable_agent_host.errors import RequestError, RequestTooLargeError
from durable_agent_host.turn.file_names import check_media_type, check_name

# Bodies of type ``multipart/form-data``, read strictly.
#
# The body is split without copying: parts are views of it. Accepts what browsers, curl and the usual libraries send;
# refuses everything else, naming the rule that it breaks. Source: RFC 7578, and RFC 2046, section 5.1.

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
    matches = _BOUNDARY.findall(content_type)
    boundary = (matches[0][0] or matches[0][1]) if len(matches) == 1 else ""
    if not _BOUNDARY_CHARACTERS.fullmatch(boundary):
        raise RequestError(
            "the Content-Type multipart/form-data needs one boundary of 1 to 70 characters: "
            "let your HTTP library write the header, and do not set it yourself"
        )
    return boundary.encode("ascii")


def _slices(body: bytes, delimiter: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Find the parts between the delimiters; yields each part's header bytes and data."""
    view = memoryview(body)
    offset = 0 if body.startswith(delimiter) else body.find(b"\r\n" + delimiter) + 2
    if offset == 1 or not body.startswith(delimiter, offset):
        raise RequestError("the form does not begin with its boundary: the body is not what its Content-Type says")
    while True:
        offset += len(delimiter)
        if body.startswith(b"--", offset):
            return
        line_end = body.find(b"\r\n", offset, offset + 256)
        if line_end < 0 or body[offset:line_end].strip(b" \t"):
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
        offset = data_end + 2


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
    parameters_text = disposition[disposition.index(";") :] if ";" in disposition else ""
    parameters: dict[str, str] = {}
    offset = 0
    while offset < len(parameters_text):
        match = _PARAMETER.match(parameters_text, offset)
        if match is None or match[1].lower() in parameters:
            raise RequestError("the form has a part whose Content-Disposition cannot be read")
        value = re.sub(r'\\(["\\])', r"\1", match[2]) if match[2] is not None else match[3] or match[4] or ""
        parameters[match[1].lower()] = value.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")
        offset = match.end()
    return parameters


FORM: Final = "multipart/form-data"
MAX_REQUEST: Final = "DURABLE_AGENT_HOST_MAX_REQUEST_BYTES"
MAX_UPLOAD: Final = "DURABLE_AGENT_HOST_MAX_UPLOAD_BYTES"
RUN_FIELDS: Final = (
    *("message", "session_id", "thread_id", "role", "response_format", "options"),
    *("enable_tool_calls", "wait_for_response", "policy", "client_tools"),
)
"""The fields of ``run``. Source: upstream's route has the same names, without options and policy."""

_JSON_FIELDS: Final = frozenset({"response_format", "options", "client_tools"})


class BodyLimit(NamedTuple):
    """The largest body of a request.

    Attributes:
        max_bytes: of a body that is not a form; 0 reads none.
        max_form_bytes: of a form with files; 0 treats a form like any other body.
        setting: the setting that raises `max_bytes`; ``DURABLE_AGENT_HOST_MAX_UPLOAD_BYTES`` raises the other.
    """

    max_bytes: int
    max_form_bytes: int = 0
    setting: str = MAX_REQUEST

    def of(self, media_type: str) -> tuple[int, str]:
        """Return the limit for a media type, and the setting that raises it."""
        if self.max_form_bytes and media_type == FORM:
            return self.max_form_bytes, MAX_UPLOAD
        return self.max_bytes, self.setting


class UploadedFile(NamedTuple):
    """A file of a form.

    Attributes:
        name: checked, without folders; None when the sender gave none.
        media_type: checked, without parameters; None when the sender gave none.
        data: the bytes, a view of the body.
    """

    name: str | None
    media_type: str | None
    data: memoryview


def media_type_of(headers: Mapping[str, str]) -> str:
    """Read the bare media type of a request; empty when it has none."""
    content_type = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return content_type.partition(";")[0].strip().lower()


def is_json_type(media_type: str) -> bool:
    """Return whether a bare media type is JSON's."""
    return media_type == "application/json" or media_type.endswith("+json")


def read_run_fields(body: bytes, content_type: str) -> tuple[dict[str, Any], list[UploadedFile]]:
    """Read the body of ``run``.

    Returns:
        The fields, with only their names checked; and the files of a form.

    Raises:
        RequestError: the body cannot be read, or has a field that ``run`` does not have.
    """
    media_type = media_type_of({"content-type": content_type})
    if media_type == FORM:
        return _read_form(body, content_type)
    if not is_json_type(media_type):
        text = text_of(body).strip()
        if not media_type.startswith("text/"):
            _reject_json_as_text(text, content_type)
        return {"message": text}, []
    fields = parse_object(body)
    _reject_unknown_fields(fields)
    return fields, []


def read_files(body: bytes, content_type: str) -> list[UploadedFile]:
    """Read the files of a form that has only files.

    Raises:
        RequestError: the body cannot be read, has no file, or has another field.
    """
    parts = parse_form(body, content_type)
    if fields := sorted({part.name for part in parts if part.file_name is None}):
        raise RequestError(f"the form has the field {fields[0]!r}, but an upload has only files")
    files = [_file_of(part) for part in parts if not _is_no_choice(part)]
    if not files:
        raise RequestError("the form has no file")
    return files


def text_of(body: bytes) -> str:
    """Decode a text, without a byte order mark.

    Raises:
        RequestError: the text is not UTF-8.
    """
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError("the body is not UTF-8 text: send it as UTF-8") from None


def parse_json(body: bytes) -> Any:
    """Parse the JSON of a body.

    Raises:
        RequestError: the body is not JSON, or JSON that cannot be read; the message says which.
    """
    return _json_of(text_of(body), "the body")


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a body; raises as `parse_json` does."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise RequestError('the body is JSON, but not an object: send {"message": "…"}')
    return cast("dict[str, Any]", value)


def reject_python_objects(text: str) -> None:
    """Refuse JSON of which Durable Functions would make an object of a class that the caller names.

    Raises:
        RequestError: it has such an object.
    """
    if names_python_class(text):
        raise RequestError(
            "the body has an object with '__class__', '__module__' and '__data__', which names a class of Python to "
            "Durable Functions: give the fields other names"
        )


def _json_of(text: str, where: str) -> Any:
    reject_python_objects(text)
    try:
        return parse_strict(text)
    except json.JSONDecodeError as error:
        raise RequestError(f"{where} is not valid JSON: {error}") from None
    except RecursionError:
        raise RequestError(f"{where} is JSON that is nested too deeply") from None
    except ValueError:
        reason = "JSON has no NaN and no Infinity, and others have more digits than can be read"
        raise RequestError(f"{where} has a number that cannot be read: {reason}") from None


def _reject_json_as_text(text: str, content_type: str) -> None:
    """Refuse a JSON object that is sent without its content type, and would become the message."""
    if not text.startswith("{"):
        return
    try:
        value: Any = json.loads(text)
    except (ValueError, RecursionError):
        return
    if "message" in value:
        raise RequestError(
            f"the body is a JSON object with 'message', and its content type is {content_type[:80]!r}: send it as "
            "application/json, or as text/plain if the object itself is the message"
        )


def _reject_unknown_fields(names: Mapping[str, Any]) -> None:
    unknown = [name for name in names if name not in RUN_FIELDS]
    if not unknown:
        return
    similar = get_close_matches(unknown[0], RUN_FIELDS, n=1, cutoff=0.6)
    hint = f"did you mean {similar[0]!r}? " if similar else ""
    if unknown[0].lower() in {"attachments", "contents", "content", "files", "images"}:
        hint = "files and images are parts of 'message', a list. "
    unknown_list = ", ".join(repr(name[:60]) for name in unknown[:5])
    raise RequestError(f"the body has {unknown_list}, which run does not take: {hint}It takes {', '.join(RUN_FIELDS)}")


def _read_form(body: bytes, content_type: str) -> tuple[dict[str, Any], list[UploadedFile]]:
    parts = parse_form(body, content_type)
    fields: dict[str, Any] = {}
    for part in parts:
        if part.file_name is not None:
            continue
        if part.name in fields:
            raise RequestError(f"the form has the field {part.name[:60]!r} twice: send it once")
        fields[part.name] = part
    _reject_unknown_fields(fields)
    values = {name: _field_of(part) for name, part in fields.items()}
    return values, [_file_of(part) for part in parts if part.file_name is not None and not _is_no_choice(part)]


def _is_no_choice(part: FormPart) -> bool:
    """Return whether the part is a browser's empty file input."""
    return part.file_name == "" and not part.data


def _field_of(part: FormPart) -> Any:
    try:
        text = bytes(part.data).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"the field {part.name!r} is not UTF-8 text: send it as UTF-8") from None
    if part.name in _JSON_FIELDS or is_json_type(media_type_of({"content-type": part.content_type})):
        return _json_of(text, f"the field {part.name!r}")
    return text if part.name != "message" else text.strip()


def _file_of(part: FormPart) -> UploadedFile:
    where = f"the file in the field {part.name[:60]!r}"
    if not part.data:
        raise RequestError(f"{where} is empty: send one with bytes")
    name = check_name(part.file_name, where) if part.file_name else None
    bare = part.content_type.partition(";")[0].strip()
    return UploadedFile(name, check_media_type(bare, where) if bare else None, part.data)


async def read_body(
    headers: Mapping[str, str], stream: AsyncIterator[bytes], limit: BodyLimit, count: Callable[[int], None]
) -> bytes:
    """Read a body.

    Raises:
        BodiesTooLargeError: the bodies that are arriving are too large together.
        RequestTooLargeError: the body exceeds the limit; at most the limit was read.
        ClientDisconnect: the client disconnected.
    """
    max_bytes, setting = limit.of(media_type_of(headers))
    if max_bytes == 0:
        return b""
    content_length = headers.get("content-length", "")
    if content_length.isdecimal() and int(content_length) > max_bytes:
        raise _too_large(f"{int(content_length)} bytes", max_bytes, setting)
    body = bytearray()
    async for chunk in stream:
        count(len(chunk))
        body += chunk
        if len(body) > max_bytes:
            raise _too_large(f"more than {max_bytes} bytes", max_bytes, setting)
    return bytes(body)


def _too_large(size: str, max_bytes: int, setting: str) -> RequestTooLargeError:
    return RequestTooLargeError(f"the body has {size}, and {max_bytes} are allowed: send less, or raise {setting}")
