"""Recordings with calls of the app's tools, played to an agent that has tools with these names."""

import json
import os
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import pytest
from agent_framework import FunctionTool

from durable_agent_host.model.ending import visible_turn_status
from tests.durable_agent_host.connection_closes import COMPLETE_STREAMS
from tests.durable_agent_host.finished_blocks import anthropic_blocks, responses_items
from tests.durable_agent_host.hostile_model import HostileModel, hostile_model
from tests.durable_agent_host.played_recordings import play, read_events, recorded_files, to_wire
from tests.kit import RECORDINGS

pytestmark = [
    pytest.mark.recordings,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*is discouraged:DeprecationWarning"),  # Google's SDK subclasses aiohttp's
]


class RecordedCall(NamedTuple):
    """A call of an app's tool: its arguments as text, or as an object where the service sends one."""

    call_id: str
    name: str
    arguments: Any


class RecordedCalls(NamedTuple):
    """The calls of an answer, and whether it was cut off or refused."""

    calls: list[RecordedCall]
    is_cut: bool


def recorded_calls(kind: str, recorded_events: Sequence[Any]) -> RecordedCalls:
    """Read the calls of a recorded stream without the host's code."""
    match kind:
        case "openai-responses":
            return _responses_calls(recorded_events)
        case "chat-completions":
            return _chat_calls([event for event in recorded_events if event != "[DONE]"])
        case "anthropic":
            blocks = [block for block in anthropic_blocks(recorded_events) if block["type"] == "tool_use"]
            ends = [event.get("delta") or event.get("message") or {} for event in recorded_events]
            calls = [RecordedCall(block["id"], block["name"], block["input"]) for block in blocks]
            return RecordedCalls(calls, any(end.get("stop_reason") in {"max_tokens", "refusal"} for end in ends))
        case "gemini":
            return _gemini_calls(
                [candidate for event in recorded_events for candidate in event.get("candidates") or ()]
            )
        case _:
            actions = [data["required_action"] for name, data in recorded_events if name.endswith("requires_action")]
            calls = [call for action in actions for call in action.get("submit_tool_outputs", {}).get("tool_calls", ())]
            functions = [(call["id"], call["function"]) for call in calls if call["type"] == "function"]
            return RecordedCalls([RecordedCall(i, f["name"], f["arguments"]) for i, f in functions], is_cut=False)


def _responses_calls(recorded_events: Sequence[Any]) -> RecordedCalls:
    calls = [item for item in responses_items(recorded_events) if item["type"] == "function_call"]
    is_cut = any(event["type"] == "response.incomplete" for event in recorded_events)
    return RecordedCalls([RecordedCall(call["call_id"], call["name"], call["arguments"]) for call in calls], is_cut)


def _chat_calls(chunks: Sequence[Any]) -> RecordedCalls:
    calls: dict[Any, RecordedCall] = {}
    reasons: set[Any] = set()
    for choice in [choice for chunk in chunks for choice in chunk.get("choices") or () if not choice.get("index")]:
        reasons.add(choice.get("finish_reason"))
        for delta in (choice.get("delta") or {}).get("tool_calls") or ():
            function = delta.get("function") or {}
            index = delta.get("index", len(calls))
            call_id, name, arguments = calls.get(index, RecordedCall("", "", ""))
            text = arguments + (function.get("arguments") or "")
            calls[index] = RecordedCall(call_id or delta.get("id") or "", name or function.get("name") or "", text)
    return RecordedCalls(list(calls.values()), bool(reasons & {"length", "content_filter"}))


def _gemini_calls(candidates: Sequence[Any]) -> RecordedCalls:
    parts = [part for candidate in candidates for part in (candidate.get("content") or {}).get("parts") or ()]
    calls: list[RecordedCall] = []
    for call in [part["functionCall"] for part in parts if "functionCall" in part]:
        if not call.get("name"):  # more of the last
            calls[-1].arguments.update(_partial_arguments(call, calls[-1].arguments))
            continue
        arguments = dict(call.get("args") or {})
        calls.append(RecordedCall(call.get("id") or "", call["name"], arguments | _partial_arguments(call, arguments)))
    reasons = {candidate.get("finishReason") for candidate in candidates}
    return RecordedCalls(calls, not reasons <= {None, "STOP"})


def _partial_arguments(call: Any, known: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for argument in call.get("partialArgs") or ():
        name = argument["jsonPath"].removeprefix("$.")
        value = next(value for field, value in argument.items() if field.endswith("Value"))
        found[name] = found.get(name, known.get(name, "")) + value if isinstance(value, str) else value
    return found


def cut_off(kind: str, recorded_events: Sequence[Any]) -> Sequence[Any]:
    """Change the end of a recorded stream: the service has cut it off behind the calls."""
    if kind == "openai-responses":
        fields = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return [
            event | {"type": "response.incomplete", "response": event["response"] | fields}
            if event["type"] == "response.completed"
            else event
            for event in recorded_events
        ]
    text = json.dumps(recorded_events)
    for end, cut_end in CUT_ENDS:
        text = text.replace(end, cut_end)
    return json.loads(text)


CUT_ENDS = [
    ('"finish_reason": "tool_calls"', '"finish_reason": "length"'),
    ('"finish_reason": "stop"', '"finish_reason": "length"'),
    ('"stop_reason": "tool_use"', '"stop_reason": "max_tokens"'),
    ('"finishReason": "STOP"', '"finishReason": "MAX_TOKENS"'),
]


@cache
def recordings_with_calls() -> list[str]:
    """List the recordings whose answer has calls."""
    names = recorded_files() if RECORDINGS.is_dir() else []
    return [name for name in names if recorded_calls(name.partition("/")[0], read_events(name)).calls] or ["none"]


@pytest.fixture(scope="module")
def model() -> Iterator[HostileModel]:
    """An endpoint that plays recordings."""
    with hostile_model() as running:
        yield running


def sent_calls(value: Any) -> Iterator[tuple[str, Any]]:
    """Find the names and arguments of the calls in a request."""
    if isinstance(value, list):
        for element in value:
            yield from sent_calls(element)
    elif isinstance(value, dict):
        for field in ("arguments", "input", "args"):
            if field in value and "name" in value:
                yield value["name"], value[field]
        for inner in value.values():
            yield from sent_calls(inner)


@pytest.mark.drawn(12)
@pytest.mark.parametrize("end", ["as recorded", "cut off"])
@pytest.mark.parametrize("name", recordings_with_calls())
def test_each_recorded_call_runs_once_unless_its_answer_was_cut(model: HostileModel, name: str, end: str):
    """With the recorded arguments, which the next request has; the calls of a cut answer neither run nor go back."""
    if not RECORDINGS.is_dir():
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    kind = name.partition("/")[0]
    recorded_events = read_events(name) if end == "as recorded" else cut_off(kind, read_events(name))
    calls, is_cut = recorded_calls(kind, recorded_events)
    started: list[tuple[str, Any]] = []

    def tool(tool_name: str) -> FunctionTool:
        def run(**arguments: Any) -> str:
            started.append((tool_name, arguments))
            return "done"

        properties = {field: {} for call in calls if call.name == tool_name for field in _parsed(call.arguments)}
        schema = {"type": "object", "properties": properties}
        return FunctionTool(name=tool_name, func=run, input_model=schema, approval_mode="never_require")

    tools = [tool(tool_name) for tool_name in sorted({call.name for call in calls})]
    played = play(model, kind, to_wire(kind, recorded_events), COMPLETE_STREAMS[kind], tools=tools)
    outcome = played.outcome
    assert outcome.status == "completed", outcome.error
    steps = [step for step in played.steps if step["kind"] == "tool_call" and step["runs_in"] == "host"]
    names = {call.name for call in calls}
    if is_cut:
        assert (started, len(model.received)) == ([], 1)
        assert visible_turn_status("completed", outcome.finish_reason) in {"incomplete", "refused"}
        assert [(step["name"], step["outcome"]) for step in steps] == [(call.name, "not_run") for call in calls]
        play(model, kind, COMPLETE_STREAMS[kind], tools=tools, entries=outcome.entries)
        assert [call for call in sent_calls(_conversation(model)) if call[0] in names] == []
        return
    expected = [(call.name, _parsed(call.arguments)) for call in calls]
    assert sorted(started, key=str) == sorted(expected, key=str)
    assert (outcome.text.endswith("Hi"), len(model.received)) == (True, 2)
    assert [step["outcome"] for step in steps] == ["success"] * len(calls)
    sent = _conversation(model)
    if kind == "azure-ai-agents":
        assert {output["tool_call_id"] for output in sent[0]} == {call.call_id for call in calls}
    else:
        assert [call for call in sent_calls(sent) if call[0] in names] == [
            (call.name, call.arguments or "{}" if call.arguments != {} else {}) for call in calls
        ]


def _parsed(arguments: Any) -> Any:
    """Read arguments; of those that were cut, nothing."""
    try:
        return (json.loads(arguments or "{}") or {}) if isinstance(arguments, str) else arguments
    except ValueError:
        return {}


def _conversation(model: HostileModel) -> list[Any]:
    body = json.loads(model.received[-1].body)
    return [body[field] for field in ("input", "messages", "contents", "tool_outputs") if field in body]
