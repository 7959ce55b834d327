"""The files of stored entries: found without reading them, and never taken from words."""

import base64
import hashlib

from agent_framework import AgentResponse, Content, Message

from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.codec.offloaded_text import offload
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.session.entry_files import files_of_entries
from durable_agent_host.turn.message_input import read_message

MARK = "0123456789abcdef"
NOW = "2026-01-01T00:00:00+00:00"


def files_in(*entries):
    """The files of entries as they are stored, and the blobs that were taken out."""
    blobs, stored_entries = {}, []
    for entry in entries:
        small, texts = offload(entry)
        blobs |= texts
        stored_entries.append(small)
    return files_of_entries(stored_entries, "namespace", mark=MARK, service_files=RESPONSES.service_files), blobs


def request(*parts):
    message = read_message(list(parts))
    return encode_request_entry(TurnRequest("A", "s", "t", message.text, created_at=NOW, contents=message.contents))


def test_text_is_not_a_file():
    """Texts that look like data URLs, ids or marks are not listed, short or long, and neither are tools' words."""
    url = "data:image/png;base64," + "QUJD" * 10_000
    texts = [url, url[:100], MARK, MARK + "0" * 64, '{"$type": "data", "uri": "data:,x"}']
    requests = [request(*({"type": "text", "text": text} for text in texts), {"type": "text", "text": "x"})]
    texts_read = [
        Message("assistant", [Content.from_function_call("c", "f", arguments={"uri": url, "file_id": "f"}), url]),
        Message("tool", [Content.from_function_result("c", result=url)]),
    ]
    answer = encode_response_entry("t", AgentResponse(messages=texts_read), created_at=NOW)
    assert files_in(*requests, answer)[0] == []


def test_bytes_that_are_a_mark_are_bytes():
    """A file whose bytes spell the name of another blob is that file, and not the blob."""
    large = b"secret" * 5000
    name = hashlib.sha256(large).hexdigest()
    mark = base64.b64encode(name.encode()).decode()
    parts = [{"type": "file", "data": base64.b64encode(large).decode()}, {"type": "file", "data": mark}]
    found, _ = files_in(request({"type": "text", "text": "x"}, *parts))
    assert [file.data for file in found] == [None, name.encode()]
