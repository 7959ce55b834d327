"""What a client for Anthropic sends on the next turn: what the service had given out, cold as live."""

import pytest
from agent_framework import tool

from durable_agent_host.turn_log.sqlite.log import SqliteTurnLog
from tests.durable_agent_host.anthropic_lab import AnthropicLab

CODE = {"type": "code_execution_20260120", "name": "code_execution"}
SEARCH = {"type": "web_search_20250305", "name": "web_search"}


@tool(approval_mode="never_require")
def convert(amount: float) -> str:
    """Convert an amount."""
    return f"{amount * 2:g} EUR"


def search(number, **fields):
    """A plan's item: a call of the service's search."""
    call = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {"query": "größer"}}
    return {"item": call | fields}


def found(number):
    """A plan's item: what the search has found."""
    page = {"type": "web_search_result", "url": "https://example.com", "title": "t", "encrypted_content": "e"}
    return {"item": {"type": "web_search_tool_result", "tool_use_id": f"srvtoolu_{number}", "content": [page]}}


def cited(text, quoted):
    """A plan's item: a text with a citation."""
    place = {"type": "web_search_result_location", "url": "https://example.com", "title": None, "cited_text": quoted}
    return {"item": {"type": "text", "text": text, "citations": [place | {"encrypted_index": "i=="}]}}


CALLS = {
    "reasoning": "hm",
    "text": "I call.",
    "calls": [{"name": "convert", "arguments": {"amount": 2}}, {"name": "convert", "arguments": {"amount": 3}}],
}
CODE_RUN = {"items": [{"reasoning": "run"}, {"code": "print(1)", "logs": "1\n", "image": True}, {"text": "One."}]}
CITED = {"items": [search(1), found(1), {"text": "It is "}, cited("so", "q"), {"text": ", "}, cited("and so", "r")]}
UNKNOWN = {"items": [{"item": {"type": "hologram", "planes": [1, None, {"x": 1.5}]}}, {"text": "Look."}]}
REDACTED = {"items": [{"item": {"type": "redacted_thinking", "data": "SEALED"}}, {"text": "Hidden."}]}
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
CONVERSATION = (CALLS, CODE_RUN, CITED, UNKNOWN, HOSTED, BYE)
TEXTS = ("first", "second", "third", "fourth", "fifth")


def lab(*steps, **fields):
    """A lab whose model gives these answers."""
    made = AnthropicLab(tools=[convert, CODE, SEARCH], **fields)
    made.plan(*steps)
    return made


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


async def test_blocks_come_back_as_the_service_gave_them_out():
    """Code with its result and files, searches, cited texts, unknown blocks: in their order, with all their fields."""
    mine = lab(*CONVERSATION)
    for text in TEXTS:
        await mine.cold_turn(text)
    by_kind = {}
    for message in mine.sent[-1]:
        for block in message["content"]:
            by_kind.setdefault(block["type"], []).append(block)
    given = [one["item"] for step in (CITED, UNKNOWN, HOSTED) for one in step["items"] if "item" in one]
    for block in given:
        assert block in by_kind[block["type"]]
    texts = [block["text"] for block in by_kind["text"] if block["text"] not in TEXTS]
    assert texts == ["I call.", "One.", "It is ", "so", ", ", "and so", "Look.", "Read."]
    (run,) = (block for block in by_kind["server_tool_use"] if block["name"] == "code_execution")
    (result,) = by_kind["code_execution_tool_result"]
    assert run["input"] == {"code": "print(1)"}
    assert (result["tool_use_id"], result["content"]["stdout"]) == (run["id"], "1\n")
    assert result["content"]["content"][0]["file_id"].startswith("file_")


async def test_the_container_goes_into_the_next_request_while_it_lives():
    """Code of the next turn finds the files of the last; when the service has lost them, the turn goes on without."""
    mine = lab(CODE_RUN, CODE_RUN, BYE, BYE)
    for text in TEXTS[:2]:
        await mine.cold_turn(text)
    first, second = mine.bodies
    assert "container" not in first
    assert second["container"].startswith("container_")
    await mine.expire_containers()
    outcome = await mine.cold_turn("third")
    assert (outcome.error, outcome.text) == (None, "Bye.")
    assert len(mine.refusals) == 1
    assert "container" not in mine.bodies[-1]
    await mine.cold_turn("fourth")
    assert len(mine.refusals) == 1


PAUSED = {"items": [{"text": "Let me see."}, search(3)], "incomplete": "pause_turn"}


async def test_a_model_that_pauses_goes_on_in_the_same_turn():
    """The paused answer is sent back as it is, with nothing said in between; the turn has one answer."""
    mine = lab(PAUSED, {"items": [found(3), {"text": "Found."}]}, BYE)
    outcome = await mine.cold_turn("search")
    assert mine.sent[1] == [*mine.sent[0], {"role": "assistant", "content": [_text("Let me see."), search(3)["item"]]}]
    assert outcome.text == "Let me see.Found."
    assert outcome.usage is not None
    await mine.cold_turn("and on")
    roles = [message["role"] for message in mine.sent[2]]
    assert roles == ["user", "assistant", "user"]
    assert mine.sent[2][1]["content"] == [
        *(_text("Let me see."), search(3)["item"], found(3)["item"]),
        _text("Found."),
    ]
    assert mine.refusals == []


@pytest.mark.parametrize("at", [1, 2, 3, 4])
async def test_a_process_that_dies_at_a_pause_pays_for_no_call_twice(at, tmp_path):
    """The paused answer comes from the journal: each call of the model is made once, however the process ended."""
    steps = (CALLS, PAUSED, {"items": [found(3), CALLS | {"text": "Again."}]}, BYE)
    whole, killed = lab(*steps, BYE), lab(*steps, BYE)
    await whole.cold_turn("go")
    log = SqliteTurnLog(tmp_path / "log.db")
    try:
        await killed.killed_turn("go", at, lambda: log)
    finally:
        await log.close()
    for one in (whole, killed):
        await one.cold_turn("and on")
    assert killed.bodies == whole.bodies
    assert len(killed.bodies) == len(steps) + 1


def _text(text):
    return {"type": "text", "text": text}
