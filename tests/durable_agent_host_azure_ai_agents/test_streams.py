"""Recorded streams of threads and runs: every block is stored and comes back, however the stream is cut."""

import json
import os

import pytest
from agent_framework import Content, Message

from durable_agent_host.codec.message import decode_message, encode_message
from durable_agent_host.stream.fold import fold_updates
from durable_agent_host_azure_ai_agents.provider import AZURE_AI_AGENTS
from durable_agent_host_azure_ai_agents.request_bodies import (
    approval_headers,
    build_run,
    build_tool,
    build_tool_outputs,
    parse_tool_outputs,
)
from durable_agent_host_azure_ai_agents.run_events import RunReader
from durable_agent_host_azure_ai_agents.thread_contents import METADATA
from tests.durable_agent_host.provider_lab import is_message, restore_block
from tests.kit import RECORDINGS

pytestmark = pytest.mark.recordings

STREAMS = sorted(
    str(path.relative_to(RECORDINGS))
    for provider in ("azure-ai-agents", "openai-assistants")
    for path in (RECORDINGS / provider).rglob("*.jsonl")
) or ["none"]


@pytest.fixture
def events(name):
    """One recorded stream."""
    if not RECORDINGS.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    return [json.loads(line) for line in (RECORDINGS / name).read_text().splitlines()]


def read(events):
    """Give the updates of a stream."""
    reader = RunReader("thread_1")
    return [update for event in events for update in reader.read(event["event"], event["data"])]


def encode_messages(response):
    """Give the messages of a response as a session stores them."""
    return [encode_message(message) for message in response.messages]


def contents_of(response):
    """Give the contents after a round trip through the store."""
    return [
        content
        for message_json in encode_messages(response)
        for content in decode_message(json.loads(json.dumps(message_json))).contents
    ]


@pytest.mark.drawn(6)
@pytest.mark.parametrize("name", STREAMS)
def test_every_block_comes_back_as_the_service_wrote_it(events):
    """Messages, calls and steps are stored in full."""
    groups = list(METADATA.group(contents_of(fold_updates(read(events), AZURE_AI_AGENTS))))
    messages = [restore_block(group)[0] for group in groups if is_message(group[0])]
    message_jsons = [
        event["data"] for event in events if event["event"] in {"thread.message.completed", "thread.message.incomplete"}
    ]
    assert messages == message_jsons
    calls = [
        restore_block(group)
        for group in groups
        if (mark := METADATA.find(group[0])) and mark["type"] not in {"message", "step"}
    ]
    by_id = {call["id"]: call for call, _ in calls}
    steps = [event["data"] for event in events if event["event"] == "thread.run.step.completed"]
    for step in steps:
        details = step["step_details"]
        step_fields = {name: value for name, value in step.items() if name != "step_details"}
        if details["type"] == "message_creation":
            group = next(
                group for group in groups if build_message_id(group) == details["message_creation"]["message_id"]
            )
            assert restore_block(group)[1] == step_fields
            continue
        service_calls = [call for call in details.get("tool_calls", []) if call["type"] != "function"]
        for call in service_calls:
            expected = {name: value for name, value in call.items() if value is not None or name != "output"}
            found = {name: value for name, value in by_id[call["id"]].items() if name in expected}
            assert found == expected
        if service_calls:
            assert any(call_fields == step_fields for _, call_fields in calls)
        else:
            marks = [mark for group in groups if (mark := METADATA.find(group[0])) and mark["type"] == "step"]
            assert any(mark["id"] == step["id"] for mark in marks)


def build_message_id(group):
    """Give the id of a message, or None."""
    return restore_block(group)[0]["id"] if is_message(group[0]) else None


@pytest.mark.drawn(5)
@pytest.mark.parametrize("name", STREAMS)
def test_nothing_of_a_stream_is_stored_twice(events):
    """What is stored is about as large as the finished messages and calls."""
    blocks = [
        event["data"]
        for event in events
        if event["event"].endswith((".completed", ".incomplete")) and event["event"] != "thread.run.completed"
    ]
    size = len(json.dumps(encode_messages(fold_updates(read(events), AZURE_AI_AGENTS))))
    assert size <= 1.5 * len(json.dumps(blocks)) + 3000


def test_citations_keep_their_spans_and_kinds():
    """A span that begins at 0 too; a path is no citation of a file."""
    notes = [
        {"type": "file_path", "text": "sandbox:/a", "start_index": 0, "end_index": 3, "file_path": {"file_id": "f1"}},
        {"type": "file_citation", "text": "[1]", "start_index": 4, "end_index": 7, "file_citation": {"file_id": "f2"}},
    ]
    message = {"id": "m", "content": [{"type": "text", "text": {"value": "abc [1]", "annotations": notes}}]}
    [content] = contents_of(
        fold_updates(read([{"event": "thread.message.completed", "data": message}]), AZURE_AI_AGENTS)
    )
    regions = [annotation["annotated_regions"][0]["start_index"] for annotation in content.annotations]
    kinds = [annotation["additional_properties"]["kind"] for annotation in content.annotations]
    assert (regions, kinds) == ([0, 4], ["file_path", "file_citation"])
    assert restore_block([content])[0] == message


def read_recording(name):
    """Give a recorded body, or skip."""
    if not RECORDINGS.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    return json.loads((RECORDINGS / "azure-ai-agents" / "multiturn" / name).read_text())


def test_outputs_are_submitted_as_the_service_has_accepted_them():
    """The recorded body, from the result that the framework hands to the client."""
    accepted_request = read_recording("fn-requires-action-submit-stream/05.request.json")
    results = [
        Content.from_function_result(tool_output["tool_call_id"], result=tool_output["output"])
        for tool_output in accepted_request["tool_outputs"]
    ]
    body = build_tool_outputs(parse_tool_outputs([Message("tool", results)]), {}, {})
    assert body | {"stream": True} == accepted_request


def test_runs_and_approvals_carry_headers_as_the_service_has_accepted_them():
    """The recorded bodies, from a tool that the app defines with its headers."""
    accepted_run = read_recording("mcp-approval-stream/04.request.json")
    accepted_request = read_recording("mcp-approval-stream/05.request.json")
    [resource] = accepted_run["tool_resources"]["mcp"]
    server = {"type": "mcp", "server_url": "https://gitmcp.io/Azure/azure-rest-api-specs", **resource}
    tools = [build_tool(server)]
    agent = {"id": accepted_run["assistant_id"], "tools": tools}
    assert build_run({"tools": [server]}, agent, {}, "") | {"stream": True} == accepted_run
    [approval] = accepted_request["tool_approvals"]
    call = Content("function_call", call_id=approval["tool_call_id"], name="n", hosted=True)
    approval_request = Content.from_function_approval_request(id=approval["tool_call_id"], function_call=call)
    outputs = parse_tool_outputs([Message("user", [approval_request.to_function_approval_response(approved=True)])])
    labels = {approval["tool_call_id"]: resource["server_label"]}
    assert build_tool_outputs(outputs, labels, approval_headers([server], {})) | {"stream": True} == accepted_request
