"""What a client for Anthropic sends on the next turn: what the service had given out, cold as live."""

import base64
import json

import pytest
from agent_framework import Content, Message, tool
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.providers.anthropic.message_accumulator import CodeText
from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from durable_agent_host.turn_log.sqlite_log import SqliteTurnLog
from tests.durable_agent_host.anthropic_lab import AnthropicLab

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@tool(approval_mode="never_require")
def convert(amount: float) -> str:
    """Convert an amount."""
    return f"{amount * 2:g} EUR"


def search(index, **fields):
    """A plan's item: a call of the service's search."""
    call = {"type": "server_tool_use", "id": f"srvtoolu_{index}", "name": "web_search", "input": {"query": "größer"}}
    return {"item": call | fields}


def search_result(index):
    """A plan's item: what the search has found."""
    page = {"type": "web_search_result", "url": "https://example.com", "title": "t", "encrypted_content": "e"}
    return {"item": {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{index}", "content": [page]}}


def citation_item(text, quote):
    """A plan's item: a text with a citation."""
    location = {"type": "web_search_result_location", "url": "https://example.com", "title": None, "cited_text": quote}
    return {"item": {"type": "text", "text": text, "citations": [location | {"encrypted_index": "i=="}]}}


CALLS = {
    "reasoning": "hm",
    "text": "I call.",
    "calls": [{"name": "convert", "arguments": {"amount": 2}}, {"name": "convert", "arguments": {"amount": 3}}],
}
CODE_RUN = {"items": [{"reasoning": "run"}, {"code": "print(1)", "logs": "1\n", "image": True}, {"text": "One."}]}
CITATIONS = {
    "items": [
        search(1),
        search_result(1),
        {"text": "It is "},
        citation_item("so", "q"),
        {"text": ", "},
        citation_item("and so", "r"),
    ]
}
UNKNOWN = {"items": [{"item": {"type": "hologram", "planes": [1, None, {"x": 1.5}]}}, {"text": "Look."}]}
HOSTED = {
    "items": [
        {"item": {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki", "input": {"q": 1}}},
        {
            "item": {
                "type": "mcp_tool_result",
                "tool_use_id": "mcptoolu_1",
                "is_error": False,
                "content": [{"type": "text", "text": "a", "citations": None}, {"type": "text", "text": "b"}],
            }
        },
        search(
            2, name="text_editor_code_execution", input={"command": "view", "path": "a.py"}, caller={"type": "direct"}
        ),
        {
            "item": {
                "type": "text_editor_code_execution_tool_result",
                "tool_use_id": "srvtoolu_2",
                "content": {"type": "text_editor_code_execution_view_result", "content": "x = 1", "num_lines": 1},
            }
        },
        {"text": "Read."},
    ]
}
BYE = {"text": "Bye."}
CONVERSATION = (CALLS, CODE_RUN, CITATIONS, UNKNOWN, HOSTED, BYE)
TEXTS = ("first", "second", "third", "fourth", "fifth")


def lab(*steps, **fields):
    """A lab whose model returns these responses."""
    new_lab = AnthropicLab(tools=[convert, CODE, SEARCH], **fields)
    new_lab.plan(*steps)
    return new_lab


async def test_a_cold_process_sends_what_a_live_one_sends():
    """Each turn from the stored session is, on the wire, the turn of a process that never stopped."""
    cold, warm, live = lab(*CONVERSATION), lab(*CONVERSATION), lab(*CONVERSATION)
    for text in TEXTS:
        await cold.cold_turn(text)
    await warm.warm_turns(TEXTS)
    await live.live_turns(TEXTS)
    assert cold.bodies == warm.bodies == live.bodies
    assert cold.refusals == []
    assert len(cold.bodies) == len(CONVERSATION)


async def test_the_container_is_in_the_next_request_until_it_expires():
    """Code of the next turn finds the files of the last; when the service has lost them, the turn continues without."""
    cold = lab(CODE_RUN, CODE_RUN, BYE, BYE)
    for text in TEXTS[:2]:
        await cold.cold_turn(text)
    first, second = cold.bodies
    assert "container" not in first
    assert second["container"].startswith("container_")
    await cold.expire_containers()
    outcome = await cold.cold_turn("third")
    assert (outcome.error, outcome.text) == (None, "Bye.")
    assert len(cold.refusals) == 1
    assert "container" not in cold.bodies[-1]
    await cold.cold_turn("fourth")
    assert len(cold.refusals) == 1


PAUSED = {"items": [{"text": "Let me see."}, search(3)], "incomplete": "pause_turn"}


async def test_a_model_that_pauses_continues_in_the_same_turn():
    """The paused response is sent back unchanged, without a message in between; the turn has one response."""
    cold = lab(PAUSED, {"items": [search_result(3), {"text": "Found."}]}, BYE)
    outcome = await cold.cold_turn("search")
    assert cold.sent[1] == [*cold.sent[0], {"role": "assistant", "content": [_text("Let me see."), search(3)["item"]]}]
    assert outcome.text == "Let me see.\n\nFound."
    assert outcome.usage is not None
    await cold.cold_turn("and on")
    roles = [message["role"] for message in cold.sent[2]]
    assert roles == ["user", "assistant", "user"]
    assert cold.sent[2][1]["content"] == [
        *(_text("Let me see."), search(3)["item"], search_result(3)["item"]),
        _text("Found."),
    ]
    assert cold.refusals == []


@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_process_that_dies_at_a_pause_pays_for_no_call_twice(at, tmp_path):
    """The paused answer comes from the journal: each call of the model is made once, however the process ended."""
    steps = (CALLS, PAUSED, {"items": [search_result(3), CALLS | {"text": "Again."}]}, BYE)
    reference, killed_lab = lab(*steps, BYE), lab(*steps, BYE)
    await reference.cold_turn("go")
    log = SqliteTurnLog(tmp_path / "log.db")
    try:
        await killed_lab.killed_turn("go", at, lambda: log)
    finally:
        await log.close()
    for process in (reference, killed_lab):
        await process.cold_turn("and on")
    assert killed_lab.bodies == reference.bodies
    assert len(killed_lab.bodies) == len(steps) + 1


async def test_endless_pauses_fail_the_turn():
    """A turn that never ends fails at a limit, with the reason."""
    cold = AnthropicLab(tools=[SEARCH])
    cold.plan(*({"items": [{"text": "And on."}], "incomplete": "pause_turn"},) * 60)
    outcome = await cold.cold_turn("search")
    assert "paused 51 times" in outcome.error["message"]
    assert len(cold.bodies) == 51


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        ({"error": {"status": 401, "message": "invalid x-api-key"}}, "401: invalid x-api-key"),
        ({"text": "Half", "fail": {"code": "invalid_request_error", "message": "too long"}}, "too long"),
    ],
)
async def test_an_error_has_the_words_of_the_service(step, reason):
    """What cannot be retried ends the turn with a sentence, after one request."""
    cold = lab(step)
    outcome = await cold.cold_turn("go")
    assert reason in outcome.error["message"]
    assert len(cold.bodies) == 1


async def test_a_callers_documents_and_files_are_sent():
    """What the framework's client leaves out reaches the service: files by id, and documents."""
    message = Message(
        "user",
        [
            Content.from_text("Read."),
            Content.from_uri("data:application/pdf;base64,JVBERg==", media_type="application/pdf"),
            Content.from_hosted_file("file_1"),
            Content.from_hosted_file("file_2", media_type="application/pdf", name="a.pdf"),
        ],
    )
    client = ANTHROPIC.adapt(AnthropicLab.bare_client())
    (sent,) = client._prepare_messages_for_anthropic([message])
    assert sent == {
        "role": "user",
        "content": [
            {"type": "text", "text": "Read."},
            {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
            {"type": "container_upload", "file_id": "file_1"},
            {"type": "document", "source": {"type": "file", "file_id": "file_2"}, "title": "a.pdf"},
        ],
    }


@pytest.mark.parametrize(
    ("media_type", "data", "is_text"),
    [
        ("text/csv", b"a;b", True),
        ("application/json; charset=utf-8", b"{}", True),
        ("text/x-python", "é".encode(), True),
        ("application/octet-stream", b"a;b", True),
        ("application/zip", b"PK\x03\x04\xff", False),
        ("image/heic", b"\x00\x00\xff", False),
        ("text/plain", b"", False),
    ],
)
async def test_a_file_of_a_caller_or_a_tool_is_a_document_or_named(media_type: str, data: bytes, is_text: bool):
    """A text is sent whatever its type is called; what the service does not take is named to the model."""
    uri = f"data:{media_type.partition(';')[0]};base64,{base64.b64encode(data).decode()}"
    file = Content("data", uri=uri, media_type=media_type, additional_properties={"filename": "my file"})
    result = Content.from_function_result("call_1", result=[Content.from_text("see"), file])
    call = Message("assistant", [Content.from_function_call("call_1", "look", arguments="{}")])
    client = ANTHROPIC.adapt(AnthropicLab.bare_client())
    question, _, answer = client._prepare_messages_for_anthropic(
        [Message("user", [file]), call, Message("tool", [result])]
    )
    for block in (question["content"][-1], answer["content"][0]["content"][-1]):
        if is_text:
            source = {"type": "text", "media_type": "text/plain", "data": data.decode()}
            assert block == {"type": "document", "source": source, "title": "my file"}
        else:
            assert block["type"] == "text"
            assert "not sent" in block["text"]


@given(st.text(st.characters(codec="utf-8"), max_size=60), st.integers(1, 9), st.booleans())
def test_code_is_streamed_while_it_arrives(code, size, ascii_only):
    """However the input is cut into fragments, the fragments of code are the code."""
    text = json.dumps({"code": code, "more": 1}, ensure_ascii=ascii_only)
    reader = CodeText()
    assert "".join(reader.feed(text[start : start + size]) for start in range(0, len(text), size)) == code


def _text(text):
    return {"type": "text", "text": text}
