"""Recorded traffic of Anthropic: every block is stored and comes back, and accepted requests are what ours are."""

import json
import os

import pytest
from agent_framework import ChatResponse, FunctionTool, Message

from durable_agent_host.codec.journal_entry import decode_model_response, encode_model_response
from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from durable_agent_host.stream.fold import Fold, fold_updates, response_as_updates
from tests.durable_agent_host.anthropic_lab import AnthropicLab
from tests.durable_agent_host.anthropic_streams import FOLDER, blocks_of, parse_updates, recorded_streams
from tests.durable_agent_host.stream.comparing import fold_part
from tests.kit import RECORDINGS

pytestmark = pytest.mark.recordings

NO_FIT = {
    "code-exec-other-provider-history": "the first turn is another provider's",
    "in-flight-server-tool-accepted": "one turn, with a history that the caller made up",
    "programmatic-tool-calling": "requests were not recorded",
    "tool-search-bm25": "requests were not recorded",
    "code-exec-files-thinking": "the first request uploads a file, and the second has it in its message",
}
"""Recorded conversation → why the host cannot take it from its first turn."""

OMITTED_FIELDS = {"caller", "citations", "is_error", "authorization_token"}
"""Fields of the service's responses that recorded clients have omitted: ours sends them."""


def names():
    return sorted(recorded_streams()) if FOLDER.is_dir() else ["none"]


def conversations():
    if not FOLDER.is_dir():
        return ["none"]
    return sorted(folder.name for folder in (FOLDER / "multiturn").iterdir() if folder.name not in NO_FIT)


def needs_recordings():
    if not FOLDER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")


@pytest.mark.drawn(10)
@pytest.mark.parametrize("name", names())
def test_every_block_of_a_recorded_stream_is_stored_and_comes_back(name):
    """What is sent back after the store is what was streamed, block by block, however the stream was cut and folded."""
    needs_recordings()
    events = recorded_streams()[name]
    updates = parse_updates(events)
    response = Fold(updates, ANTHROPIC).response()
    wire = json.loads(json.dumps(encode_model_response(ChatResponse(messages=response.messages))))
    messages = ANTHROPIC.replay(decode_model_response(wire).messages, session_id="s")
    sent = ANTHROPIC.adapt(AnthropicLab.bare_client())._prepare_messages_for_anthropic(
        [Message("user", ["hi"]), *messages]
    )
    back = [block for message in sent if message["role"] == "assistant" for block in message["content"]]
    block_ids = {block.get("id") for block in blocks_of(events)}
    expected_blocks = [
        block
        for block in blocks_of(events)
        if not (block["type"] == "text" and not block["text"].strip())
        and not (block.get("tool_use_id") and block["tool_use_id"] not in block_ids)  # of a call in another message
    ]
    assert back == expected_blocks
    expected_json = to_stored_json(fold_updates(updates, ANTHROPIC))
    for size in (1, 3, 17):
        parts = [updates[start : start + size] for start in range(0, len(updates), size)]
        folded_updates = [update for part in parts for update in fold_part(part, ANTHROPIC)]
        assert to_stored_json(fold_updates(folded_updates, ANTHROPIC)) == expected_json
        assert to_stored_json(fold_updates(fold_part(folded_updates, ANTHROPIC), ANTHROPIC)) == expected_json
    assert (
        to_stored_json(fold_updates(response_as_updates(fold_updates(updates, ANTHROPIC)), ANTHROPIC)) == expected_json
    )


def to_stored_json(response):
    return json.dumps(encode_model_response(ChatResponse(messages=response.messages)), sort_keys=True)


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", conversations())
async def test_a_cold_process_sends_what_the_service_has_accepted(name):
    """Each recorded turn, played and stored; the next request has the messages of the recorded one."""
    needs_recordings()
    folder = FOLDER / "multiturn" / name
    requests = [json.loads(path.read_text()) for path in sorted(folder.glob("*.request.json"))]
    results = results_by_call(requests)
    cold = AnthropicLab(
        recordings_folder=RECORDINGS,
        tools=[*functions(requests[0], results), *hosted_tools(requests[0])],
        options={"thinking": requests[0]["thinking"]} if "thinking" in requests[0] else {},
    )
    for path in sorted([*folder.glob("*.events.jsonl"), *folder.glob("*.response.json")]):
        cold.plan({"recording": f"multiturn/{name}/{path.name.split('.')[0]}"})
    for body in requests:
        message = body["messages"][-1]
        if message["role"] == "user" and not results_of(message):
            outcome = await cold.cold_turn(text_of(message["content"]))
            assert outcome.error is None
    assert cold.refusals == []
    assert [plain(messages) for messages in cold.sent] == [plain(body["messages"]) for body in requests]
    assert [body.get("container") for body in cold.bodies] == [body.get("container") for body in requests]


def functions(body, results):
    """The function tools of a request, which answer as recorded."""

    def answering(name):
        return lambda **arguments: results[name, json.dumps(arguments, sort_keys=True)]

    return [
        FunctionTool(
            name=tool["name"],
            description=tool.get("description", ""),
            func=answering(tool["name"]),
            input_model=tool["input_schema"],
            approval_mode="never_require",
        )
        for tool in body.get("tools", [])
        if "input_schema" in tool
    ]


def results_by_call(requests):
    """What the app's tools had returned, by name and arguments."""
    blocks = [block for body in requests for message in body["messages"] for block in message["content"]]
    results = {block["tool_use_id"]: text_of(block["content"]) for block in blocks if block["type"] == "tool_result"}
    calls = [block for block in blocks if block["type"] == "tool_use"]
    return {(call["name"], json.dumps(call["input"], sort_keys=True)): results[call["id"]] for call in calls}


def hosted_tools(body):
    servers = [
        {"type": "mcp", "server_label": server["name"], "server_url": server["url"]}
        for server in body.get("mcp_servers", [])
    ]
    return [tool for tool in body.get("tools", []) if "input_schema" not in tool] + servers


def results_of(message):
    content = message["content"]
    return [block for block in content if isinstance(block, dict) and block["type"] == "tool_result"]


def text_of(content):
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def plain(messages):
    """Normalize messages: contents as blocks, without the fields that recorded clients have omitted."""
    return [
        {"role": message["role"], "content": [plain_block(block) for block in message["content"]]}
        for message in messages
    ]


_AS_RECORDED = str.maketrans("–‘’", "-''")  # noqa: RUF001
"""What the recordings' source writes differently in the request than in the answer that it sends back."""


def plain_block(block):
    fields = {name: value for name, value in block.items() if name not in OMITTED_FIELDS and value is not None}
    if isinstance(fields.get("title"), str):
        fields["title"] = fields["title"].translate(_AS_RECORDED)
    if block["type"] == "tool_result":
        fields["content"] = text_of(block["content"])
    if isinstance(fields.get("content"), list):
        fields["content"] = [
            plain_block(item) if isinstance(item, dict) and "type" in item else item for item in fields["content"]
        ]
    return fields
