"""Parse requests into values: their bodies (text, JSON, the fields and files of a form), queries and headers."""

import base64
import binascii
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256
from io import BytesIO
from typing import Any, Final, NamedTuple, cast

from pydantic import TypeAdapter
from python_multipart.multipart import Field, File, FormParser, parse_options_header

from durable_agent_host.codec.strict_json import (
    MAX_LEVELS,
    is_nested_too_deeply,
    names_python_class,
    object_at,
    parse_strict,
    read_json,
)
from durable_agent_host.codec.tool_result_text import short_text
from durable_agent_host.errors import ForbiddenError, RequestError, RequestTooLargeError, UnsupportedTypeError
from durable_agent_host.http import response_types as types
from durable_agent_host.http.sse import CONTENT_TYPE as EVENTS
from durable_agent_host.model.conversation_file import media_type_of_name
from durable_agent_host.model.ids import check_idempotency_key, check_session_id
from durable_agent_host.session.entry_files import FileBytes
from durable_agent_host.turn.client_tools import check_result, read_client_tools
from durable_agent_host.turn.message_input import OCTETS, MessageInput, check_media_type, check_name, read_message
from durable_agent_host.turn.response_format import check_response_format
from durable_agent_host.turn.turn_events import NESTED
from durable_agent_host.turn.turn_requests import ClientRequest, hash_of
from durable_agent_host.turn.turn_wire import validate

MAX_FORM_PARTS: Final = 300
"""Fields and files of one body."""
FORM: Final = "multipart/form-data"
MAX_REQUEST: Final = "DURABLE_AGENT_HOST_MAX_REQUEST_BYTES"
MAX_UPLOAD: Final = "DURABLE_AGENT_HOST_MAX_UPLOAD_BYTES"
_RUN_FIELDS: Final = tuple(types.RunRequestWire.__annotations__)
_FORM_FIELD: Final = re.compile(rf"({'|'.join(_RUN_FIELDS)})=")

_SESSION_FIELDS: Final = ("session_id", "thread_id")
_JSON_FIELDS: Final = frozenset({"response_format", "options", "client_tools"})
_TRUE: Final = frozenset({"true", "1", "yes", "y", "on"})
_FALSE: Final = frozenset({"false", "0", "no", "n", "off"})
DEFAULT_LIMIT: Final = 50
MAX_LIMIT: Final = 1000
_MAX_DIGITS: Final = 15
_RUN: Final = TypeAdapter[Any](types.RunRequestWire)
_FORK: Final = TypeAdapter(types.ForkRequestWire)
_ANSWERS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "approved": TypeAdapter(types.DecisionWire),
    "result": TypeAdapter(types.ResultWire),
    "error": TypeAdapter(types.ErrorWire),
}
_CALLBACKS: Final[Mapping[str, TypeAdapter[Any]]] = {
    "result": TypeAdapter(types.CallbackResultWire),
    "error": TypeAdapter(types.CallbackErrorWire),
    "progress": TypeAdapter(types.ProgressRequestWire),
}


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


def media_type_of(content_type: str) -> str:
    """Return the bare media type of a content type; empty when it has none."""
    return content_type.partition(";")[0].strip().lower()


def is_json_type(media_type: str) -> bool:
    """Return whether a bare media type is JSON's."""
    return media_type == "application/json" or media_type.endswith("+json")


def read_run_fields(body: bytes, content_type: str) -> tuple[dict[str, Any], list[FileBytes]]:
    """Read the body of ``run``.

    Returns:
        The fields, with only their names checked; and the files of a form.

    Raises:
        RequestError: the body cannot be read, or has a field that ``run`` does not have.
        UnsupportedTypeError: it is XML, or a form without files; ``curl -d TEXT`` also calls a text one.
    """
    media_type = media_type_of(content_type)
    if media_type == FORM:
        form_fields, files = _parse_form(body, content_type)
        _reject_unknown_fields(form_fields)
        return {name: _field_of(name, field) for name, field in form_fields.items()}, files
    if not is_json_type(media_type):
        text = text_of(body).strip()
        if media_type.endswith(("/xml", "+xml")) or (
            media_type.endswith("form-urlencoded") and _FORM_FIELD.match(text)
        ):
            raise UnsupportedTypeError(f"the body is {media_type!r}: send application/json, text/plain, or {FORM}")
        if not media_type.startswith("text/"):
            _reject_json_as_text(text, content_type)
        return {"message": text}, []
    fields = parse_object(body)
    _reject_unknown_fields(fields)
    return fields, []


def read_files(body: bytes, content_type: str) -> list[FileBytes]:
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
        raise RequestError("the body is JSON, but not an object: send an object with the request's fields")
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


def parse_json_or_text(body: bytes) -> Any:
    """Parse a body that is JSON, and return any other as text; raises as `parse_json` does for other reasons."""
    text = text_of(body)
    try:
        return _parse(text, "the body")
    except json.JSONDecodeError:
        return text


def _json_of(text: str, where: str) -> Any:
    try:
        return _parse(text, where)
    except json.JSONDecodeError as error:
        raise RequestError(f"{where} is not valid JSON: {error}") from None


def _parse(text: str, where: str) -> Any:
    reject_python_objects(text)
    try:
        return parse_strict(text)
    except json.JSONDecodeError:
        raise
    except RecursionError:
        raise RequestError(f"{where} is JSON that is nested too deeply") from None
    except ValueError:
        reason = "JSON has no NaN and no Infinity, and others have more digits than can be read"
        raise RequestError(f"{where} has a number that cannot be read: {reason}") from None


def _reject_json_as_text(text: str, content_type: str) -> None:
    """Refuse a JSON object that is sent without its content type, and would become the message."""
    if "message" in object_at(read_json(text)):
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


def _parse_form(body: bytes, content_type: str) -> tuple[dict[str, Field], list[FileBytes]]:
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
    if name in _JSON_FIELDS or is_json_type(media_type_of(field.content_type or "")):
        return _json_of(text, f"the field {name!r}")
    return text if name != "message" else text.strip()


def _file_of(file: File) -> FileBytes:
    where = f"the file in the field {_form_text(file.field_name)[:60]!r}"
    if not file.size:
        raise RequestError(f"{where} is empty: send one with bytes")
    name = check_name(_form_text(file.file_name), where) if file.file_name else None
    return sent_file(name, file.content_type, cast("BytesIO", file.file_object).getvalue(), where)


def sent_file(name: str | None, content_type: str | None, data: bytes, location: str) -> FileBytes:
    """Return a file with its type: by its name, where the sender's is what curl and browsers send of any file.

    Raises:
        RequestError: the type is malformed.
    """
    media_type = check_media_type(content_type, location) if content_type else None
    is_default = media_type in {None, OCTETS, "application/x-www-form-urlencoded"}
    return FileBytes(name, (media_type_of_name(name) if is_default else None) or media_type, data)


async def read_body(
    headers: Mapping[str, str], stream: AsyncIterator[bytes], limit: BodyLimit, count: Callable[[int], None]
) -> bytes:
    """Read a body.

    Raises:
        BodiesTooLargeError: the bodies that are arriving are too large together.
        RequestTooLargeError: the body exceeds the limit; at most the limit was read.
        BodyStalledError: it stopped arriving.
        ClientDisconnect: the client disconnected.
    """
    max_bytes, setting = limit.of(media_type_of(headers.get("content-type", "")))
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


@dataclass(frozen=True)
class RunParameters:
    """A valid call of ``run``.

    Attributes:
        request: what it asks for, without the files of a form, and with unchecked options.
        files: of a form, which are part of the message.
        wait: whether the client waits for the answer.
        wants_json: whether the answer is JSON, or the bare text.
        wants_events: whether the answer is a stream of events.
        last_event_id: the last event of the turn that the client has, or None to start with the first.
    """

    request: ClientRequest
    files: Sequence[FileBytes]
    wait: bool
    wants_json: bool
    wants_events: bool
    last_event_id: int | None


def parse_run(body: bytes, headers: Mapping[str, str], params: Mapping[str, str]) -> RunParameters:
    """Read a call of ``POST /agents/{agent}/run``.

    Raises:
        RequestError: the call is invalid; the message names the rule that it breaks.
    """
    content_type = headers.get("content-type", "")
    media_type = media_type_of(content_type)
    fields, files = read_run_fields(body, content_type)
    _check_nesting(fields)
    is_without_text = bool(files) and fields.get("message") in (None, "")
    message = MessageInput("") if is_without_text else read_message(fields.get("message"))
    fields = validate(_RUN, {"message": "", **fields})
    session_id = _session_id(fields, params)
    response_format = fields.get("response_format")
    if response_format is not None:
        _check_response_format(response_format)
    enable_tool_calls = fields.get("enable_tool_calls") is not False
    policy = fields.get("policy", "queue")
    client_tools = read_client_tools(fields.get("client_tools"))
    options: Any = fields.get("options") or {}
    hashed_fields = {
        "message": message.text,
        "session_id": session_id,
        "response_format": response_format,
        "enable_tool_calls": enable_tool_calls,
        "policy": policy,
    }
    other_fields = {
        "contents": message.contents,
        "files": [(file.name, file.media_type, sha256(file.data).hexdigest()) for file in files],
        "options": options,
        "client_tools": client_tools,
    }
    request_hash = hash_of(hashed_fields | {name: value for name, value in other_fields.items() if value})
    key = headers.get("idempotency-key")
    with suppress(UnicodeError):
        key = key and key.encode("latin-1").decode()  # the server reads headers as Latin-1
    check_idempotency_key(key, "Idempotency-Key")
    accepted_types = list(map(media_type_of, headers.get("accept", "").split(",")))
    request = ClientRequest(
        message,
        request_hash,
        session_id,
        key,
        response_format=response_format,
        enable_tool_calls=enable_tool_calls,
        options=options,
        policy=policy,
        client_tools=client_tools,
    )
    return RunParameters(
        request,
        files,
        wait=_waits(headers, params, fields),
        wants_json=media_type == FORM or is_json_type(media_type) or "application/json" in accepted_types,
        wants_events=EVENTS in accepted_types,
        last_event_id=_last_event_id(headers, key),
    )


def _waits(headers: Mapping[str, str], params: Mapping[str, str], fields: Mapping[str, Any]) -> bool:
    text = headers.get("x-ms-wait-for-response") or params.get("wait_for_response")
    return parse_flag(text, "wait_for_response", default=fields.get("wait_for_response") is not False)


def _check_nesting(value: Any) -> None:
    if is_nested_too_deeply(value):
        raise RequestError(f"the body is nested more than {MAX_LEVELS} levels deep: send fewer")


def _session_id(fields: Mapping[str, Any], params: Mapping[str, str]) -> str | None:
    ids_by_source: dict[str, str] = {}
    for source_name, source in (("body", fields), ("query", params)):
        for name in _SESSION_FIELDS:
            if (value := source.get(name)) is not None:
                ids_by_source[f"{name} in the {source_name}"] = check_session_id(value)
    if len(set(ids_by_source.values())) > 1:
        conflicts = ", ".join(f"{name} = {value!r}" for name, value in sorted(ids_by_source.items()))
        raise RequestError(f"Conflicting session identifiers supplied: {conflicts}: send one")
    return next(iter(ids_by_source.values()), None)


def check_session_parameters(query: Sequence[tuple[str, str]]) -> None:
    """Refuse a query that names no session where it should, or more than one: values would be read as one.

    Raises:
        RequestError: a parameter for the session is empty, or comes twice.
    """
    for name in _SESSION_FIELDS:
        values = [value for parameter, value in query if parameter == name]
        if len(values) > 1:
            raise RequestError(f"the query has {name!r} {len(values)} times: send it once")
        for value in values:
            check_session_id(value)


def _check_response_format(schema: Mapping[str, Any]) -> None:
    if "__response_schema_type__" in schema:
        raise RequestError("'response_format' names a Python class: give its JSON schema instead")
    check_response_format(schema)


def parse_flag(text: str | None, name: str, *, default: bool) -> bool:
    """Read true or false; raises `RequestError` for anything else."""
    if text is None:
        return default
    if (lower_text := text.strip().lower()) not in _TRUE | _FALSE:
        raise RequestError(f"'{name}' is {text!r}: use true or false")
    return lower_text in _TRUE


def _last_event_id(headers: Mapping[str, str], key: str | None) -> int | None:
    last = parse_resume(headers.get("last-event-id"))
    if last is not None and key is None:
        raise RequestError(
            "Last-Event-ID resumes a turn, and without Idempotency-Key this request begins another: send the key "
            "of the first request again, or get the turn's events_url"
        )
    return last


def parse_fork(body: bytes) -> types.ForkRequestWire:
    """Read the body of ``fork``.

    Raises:
        RequestError: the body is something else.
    """
    fields = validate(_FORK, parse_json(body) if body.strip() else {})
    if fields.get("before") and not fields.get("at_turn"):
        raise RequestError("'before' needs 'at_turn': the turn before which the copy ends")
    if (session_id := fields.get("session_id")) is not None:
        check_session_id(session_id)
    return fields


def parse_replies(body: bytes) -> dict[str, dict[str, Any]]:
    """Read the body of a request that answers pending calls.

    Returns:
        Answers by call id, each with ``approved``, ``reason`` and ``arguments``, or with ``result``, or with ``error``.

    Raises:
        RequestError: the body is something else, or answers a call twice; the message says what is expected.
    """
    value = parse_json(body)
    _check_nesting(value)
    items = cast("list[Any]", value) if isinstance(value, list) else [value]
    if not items:
        raise RequestError(f"the body is an empty list: {_ANSWER_FORMS}")
    replies: dict[str, dict[str, Any]] = {}
    for item in items:
        fields = _parse_answer(item, _ANSWERS, _ANSWER_FORMS)
        call_id = str(fields.pop("call_id"))
        if call_id in replies:
            raise RequestError(f"call {call_id} is answered twice in one request: answer it once")
        replies[call_id] = fields
    return replies


def parse_callback(body: bytes, call_id: str) -> dict[str, Any]:
    """Read the body of a request that answers the one call of a token.

    Returns:
        The answer, with ``result`` or with ``error``; or ``progress``, with ``text`` and ``fraction``.

    Raises:
        RequestError: the body is something else.
        ForbiddenError: it answers another call.
    """
    value = parse_json(body)
    _check_nesting(value)
    fields = _parse_answer(value, _CALLBACKS, _CALLBACK_FORMS)
    if fields.pop("call_id", call_id) != call_id:
        raise ForbiddenError("the token is for another call: leave 'call_id' out")
    if progress := fields.get("progress"):
        return {"progress": {"text": short_text(progress["text"]), "fraction": progress.get("fraction")}}
    return fields


_ANSWER_FORMS: Final = (
    'send {"call_id": "…", "approved": true} for a decision, {"call_id": "…", "result": …} for the result of a call, '
    'or {"call_id": "…", "error": "…"} when there is none'
)
_CALLBACK_FORMS: Final = (
    'send {"result": …} for the result of the call, {"error": "…"} when there is none, or '
    '{"progress": {"text": "…", "fraction": 0.5}}'
)


def _parse_answer(value: Any, adapters: Mapping[str, TypeAdapter[Any]], hint: str) -> dict[str, Any]:
    """Read an object whose type is known by which of several members it has."""
    forms = [name for name in adapters if name in object_at(value)]
    if len(forms) != 1:
        raise RequestError(f"an answer is an object with one of {', '.join(adapters)}: {hint}")
    fields = validate(adapters[forms[0]], value)
    if "approved" in fields:
        fields = {"reason": None, "arguments": None, **fields}
        if fields["arguments"] is not None and not fields["approved"]:
            raise RequestError("'arguments' comes with 'approved': true")
    check_result(fields)
    return fields


def parse_number(name: str, text: str | None, hint: str) -> int | None:
    """Parse a whole number from 0.

    Returns:
        The number, or None when there is no text.

    Raises:
        RequestError: it is not such a number.
    """
    digits = (text or "").strip()
    if not digits:
        return None
    if not (digits.isascii() and digits.isdecimal()) or len(digits) > _MAX_DIGITS:
        raise RequestError(f"{name} is {digits[:40]!r}{hint}")
    return int(digits)


def parse_position(query: Mapping[str, str]) -> int | None:
    """Parse the query parameter ``cursor`` of a route that counts messages, steps or calls.

    Raises:
        RequestError: no page returned this cursor.
    """
    return parse_number(
        "'cursor'", query.get("cursor"), ", which this route did not return: leave it out to get the first page"
    )


def parse_resume(last_event_id: str | None, after: str | None = None) -> int | None:
    """Parse the id of the last event that a client has.

    Returns:
        The id, or None to start with the first event.

    Raises:
        RequestError: it is not an id.
    """
    hint = ": give the id of the last event that you have, a whole number from 0, or leave it out to get all events"
    last_id = parse_number("Last-Event-ID", last_event_id, hint)
    return parse_number("after", after, hint) if last_id is None else last_id


def parse_hidden_events(query: Mapping[str, str]) -> frozenset[str]:
    """Parse the query parameter ``inner``: whether a stream has the events of agents within the agent.

    Raises:
        RequestError: it is not true or false.
    """
    return frozenset() if parse_flag(query.get(NESTED), NESTED, default=True) else frozenset({NESTED})


def parse_limit(query: Mapping[str, str], *, default: int = DEFAULT_LIMIT) -> int:
    """Parse the query parameter ``limit``.

    Raises:
        RequestError: it is not a number from 1 to 1000.
    """
    hint = f": use a number from 1 to {MAX_LIMIT}"
    limit = parse_number("'limit'", query.get("limit"), hint)
    if limit is None:
        return default
    if not 1 <= limit <= MAX_LIMIT:
        raise RequestError(f"'limit' is '{limit}'{hint}")
    return limit


def parse_cursor(text: str | None) -> tuple[str, str] | None:
    """Parse the query parameter ``cursor``: where the previous page ended.

    Raises:
        RequestError: no list returned this cursor.
    """
    if not text:
        return None
    try:
        used, key = json.loads(base64.urlsafe_b64decode(text.encode()))
        return str(used), str(key)
    except (ValueError, TypeError, binascii.Error):
        raise RequestError("'cursor' was not returned by this route: leave it out to begin at the newest") from None


def page_of(
    sessions: Sequence[tuple[str, str]],
    *,
    limit: int,
    cursor: tuple[str, str] | None,
) -> tuple[Sequence[tuple[str, str]], str | None]:
    """Cut a page out of a list.

    Returns:
        The page, and the cursor of the next page; None when this is the last.
    """
    remaining = [session for session in sessions if cursor is None or tuple(session) < cursor]
    page = remaining[:limit]
    if len(remaining) <= limit:
        return page, None
    return page, base64.urlsafe_b64encode(json.dumps(list(page[-1])).encode()).decode()
