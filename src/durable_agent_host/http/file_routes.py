"""Routes of files: upload files, list those of a session, read one."""

import re
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from azurefunctions.extensions.http.fastapi import Response

from durable_agent_host.durable.turn_client import TurnClient
from durable_agent_host.errors import NotFoundError, RequestError
from durable_agent_host.http.event_stream import PartStream
from durable_agent_host.http.parse import FORM, media_type_of, read_files, sent_file
from durable_agent_host.http.request_handling import HandlerContext, RouteRequest, named_session
from durable_agent_host.http.response_types import FilesWire, FileWire
from durable_agent_host.http.response_views import session_response, session_url_of
from durable_agent_host.model.conversation_file import ConversationFile, media_type_of_name
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.session_files import SessionFiles
from durable_agent_host.session.entry_files import FileBytes
from durable_agent_host.session.ownership import unknown_session
from durable_agent_host.turn.message_input import (
    MAX_NAME_CHARACTERS,
    OCTETS,
    MessageInput,
    check_media_type,
    check_name,
    file_reference,
    with_contents,
)

_SAFE: Final = {
    "x-content-type-options": "nosniff",
    "content-security-policy": "sandbox; default-src 'none'",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-cache",
}
"""Keeps a browser from executing a file or guessing its type."""

_INLINE_TYPES: Final = frozenset(
    {"image/png", "image/jpeg", "image/gif", "image/webp", "text/plain", "application/json"}
)
"""Types that a browser may show, because it cannot execute them; HTML, SVG and unknown types are downloads."""
_IN_HEADERS: Final = re.compile(r"[^A-Za-z0-9._ ()+-]")


async def upload_files(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``POST /agents/{agent}/sessions/{session}/files``: store files that messages can refer to."""
    agent, session_id = named_session(host, call)
    content_type = call.headers.get("content-type", "")
    media_type = media_type_of(content_type)
    files = read_files(call.body, content_type) if media_type == FORM else [_raw_file(call, media_type)]
    uploads = client.files(agent, session_id, owner=call.owner).uploads
    stored_files = await uploads.add(*files)
    views = [_view(call, agent, session_id, file) for file in stored_files]
    return session_response(FilesWire(agent=agent, session_id=session_id, files=views), HTTPStatus.CREATED)


async def list_files(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/files``: files that callers sent and agents made, newest first."""
    agent, session_id = named_session(host, call)
    session, session_files = await _read_session(host, client, agent, session_id)
    files = await session_files.all()
    if session is None and not files:
        raise unknown_session(agent, session_id)
    views = [_view(call, agent, session_id, file) for file in files]
    return session_response(FilesWire(agent=agent, session_id=session_id, files=views))


async def _read_session(
    host: HandlerContext, client: TurnClient, agent: str, session_id: str
) -> tuple[Session | None, SessionFiles]:
    session = await client.documents.session(agent, session_id)
    files = client.files(agent, session_id, session)
    files.service_files = host.agents[agent].hosted.provider.service_files
    files.is_response_files_only = host.gate.identifies
    return session, files


async def read_file(host: HandlerContext, call: RouteRequest, client: TurnClient) -> Response:
    """``GET /agents/{agent}/sessions/{session}/files/{file}``: the bytes, with type and name."""
    agent, session_id = named_session(host, call)
    file_id = call.path_part("file")
    session, files = await _read_session(host, client, agent, session_id)
    file = await files.find(file_id)
    if file is None and session is None:
        raise unknown_session(agent, session_id)
    if file is None:
        raise NotFoundError(f"session {session_id!r} of agent {agent!r} has no file {file_id[:100]!r}")
    headers = _headers_of(file)
    if f'"{_etag(file)}"' in call.headers.get("if-none-match", ""):
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    if file.service is None and file.blob is not None:
        return PartStream(await files.slices(file), headers | {"content-length": str(file.size)})
    if file.service is None:
        data = await files.read(file)
    else:
        provider_file = await host.agents[agent].read_service_file(file.service)
        data = provider_file.data
        headers = _headers_of(
            replace(file, name=file.name or provider_file.name, media_type=file.media_type or provider_file.media_type)
        )
    return Response(data, headers=headers)


def with_sent_files(message: MessageInput, files: Sequence[FileBytes]) -> MessageInput:
    """Refer to the files of a form in the message that came with them."""
    references = [file_reference(sha256(file.data).hexdigest(), file.name, file.media_type) for file in files]
    return with_contents(message, references)


async def keep_sent_files(client: TurnClient, request: TurnRequest, files: Sequence[FileBytes]) -> None:
    """Store the files of a form as uploads of the request's session. Guarantee: idempotent."""
    uploads = client.files(request.agent, request.session_id, owner=request.session_owner).uploads
    await uploads.add(*files)


def _raw_file(call: RouteRequest, media_type: str) -> FileBytes:
    """Read an upload whose body is the file; the query names it."""
    if not (body := call.body):
        raise RequestError("the body is empty: send the file, or a form with files")
    file_name = call.query.get("name")
    checked_name = check_name(file_name, "the file") if file_name else None
    return sent_file(checked_name, media_type, body, "the body")


def _view(call: RouteRequest, agent: str, session_id: str, file: ConversationFile) -> FileWire:
    url = f"{session_url_of(call.base_url, agent, session_id)}/files"
    return {
        "id": file.file_id,
        "name": file.name,
        "media_type": file.media_type or media_type_of_name(file.name),
        "size": file.size,
        "role": file.role,
        "turn_id": file.turn_id,
        "file_url": f"{url}/{quote(file.file_id, safe='')}",
    }


def _headers_of(file: ConversationFile) -> dict[str, str]:
    try:
        media_type = check_media_type(file.media_type or media_type_of_name(file.name) or OCTETS, "a file")
    except RequestError:  # a tool or a service may report any media type
        media_type = OCTETS
    media_type = OCTETS if "*" in media_type else media_type
    name = file.name or file.file_id[:16]
    return _SAFE | {
        "content-type": f"{media_type}; charset=utf-8" if media_type == "text/plain" else media_type,
        "content-disposition": _disposition(name, media_type),
        "etag": f'"{_etag(file)}"',
    }


def _disposition(name: str, media_type: str) -> str:
    """Write the header ``Content-Disposition``, with nothing in the name that could end it.

    Source: RFC 6266, appendix D; RFC 8187.
    """
    plain = _IN_HEADERS.sub("_", name)[:MAX_NAME_CHARACTERS]
    kind = "inline" if media_type in _INLINE_TYPES else "attachment"
    value = f'{kind}; filename="{plain}"'
    return value if plain == name else f"{value}; filename*=UTF-8''{quote(name, safe='', errors='replace')}"


def _etag(file: ConversationFile) -> str:
    return sha256(file.file_id.encode("utf-8", "replace")).hexdigest()[:32]
