"""Parse request bodies: text, JSON, or the fields and files of a form. Pure."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, cast

from durable_agent_host.codec.nesting import names_python_class
from durable_agent_host.codec.strict_json import parse_strict
from durable_agent_host.errors import RequestError
from durable_agent_host.http.multipart import FormPart, parse_form
from durable_agent_host.turn.file_names import check_media_type, check_name

FORM: Final = "multipart/form-data"
MAX_REQUEST: Final = "DURABLE_AGENT_HOST_MAX_REQUEST_BYTES"
MAX_UPLOAD: Final = "DURABLE_AGENT_HOST_MAX_UPLOAD_BYTES"
RUN_FIELDS: Final = (
    *("message", "session_id", "thread_id", "role", "response_format", "options"),
    *("enable_tool_calls", "wait_for_response", "policy"),
)
"""The fields of ``run``. Source: upstream's route has the same names, without options and policy."""

_JSON_FIELDS: Final = frozenset({"response_format", "options"})
_TEXT_CHARSETS: Final = frozenset({"utf-8", "utf8", "us-ascii", "ascii"})


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
        """Return the limit for a media type, and the setting that raises it. Guarantee: pure."""
        if self.max_form_bytes and media_type == FORM:
            return self.max_form_bytes, MAX_UPLOAD
        return self.max_bytes, self.setting


class SentFile(NamedTuple):
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
    """Read the bare media type of a request; empty when it has none. Guarantee: pure.

    Args:
        headers: names in any case.
    """
    given = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    return given.partition(";")[0].strip().lower()


def is_json_type(media_type: str) -> bool:
    """Return whether a bare media type is JSON's. Guarantee: pure."""
    return media_type == "application/json" or media_type.endswith("+json")


def read_run_fields(body: bytes, content_type: str) -> tuple[dict[str, Any], list[SentFile]]:
    """Read the body of ``run``.

    Guarantee: pure.

    Args:
        body: raw: text, JSON or a form, according to the content type.
        content_type: in full.

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
            _refuse_json(text, content_type)
        return {"message": text}, []
    fields = parse_object(body)
    _refuse_unknown(fields)
    return fields, []


def read_files(body: bytes, content_type: str) -> list[SentFile]:
    """Read the files of a form that has only files. Guarantee: pure.

    Args:
        body: of type ``multipart/form-data``.
        content_type: in full.

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

    Guarantee: pure.

    Raises:
        RequestError: the body is not JSON, or JSON that cannot be read; the message says which.
    """
    return _json_of(text_of(body), "the body")


def parse_object(body: bytes) -> dict[str, Any]:
    """Parse the JSON object of a body; raises as `parse_json` does. Guarantee: pure."""
    value = parse_json(body)
    if not isinstance(value, dict):
        raise RequestError('the body is JSON, but not an object: send {"message": "…"}')
    return cast("dict[str, Any]", value)


def refuse_python_objects(text: str) -> None:
    """Refuse JSON of which Durable Functions would make an object of a class that the caller names.

    Args:
        text: of a body, JSON or not.

    Raises:
        RequestError: it has such an object.
    """
    if names_python_class(text):
        raise RequestError(
            "the body has an object with '__class__', '__module__' and '__data__', which names a class of Python to "
            "Durable Functions: give the fields other names"
        )


def _json_of(text: str, where: str) -> Any:
    refuse_python_objects(text)
    try:
        return parse_strict(text)
    except json.JSONDecodeError as error:
        raise RequestError(f"{where} is not valid JSON: {error}") from None
    except RecursionError:
        raise RequestError(f"{where} is JSON that is nested too deeply") from None
    except ValueError:
        why = "JSON has no NaN and no Infinity, and others have more digits than can be read"
        raise RequestError(f"{where} has a number that cannot be read: {why}") from None


def _refuse_json(text: str, content_type: str) -> None:
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


def _refuse_unknown(names: Mapping[str, Any]) -> None:
    unknown = [name for name in names if name not in RUN_FIELDS]
    if not unknown:
        return
    near = get_close_matches(unknown[0], RUN_FIELDS, n=1, cutoff=0.6)
    meant = f"did you mean {near[0]!r}? " if near else ""
    if unknown[0].lower() in {"attachments", "contents", "content", "files", "images"}:
        meant = "files and images are parts of 'message', a list. "
    listed = ", ".join(repr(name[:60]) for name in unknown[:5])
    raise RequestError(f"the body has {listed}, which run does not take: {meant}It takes {', '.join(RUN_FIELDS)}")


def _read_form(body: bytes, content_type: str) -> tuple[dict[str, Any], list[SentFile]]:
    parts = parse_form(body, content_type)
    fields: dict[str, Any] = {}
    for part in parts:
        if part.file_name is not None:
            continue
        if part.name in fields:
            raise RequestError(f"the form has the field {part.name[:60]!r} twice: send it once")
        fields[part.name] = part
    _refuse_unknown(fields)
    read = {name: _field_of(part) for name, part in fields.items()}
    return read, [_file_of(part) for part in parts if part.file_name is not None and not _is_no_choice(part)]


def _is_no_choice(part: FormPart) -> bool:
    """Return whether the part is a browser's empty file input."""
    return part.file_name == "" and not part.data


def _field_of(part: FormPart) -> Any:
    media_type, _, parameters = part.content_type.partition(";")
    charset = parameters.partition("charset=")[2].partition(";")[0].strip(' "').lower()
    if charset and charset not in _TEXT_CHARSETS:
        raise RequestError(f"the field {part.name!r} has the charset {charset[:40]!r}: send it as UTF-8")
    try:
        text = bytes(part.data).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RequestError(f"the field {part.name!r} is not UTF-8 text: send it as UTF-8") from None
    if part.name in _JSON_FIELDS or is_json_type(media_type.strip().lower()):
        return _json_of(text, f"the field {part.name!r}")
    return text if part.name != "message" else text.strip()


def _file_of(part: FormPart) -> SentFile:
    where = f"the file in the field {part.name[:60]!r}"
    if not part.data:
        raise RequestError(f"{where} is empty: send one with bytes")
    name = check_name(part.file_name, where) if part.file_name else None
    bare = part.content_type.partition(";")[0].strip()
    return SentFile(name, check_media_type(bare, where) if bare else None, part.data)
