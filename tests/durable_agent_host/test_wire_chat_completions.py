"""What a process sends to Chat Completions that knows a conversation from its stored state alone."""

import base64
import json

import pytest
from agent_framework import Content, FunctionTool, Message
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.providers.chat_completions.provider import CHAT
from durable_agent_host.stream.fold import fold_updates
from practice_model.rules.chat_requests import check_request
from tests.durable_agent_host.chat_lab import ChatLab
from tests.durable_agent_host.stream.streams import encode_messages

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
CITATION = {
    "url": "https://example.com/a",
    "title": "A page",
    "start_index": 0,
    "end_index": 5,
    "content": "What it says",
}
RESPONSES = {
    "text": {"content": "Hello, you."},
    "DeepSeek": {"content": "Hello.", "reasoning_content": "The user says hello, so I do the same."},
    "DeepSeek without a thought": {"content": "Hello.", "reasoning_content": ""},
    "vLLM": {"content": "Hello.", "reasoning": "The user says hello, so I do the same."},
    "OpenRouter": {"content": "Hello.", "reasoning": DETAILS[0]["text"], "reasoning_details": DETAILS},
    "citations": {"content": "Hello.", "annotations": [{"type": "url_citation", "url_citation": CITATION}]},
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


@pytest.mark.drawn(9)
@pytest.mark.parametrize("name", RESPONSES)
@pytest.mark.parametrize("calls", [False, True])
async def test_a_cold_process_sends_every_field_of_a_response_back(name, calls):
    """Every field of an answer goes back as it came, after its tools and on later turns, live and cold alike."""
    fields = RESPONSES[name] | ({"tool_calls": [CALL]} if calls else {})
    labs = ChatLab(model="m", tools=[tool()]), ChatLab(model="m", tools=[tool()])
    for lab in labs:
        lab.plan_message(**fields)
        if calls:
            lab.plan_message(content="It rains.")
        lab.plan_message(content="Bye.")
        lab.plan_message(content="Still here?")
    cold, live = labs
    for text in ("one", "two", "three"):
        outcome = await cold.cold_turn(text)
        assert outcome.error is None, outcome.error
    await live.live_turns(["one", "two", "three"])
    assert cold.bodies == live.bodies
    assert not cold.refusals
    expected_message = {"role": "assistant", "content": None} | fields
    assert all(messages[2] == expected_message for messages in cold.sent_messages[1:])
    if calls:
        results = [messages[3] for messages in cold.sent_messages[1:]]
        assert results == [{"role": "tool", "tool_call_id": "call_1", "content": "rain in Oslo"}] * len(results)


@pytest.mark.parametrize("name", RESPONSES)
async def test_a_response_that_is_not_streamed_has_the_same_contents(name):
    """The two ways to ask give the same contents, and so the same next request."""
    contents = []
    for stream in (False, True):
        lab = ChatLab(model="m")
        lab.plan_message(**RESPONSES[name], tool_calls=[CALL])
        async with lab.agent() as agent:
            pending_response = CHAT.adapt(agent.client).get_response([Message("user", ["go"])], stream=stream)
            response = (
                fold_updates([update async for update in pending_response], CHAT) if stream else await pending_response
            )
        assert [body["stream"] for body in lab.bodies] == [True]
        contents.append([message["contents"] for message in encode_messages(response.messages)])
    assert contents[0] == contents[1]


def call_delta(index, arguments, **fields):
    """A fragment of a call."""
    function = {"arguments": arguments} | {key: fields.pop(key) for key in ("name",) if key in fields}
    return {"tool_calls": [({} if index is None else {"index": index}) | fields | {"function": function}]}


def weather_calls(*ids, arguments=('{"city":"Oslo"}', '{"city":"Rome"}')):
    """The calls that two cities take."""
    pairs = zip(ids, arguments, strict=False)
    return [
        {"id": call_id, "type": "function", "function": {"name": "weather", "arguments": text}}
        for call_id, text in pairs
    ]


def derived_id(index):
    """The id of a call that the service left without one."""
    return f"derived {index}"


STREAMS = {
    "fragments of two calls, mixed": (
        [
            call_delta(0, '{"city"', id="a", type="function", name="weather"),
            call_delta(1, '{"city"', id="b", type="function", name="weather"),
            call_delta(1, ':"Rome"}'),
            call_delta(0, ':"Oslo"}'),
        ],
        {"tool_calls": weather_calls("a", "b")},
    ),
    "no ids": (
        [call_delta(0, '{"city":"Oslo"}', name="weather"), call_delta(1, '{"city":"Rome"}', name="weather")],
        {"tool_calls": weather_calls(derived_id(0), derived_id(1))},
    ),
    "an id that comes late": (
        [call_delta(0, '{"city"', name="weather"), call_delta(0, ':"Oslo"}', id="late")],
        {"tool_calls": weather_calls(derived_id(0))},
    ),
    "no index": (
        [
            call_delta(None, '{"city":"Oslo"}', id="a", name="weather"),
            call_delta(None, '{"city":"Rome"}', id="b", name="weather"),
        ],
        {"tool_calls": weather_calls("a", "b")},
    ),
    "always index 0": (
        [
            call_delta(0, '{"city":"Oslo"}', id="a", name="weather"),
            call_delta(0, '{"city":"Rome"}', id="b", name="weather"),
        ],
        {"tool_calls": weather_calls("a", "b")},
    ),
    "neither index nor id": (
        [call_delta(None, '{"city":"Oslo"}', name="weather"), call_delta(None, '{"city":"Rome"}', name="weather")],
        {"tool_calls": weather_calls(derived_id(0), derived_id(1))},
    ),
    "id and name in every fragment": (
        [call_delta(0, text, id="a", name="weather") for text in ('{"ci', 'ty":"Oslo', '"}')],
        {"tool_calls": weather_calls("a")},
    ),
    "name in fragments": (
        [call_delta(0, "", id="a", name="wea"), call_delta(0, "", name="ther"), call_delta(0, '{"city":"Oslo"}')],
        {"tool_calls": weather_calls("a")},
    ),
    "ids twice, which OpenAI refuses": (
        [
            call_delta(0, '{"city":"Oslo"}', id="a", name="weather"),
            call_delta(1, '{"city":"Rome"}', id="a", name="weather"),
        ],
        {"tool_calls": weather_calls("a", derived_id(1))},
    ),
    "a signature on a call": (
        [
            call_delta(
                0, '{"city":"Oslo"}', id="a", name="weather", extra_content={"google": {"thought_signature": "c2ln"}}
            )
        ],
        {"tool_calls": [weather_calls("a")[0] | {"extra_content": {"google": {"thought_signature": "c2ln"}}}]},
    ),
    "details merged by index and type": (
        [
            {
                "reasoning": "I ",
                "reasoning_details": [{"type": "reasoning.text", "text": "I ", "format": "f", "index": 0}],
            },
            {
                "reasoning": "see",
                "reasoning_details": [{"type": "reasoning.text", "text": "see", "format": "f", "index": 0}],
            },
            {"reasoning_details": [{"type": "reasoning.text", "signature": "c2ln", "format": "f", "index": 0}]},
            {"reasoning_details": [{"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 0}]},
            {"content": "Hello"},
        ],
        {
            "content": "Hello",
            "reasoning": "I see",
            "reasoning_details": [
                {"type": "reasoning.text", "text": "I see", "format": "f", "index": 0, "signature": "c2ln"},
                {"type": "reasoning.encrypted", "data": "gAAA", "id": "rs_1", "index": 0},
            ],
        },
    ),
    "chunks of Mistral's": (
        [
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "I "}]}]},
            {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "see"}]}]},
            {"content": [{"type": "text", "text": "Hello"}]},
        ],
        {
            "content": [
                {"type": "thinking", "thinking": [{"type": "text", "text": "I see"}]},
                {"type": "text", "text": "Hello"},
            ]
        },
    ),
    "unknown texts, objects and numbers": (
        [{"mood": "sun", "score": {"x": 1}}, {"mood": "ny", "score": {"y": 2}}, {"content": "Hello", "odd": None}],
        {"content": "Hello", "mood": "sunny", "score": {"x": 1, "y": 2}},
    ),
    "citations again and again": (
        [{"content": "Hello", "annotations": [{"type": "url_citation", "url_citation": CITATION}]}] * 1
        + [{"annotations": [{"type": "url_citation", "url_citation": CITATION}]}],
        {"content": "Hello", "annotations": [{"type": "url_citation", "url_citation": CITATION}]},
    ),
}
"""What is streamed → the message that goes back."""


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", STREAMS)
async def test_the_deltas_of_a_stream_are_sent_back_as_one_message(name):
    """However a service numbers, names and cuts what it says, it gets the whole message back."""
    deltas, fields = STREAMS[name]
    lab = ChatLab(model="practice-parts" if "Mistral" in name else "m", tools=[tool()])
    lab.streams(
        {"role": "assistant", "content": None}, *deltas, finish="tool_calls" if "tool_calls" in fields else "stop"
    )
    lab.plan_message(content="Done.")
    lab.plan_message(content="Bye.")
    for text in ("one", "two"):
        outcome = await lab.cold_turn(text)
        assert outcome.error is None, outcome.error
    assert not lab.refusals
    messages = lab.sent_messages[-1]
    sent, expected_message = dict(messages[2]), {"role": "assistant", "content": None} | fields
    for index, call in enumerate(expected_message.get("tool_calls") or ()):
        if call["id"] == derived_id(index):
            assert sent["tool_calls"][index]["id"].startswith("call_")
            call["id"] = sent["tool_calls"][index]["id"]
    assert sent == expected_message
    calls = expected_message.get("tool_calls") or []
    assert [message["tool_call_id"] for message in messages[3 : 3 + len(calls)]] == [call["id"] for call in calls]
    cities = [message["content"] for message in messages[3 : 3 + len(calls)]]
    assert cities == ["rain in Oslo", "rain in Rome"][: len(calls)]


async def test_databricks_reasoning_is_shown():
    """It comes as summaries among the parts of the content."""
    lab = ChatLab(model="m")
    thoughts = [[{"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}] for text in ("I ", "see")]
    lab.streams(*({"content": parts} for parts in thoughts), {"content": "Hello"}, finish="stop")
    outcome = await lab.cold_turn("one")
    contents = outcome.entries[-1]["messages"][0]["contents"]
    assert [(content["$type"], content["text"]) for content in contents] == [("reasoning", "I see"), ("text", "Hello")]


async def test_the_first_choice_is_the_answer():
    """A second choice does not mix with it, and does not go back, but is stored with it."""
    lab = ChatLab(model="m")
    chunks = [
        {"index": index, "delta": {"content": text}} for index, text in ((0, "Yes"), (1, "No"), (0, "."), (1, "!"))
    ]
    end_chunks = [{"index": index, "delta": {}, "finish_reason": "stop"} for index in (0, 1)]
    lab.plan(
        {
            "items": [
                {"item": {"type": "chat.completion.chunk", "choices": [choice]}} for choice in (*chunks, *end_chunks)
            ]
        }
    )
    lab.plan_message(content="Bye.")
    outcome = await lab.cold_turn("one")
    assert outcome.text == "Yes."
    assert '"other_choices": [{"index": 1, "message": {"role": "assistant", "content": "No!"}}]' in json.dumps(
        encode_session(lab.session)
    )
    await lab.cold_turn("two")
    assistant_messages = [message for message in lab.sent_messages[-1] if message["role"] == "assistant"]
    assert assistant_messages == [{"role": "assistant", "content": "Yes."}]


async def test_another_service_gets_the_standard_fields():
    """Further fields of a service's response are stored, and only that service gets them."""
    lab = ChatLab(model="m", tools=[tool()])
    lab.plan_message(content="Hello.", reasoning_content="Thinking.", tool_calls=[CALL | {"extra_content": {"x": 1}}])
    lab.plan_message(content="Done.")
    lab.plan_message(content="Bye.", times=3)
    await lab.cold_turn("one")
    lab.host = "elsewhere"
    await lab.cold_turn("two")
    assert lab.sent_messages[-1][2] == {"role": "assistant", "content": "Hello.", "tool_calls": [CALL]}
    lab.host = "model"
    await lab.cold_turn("three")
    assert lab.sent_messages[-1][2]["reasoning_content"] == "Thinking."


async def test_audio_is_sent_back_by_its_id_until_it_expires():
    """The bytes are stored once and not sent again; sound that has expired goes back as what it says."""
    lab = ChatLab(model="m", options={"audio": {"format": "wav", "voice": "alloy"}})
    sound = base64.b64encode(bytes(range(200))).decode()
    deltas = [{"audio": {"id": "audio_1"}}, {"audio": {"transcript": "Good "}}, {"audio": {"transcript": "day."}}]
    deltas += [{"audio": {"data": sound[:40]}}, {"audio": {"data": sound[40:], "expires_at": 4_000_000_000}}]
    lab.streams(*deltas)
    lab.plan_message(content="Bye.", times=3)
    outcome = await lab.cold_turn("one")
    assert outcome.text == "Good day."
    assert json.dumps(outcome.entries).count(sound[:40]) == 1
    await lab.cold_turn("two")
    assert lab.sent_messages[-1][2] == {"role": "assistant", "content": None, "audio": {"id": "audio_1"}}
    lab.session = decode_session(
        json.loads(json.dumps(encode_session(lab.session)).replace("4000000000", "1000000000"))
    )
    await lab.cold_turn("three")
    assert lab.sent_messages[-1][2] == {"role": "assistant", "content": "Good day."}


async def test_open_calls_get_results_and_pictures_become_the_users():
    """An open call gets a result, results stand behind their calls, and pictures of tools are shown as the user's."""
    picture = Content.from_data(b"png", media_type="image/png")
    call = Content("function_call", call_id="call_a", name="look", arguments="{}")
    open_call = Content("function_call", call_id="x" * 64, name="look", arguments="{}")
    result = Content.from_function_result("call_a", result=[Content.from_text("seen"), picture])
    history = [
        Message("user", ["look"]),
        Message("assistant", [call, open_call]),
        Message("user", ["and?"]),
        Message("tool", [result]),
    ]
    client = CHAT.adapt(OpenAIChatCompletionClient(model="m", api_key="k"))
    sent = client._prepare_messages_for_openai(history)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [item["id"] for item in sent[1]["tool_calls"]] == [item["tool_call_id"] for item in sent[2:4]]
    assert sent[2]["content"] == "seen\n[file: image/png, 3 bytes; in the next message]"
    assert "not known" in sent[3]["content"]
    assert sent[5]["content"] == [
        {"type": "text", "text": "[files that the tools returned: image/png, 3 bytes]"},
        {"type": "image_url", "image_url": {"url": picture.uri}},
    ]
    assert check_request({"model": "m", "messages": sent}) is None
