"""The arguments of a call whose pieces have several forms: what the fold gives is what a live run gives the tool."""

import json

import pytest
from agent_framework import ChatResponse, ChatResponseUpdate, Content, Message

from durable_agent_host.stream.fold import fold_contents, fold_updates
from tests.durable_agent_host.scripted_service import scripted_service
from tests.durable_agent_host.stream.comparing import fold_part
from tests.durable_agent_host.stream.streams import encode_messages, provider, stored_all
from tests.kit import RECORDINGS

STREAMS = {
    "an empty object, then text": [{}, '{"a":', "2}"],
    "an empty object, an empty text, then text": [{}, "", '{"a":', "", "2}"],
    "an empty object and no more": [{}],
    "an empty object and an empty text": [{}, ""],
    "an empty text, then an object": ["", {"a": 2}],
    "an empty text and an empty object": ["", {}],
    "nothing, then text": [None, '{"a":', None, "2}"],
    "text, then an empty object": ['{"a":', {}, "2}"],
    "text, then an empty text": ['{"a":2}', ""],
    "a text of an empty object, then text": ["{}", '{"a":2}'],
    "an object, then an empty text": [{"a": 2}, ""],
    "an object, then an empty object": [{"a": 2}, {}],
    "objects": [{"a": 1}, {"b": 2}, {"a": 3}],
    "an object, then nothing": [{"a": 2}, None],
}


def call(arguments, mode="append", **names):
    return Content("function_call", call_id="c", name="f", arguments=arguments, merge_mode=mode, **names)


def updates_of(*contents):
    return [ChatResponseUpdate(role="assistant", contents=[content], message_id="m") for content in contents]


def live_arguments(updates):
    """What the framework gives the tool of a live run, which counts no arguments and empty ones alike."""
    contents = ChatResponse.from_updates(updates).messages[0].contents
    return [content.parse_arguments() or {} for content in contents]


def folded_arguments(updates):
    contents = fold_updates(updates, provider).messages[0].contents
    return [content.parse_arguments() or {} for content in contents]


@pytest.mark.parametrize("pieces", STREAMS.values(), ids=STREAMS)
def test_the_folded_arguments_are_those_of_the_live_run(pieces):
    """In whatever forms the pieces come, however they are grouped, and when a history has them chunk by chunk."""
    updates = updates_of(*map(call, pieces))
    assert folded_arguments(updates) == live_arguments(updates)
    expected = stored_all(fold_updates(updates, provider))
    for first in range(len(updates) + 1):
        for second in range(first, len(updates) + 1):
            parts = updates[:first], updates[first:second], updates[second:]
            grouped_updates = [update for part in parts for update in fold_part(part, provider)]
            assert stored_all(fold_updates(grouped_updates, provider)) == expected
    (content,) = fold_contents([call(piece, None) for piece in pieces])
    assert [content.parse_arguments() or {}] == live_arguments(updates)


def find_recordings(service, suffix):
    folder = RECORDINGS / service
    return sorted([*folder.glob(f"*{suffix}"), *folder.glob(f"multiturn/*/*{suffix}")]) if folder.exists() else []


async def updates_of_recording(make_client, path):
    """What the framework's client makes of a recorded stream."""
    with scripted_service() as service:
        service.play([json.loads(line)["data"] for line in path.read_text().splitlines()])
        client = make_client(service.url)
        return [update async for update in client._inner_get_response(messages=QUESTION, stream=True, options=LIMITED)]


QUESTION = [Message("user", ["go"])]
LIMITED = {"max_tokens": 100}


def anthropic_client(url):
    from agent_framework_anthropic import AnthropicClient

    return AnthropicClient(model="m", api_key="practice", base_url=url)


def gemini_client(url):
    from agent_framework_gemini import GeminiChatClient
    from google.genai import Client

    return GeminiChatClient(model="m", client=Client(api_key="practice", http_options={"base_url": url}))


STREAMED = [(anthropic_client, path) for path in find_recordings("anthropic", ".jsonl")]
STREAMED += [(gemini_client, path) for path in find_recordings("gemini", ".jsonl")]


@pytest.mark.recordings
@pytest.mark.filterwarnings("ignore:Inheritance class:DeprecationWarning")  # within Google's SDK
@pytest.mark.parametrize(
    ("make_client", "path"), STREAMED, ids=lambda value: "/".join(getattr(value, "parts", ("",))[-3:])
)
async def test_calls_of_recorded_streams_have_the_arguments_of_the_live_run(make_client, path):
    """Names, ids and arguments of every call are those that the framework's own end of a stream has."""
    updates = await updates_of_recording(make_client, path)
    live = ChatResponse.from_updates(updates).messages
    messages = fold_updates(updates, provider).messages

    def calls(messages):
        kinds = {"function_call", "mcp_server_tool_call", "code_interpreter_tool_call", "shell_tool_call"}
        found = [content for message in messages for content in message.contents if content.type in kinds]
        return [
            (
                content.type,
                content.call_id,
                content.name or content.tool_name,
                content.arguments,
                [part.text for part in content.inputs or ()],
            )
            for content in found
        ]

    assert calls(messages) == calls(live)
    assert encode_messages(messages) == encode_messages(fold_updates(fold_part(updates, provider), provider).messages)
