"""Recorded conversations of Anthropic: accepted requests are what ours are."""

import json
import os

import pytest
from agent_framework import FunctionTool

from tests.durable_agent_host.anthropic_lab import AnthropicLab
from tests.kit import RECORDINGS

pytestmark = pytest.mark.recordings

FOLDER = RECORDINGS / "anthropic"

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


def conversations():
    if not FOLDER.is_dir():
        return ["none"]
    return sorted(folder.name for folder in (FOLDER / "multiturn").iterdir() if folder.name not in NO_FIT)


def needs_recordings():
    if not FOLDER.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", conversations())
async def test_a_cold_process_sends_what_the_service_has_accepted(name):
    """Each recorded turn, played and stored; the next request has the messages of the recorded one."""
    needs_recordings()
    folder = FOLDER / "multiturn" / name
    requests = [json.loads(path.read_text()) for path in sorted(folder.glob("*.request.json"))]
    results = results_by_call(requests)
    cold = AnthropicLab(
        recordings=RECORDINGS,
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
