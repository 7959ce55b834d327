"""Parse request bodies: text, JSON, or the fields and files of a form."""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from difflib import get_close_matches
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from python_multipart.multipart import Field, File, FormParser, parse_options_header

from durable_agent_host.codec.strict_json import names_python_class, parse_strict
from durable_agent_host.errors import RequestError, RequestTooLargeError
from durable_agent_host.http.response_types import RunRequestWire
from durable_agent_host.turn.message_input import check_media_type, check_name

MAX_FORM_PARTS: Final = 300
"""Fields and files of one body."""
FORM: Final = "multipart/form-data"
MAX_REQUEST: Final = "DURABLE_AGENT_HOST_MAX_REQUEST_BYTES"
MAX_UPLOAD: Final = "DURABLE_AGENT_HOST_MAX_UPLOAD_BYTES"
_RUN_FIELDS: Final = tuple(RunRequestWire.__annotations__)

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
        data: the bytes.
    """

    name: str | None
    media_type: str | None
    data: bytes


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
        form_fields, files = _parse_form(body, content_type)
        _reject_unknown_fields(form_fields)
        return {name: _field_of(name, field) for name, field in form_fields.items()}, files
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
    fields, files = _parse_form(body, content_type)
    if fields:
        raise RequestError(f"the form has the field {min(fields)!r}, but an upload has only files")
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
    unknown = [name for name in names if name not in _RUN_FIELDS]
    if not unknown:
        return
    similar = get_close_matches(unknown[0], _RUN_FIELDS, n=1, cutoff=0.6)
    hint = f"did you mean {similar[0]!r}? " if similar else ""
    if unknown[0].lower() in {"attachments", "contents", "content", "files", "images"}:
        hint = "files and images are parts of 'message', a list. "
    unknown_list = ", ".join(repr(name[:60]) for name in unknown[:5])
    raise RequestError(f"the body has {unknown_list}, which run does not take: {hint}It takes {', '.join(_RUN_FIELDS)}")


def _parse_form(body: bytes, content_type: str) -> tuple[dict[str, Field], list[UploadedFile]]:
    """Parse a form.

    Returns:
        The fields by name, and the files without a browser's empty file inputs.

    Raises:
        RequestError: it is no form, has a field twice, or a file that cannot be used; the message says why.
    """
    fields: list[Field] = []
    files: list[File] = []
    try:
        boundary = b"--" + parse_options_header(content_type)[1][b"boundary"]
        if not body.endswith((boundary + b"--", boundary + b"--\r\n")):
            raise RequestError("the form is cut off: its last boundary is missing")
        if body.count(boundary) > MAX_FORM_PARTS + 1:
            raise RequestError(f"the form has more than {MAX_FORM_PARTS} parts: send fewer")
        config = {"MAX_MEMORY_FILE_SIZE": len(body)}
        FormParser(FORM, fields.append, files.append, boundary=boundary[2:], config=config).write(body)
    except (KeyError, ValueError) as error:
        raise RequestError(f"the form cannot be read ({error}): let your HTTP library write body and header") from None
    fields_by_name: dict[str, Field] = {}
    for field in fields:
        name = _form_text(field.field_name)
        if name in fields_by_name:
            raise RequestError(f"the form has the field {name[:60]!r} twice: send it once")
        fields_by_name[name] = field
    return fields_by_name, [_file_of(file) for file in files if file.file_name or file.size]


def _form_text(header: bytes | None) -> str:
    """Decode a name of a form, in which clients escape quotes and ends of lines as URLs do."""
    try:
        text = (header or b"").decode()
    except UnicodeDecodeError:
        raise RequestError("the form has headers that are not UTF-8") from None
    return text.replace("%22", '"').replace("%0D", "\r").replace("%0A", "\n")


def _field_of(name: str, field: Field) -> Any:
    try:
        text = (field.value or b"").decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"the field {name!r} is not UTF-8 text: send it as UTF-8") from None
    if name in _JSON_FIELDS or is_json_type(media_type_of({"content-type": field.content_type or ""})):
        return _json_of(text, f"the field {name!r}")
    return text if name != "message" else text.strip()


def _file_of(file: File) -> UploadedFile:
    where = f"the file in the field {_form_text(file.field_name)[:60]!r}"
    if not file.size:
        raise RequestError(f"{where} is empty: send one with bytes")
    name = check_name(_form_text(file.file_name), where) if file.file_name else None
    media_type = check_media_type(file.content_type, where) if file.content_type else None
    return UploadedFile(name, media_type, cast("BytesIO", file.file_object).getvalue())


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
