"""What a process sends to Chat Completions that knows a conversation from its stored state alone."""

import pytest
from agent_framework import FunctionTool

from tests.durable_agent_host.chat_lab import ChatLab

CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{ "city":"Oslo" }'}}
DETAILS = [
    {
        "type": "reasoning.text",
        "format": "anthropic-claude-v1",
        "index": 0,
        "text": "First I look at the weather in Oslo.",
        "signature": "c2ln" * 9,
    },
    {"type": "reasoning.encrypted", "format": "openai-responses-v1", "index": 1, "id": "rs_1", "data": "gAAA" * 9},
]
NOTE = {"url": "https://example.com/a", "title": "A page", "start_index": 0, "end_index": 5, "content": "What it says"}
ANSWERS = {
    "text": {"content": "Hello, you."},
    "DeepSeek": {"content": "Hello.", "reasoning_content": "The user says hello, so I do the same."},
    "DeepSeek without a thought": {"content": "Hello.", "reasoning_content": ""},
    "vLLM": {"content": "Hello.", "reasoning": "The user says hello, so I do the same."},
    "OpenRouter": {"content": "Hello.", "reasoning": DETAILS[0]["text"], "reasoning_details": DETAILS},
    "citations": {"content": "Hello.", "annotations": [{"type": "url_citation", "url_citation": NOTE}]},
    "refusal": {"content": None, "refusal": "I cannot help with that."},
    "pictures": {
        "content": "Here.",
        "images": [{"type": "image_url", "image_url": {"url": "data:image/png;base64," + "iVBO" * 12}}],
    },
    "unknown": {"content": "Hello.", "mood": "sunny", "weights": {"a": [1, {"b": None, "c": "d"}]}},
}


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


def tool():
    """The tool that the answers call."""
    return FunctionTool(name="weather", func=weather)


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("calls", [False, True])
async def test_a_cold_process_sends_what_the_service_has_said(name, calls):
    """Every field of an answer goes back as it came, after its tools and on later turns, live and cold alike."""
    answer = ANSWERS[name] | ({"tool_calls": [CALL]} if calls else {})
    labs = ChatLab(model="m", tools=[tool()]), ChatLab(model="m", tools=[tool()])
    for lab in labs:
        lab.says(**answer)
        if calls:
            lab.says(content="It rains.")
        lab.says(content="Bye.")
        lab.says(content="Still here?")
    cold, live = labs
    for text in ("one", "two", "three"):
        outcome = await cold.cold_turn(text)
        assert outcome.error is None, outcome.error
    await live.live_turns(["one", "two", "three"])
    assert cold.bodies == live.bodies
    assert not cold.refusals
    expected = {"role": "assistant", "content": None} | answer
    assert all(messages[2] == expected for messages in cold.said[1:])
    if calls:
        results = [messages[3] for messages in cold.said[1:]]
        assert results == [{"role": "tool", "tool_call_id": "call_1", "content": "rain in Oslo"}] * len(results)
