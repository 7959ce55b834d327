"""The files of stored entries: found without reading them, and never taken from words."""

import base64
import hashlib

from agent_framework import AgentResponse, Annotation, Content, Message
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.codec.offloaded_text import offload
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.session.entry_files import files_of_entries
from durable_agent_host.turn.message_input import read_message

MARK = "0123456789abcdef"
NOW = "2026-01-01T00:00:00+00:00"


def files_in(*entries):
    """The files of entries as they are stored, and the pieces that were taken out."""
    pieces, stored = {}, []
    for entry in entries:
        small, taken = offload(entry)
        pieces |= taken
        stored.append(small)
    return files_of_entries(stored, "home", mark=MARK, service_files=RESPONSES.service_files), pieces


def request(*parts):
    said = read_message(list(parts))
    return encode_request_entry(TurnRequest("A", "s", "t", said.text, created_at=NOW, contents=said.contents))


@given(st.lists(st.binary(min_size=1, max_size=64), min_size=1, max_size=4), st.integers(0, 3))
def test_each_file_is_found_by_the_hash_of_its_bytes(contents, large):
    """Small ones with their bytes, large ones by their piece, with names, sizes and who brought them."""
    contents = [data * 800 if place < large else data for place, data in enumerate(contents)]
    parts = [
        {"type": "file", "data": base64.b64encode(data).decode(), "name": f"{n}.bin"} for n, data in enumerate(contents)
    ]
    found, pieces = files_in(request({"type": "text", "text": "look"}, *parts))
    assert [one.file_id for one in found] == [hashlib.sha256(data).hexdigest() for data in contents]
    assert [(one.name, one.size) for one in found] == [(f"{n}.bin", len(data)) for n, data in enumerate(contents)]
    assert [one.data if one.piece is None else pieces[one.piece[1]] for one in found] == contents
    assert {(one.role, one.turn_id) for one in found} == {("user", "t")}


def test_words_are_no_files():
    """Texts that look like data URLs, ids or marks are not listed, short or long, and neither are tools' words."""
    url = "data:image/png;base64," + "QUJD" * 10_000
    texts = [url, url[:100], MARK, MARK + "0" * 64, '{"$type": "data", "uri": "data:,x"}']
    asked = [request(*({"type": "text", "text": text} for text in texts), {"type": "text", "text": "x"})]
    said = [
        Message("assistant", [Content.from_function_call("c", "f", arguments={"uri": url, "file_id": "f"}), url]),
        Message("tool", [Content.from_function_result("c", result=url)]),
    ]
    answer = encode_response_entry("t", AgentResponse(messages=said), created_at=NOW)
    assert files_in(*asked, answer)[0] == []


def test_bytes_that_are_a_mark_are_bytes():
    """A file whose bytes spell the name of another piece is that file, and not the piece."""
    large = b"secret" * 5000
    name = hashlib.sha256(large).hexdigest()
    forged = base64.b64encode(name.encode()).decode()
    parts = [{"type": "file", "data": base64.b64encode(large).decode()}, {"type": "file", "data": forged}]
    found, _ = files_in(request({"type": "text", "text": "x"}, *parts))
    assert [one.data for one in found] == [None, name.encode()]


def test_what_tools_and_code_made():
    """Rich results of tools, outputs of code and files of containers are found, with who made them."""
    image = Content.from_data(b"abc" * 9000, "image/png")
    cited = Content.from_text("see")
    cited.annotations = [
        Annotation(
            type="citation", file_id="cfile_1", url="/mnt/t.csv", additional_properties={"container_id": "cntr_1"}
        ),
        Annotation(type="citation", file_id="file-of-a-search", url="b.pdf"),
    ]
    said = [
        Message("assistant", [Content.from_function_call("c", "draw", arguments="{}")]),
        Message("tool", [Content.from_function_result("c", result=[Content.from_text("drawn"), image])]),
        Message("assistant", [cited]),
    ]
    answer = encode_response_entry("t", AgentResponse(messages=said), created_at=NOW)
    (drawn, sheet), pieces = files_in(answer)
    assert (drawn.role, drawn.media_type, pieces[drawn.piece[1]]) == ("tool", "image/png", b"abc" * 9000)
    assert (sheet.role, sheet.file_id, sheet.name, sheet.service.location) == (
        *("assistant", "cfile_1", "t.csv"),
        {"container_id": "cntr_1"},
    )


def test_a_data_url_that_is_no_plain_base64_is_a_file_as_text():
    """Such a URL of a tool is kept to the letter; its piece is the text."""
    odd = Content("data", uri="data:text/plain,hello%20" + "x" * 20_000, media_type="text/plain")
    said = [Message("assistant", [odd])]
    (found,), pieces = files_in(encode_response_entry("t", AgentResponse(messages=said), created_at=NOW))
    assert (found.is_text, found.size) == (True, None)
    assert pieces[found.piece[1]].startswith(b"data:text/plain,hello")
