"""Every stream, recorded or made by hand, played once: what callers see of it, and what the next request has."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from agent_framework import FunctionTool

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.model.session import Session
from durable_agent_host.stream.fold import fold_updates, response_as_updates
from tests.durable_agent_host.connection_closes import COMPLETE_STREAMS
from tests.durable_agent_host.finished_blocks import cut_in_two, differences, items_to_send, sent_items
from tests.durable_agent_host.handmade_streams import HANDMADE_STREAMS
from tests.durable_agent_host.hostile_model import HostileModel, hostile_model
from tests.durable_agent_host.played_recordings import (
    play,
    play_live,
    read_events,
    recorded_files,
    to_wire,
)
from tests.durable_agent_host.scripted_service import chat_response
from tests.durable_agent_host.stream.streams import encode_messages
from tests.kit import RECORDINGS

pytestmark = [
    pytest.mark.recordings,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:.*is discouraged:DeprecationWarning"),  # Google's SDK subclasses aiohttp's
    pytest.mark.filterwarnings("ignore:.* is not a valid:UserWarning"),  # of enums that the SDK does not know
]
WITHOUT_ANSWER = ("pause-turn-web-search-stream/01", "error-failed-quota")
"""Recordings whose answer is in another recording, or that end with an error."""
IN_REQUESTS = {"openai-responses", "anthropic", "gemini"}
"""Services whose finished blocks are in the next request as they came."""


@pytest.fixture(scope="module")
def model() -> Iterator[HostileModel]:
    """An endpoint that plays recordings."""
    with hostile_model() as running:
        yield running


def without_new_ids(value: Any) -> Any:
    """Write a value without ids that a client makes up."""
    return json.loads(re.sub(r"(tool-call-|call_)[0-9a-f]{24,}", r"\1new", json.dumps(value)))


@pytest.mark.drawn(30)
@pytest.mark.parametrize("name", [*(recorded_files() if RECORDINGS.is_dir() else ["none"]), *HANDMADE_STREAMS])
def test_a_stream_is_displayed_stored_and_sent_back(model: HostileModel, name: str):
    """Events, answer and steps say what its finished blocks say, and the next request has each block.

    The whole request is that of a process that never stopped.
    """
    if name == "none":
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    kind = name.partition("/")[0]
    recorded_events = HANDMADE_STREAMS.get(name) or read_events(name)
    wire = to_wire(kind, recorded_events)
    played = play(model, kind, wire)
    if any(part in name for part in WITHOUT_ANSWER):
        return
    assert played.outcome.status in {"completed", "suspended"}, played.outcome.error
    assert differences(kind, recorded_events, played) == []
    if played.body["status"] != "completed" or kind == "azure-ai-agents":
        return  # the service keeps the conversation, or the answer has no end
    session = decode_session(json.loads(json.dumps(encode_session(Session(entries=played.outcome.entries)))))
    play(model, kind, COMPLETE_STREAMS[kind], entries=session.entries)
    body = json.loads(model.received[-1].body)
    updates, provider = play_live(model, kind, wire, COMPLETE_STREAMS[kind])
    assert without_new_ids(body) == without_new_ids(json.loads(model.received[-1].body))
    if kind in IN_REQUESTS:
        compare(sent_items(kind, body), items_to_send(kind, recorded_events))
    cut_updates, _ = play_live(model, kind, to_wire(kind, cut_in_two(kind, recorded_events)))
    check_folds(updates, cut_updates, provider)


def check_folds(updates: Sequence[Any], cut_updates: Sequence[Any], provider: Any) -> None:
    """What is stored is the same for other fragments, and for itself."""
    response = fold_updates(updates, provider)
    expected = encode_messages(response)
    assert without_new_ids(encode_messages(fold_updates(cut_updates, provider))) == without_new_ids(expected)
    for again in (response_as_updates(response), response.to_updates()):  # ours and the framework's
        assert encode_messages(fold_updates(again, provider)) == expected


MAY_LACK = {"id", "status", "content", "created_by"}
"""Fields of an item of OpenAI that a request may leave out."""


def compare(sent: Sequence[Any], expected: Sequence[Any]) -> None:
    """Hold what a request has against the finished blocks; only open calls have a result in addition."""
    open_results = [item for item in sent if item.get("type") == "function_call_output" and item not in expected]
    sent = [item for item in sent if item not in open_results]
    assert [item.get("type") for item in sent] == [item.get("type") for item in expected]
    for item, expected_item in zip(sent, expected, strict=True):
        assert expected_item | item == expected_item
        assert expected_item.keys() - item.keys() <= MAY_LACK


URL = "https://example.org/a"
SOURCES: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "Mistral's chunks": (
        [
            *({"content": "It is "}, {"content": [{"type": "text", "text": "mild"}]}),
            {"content": [{"type": "reference", "reference_ids": [0, 2]}]},
            {"content": [{"type": "text", "text": " and "}]},
            {"content": [{"type": "text", "text": "wet."}]},
            {
                "content": [
                    {"type": "tool_reference", "tool": "web_search", "title": "A", "url": URL, "description": "q"}
                ]
            },
        ],
        [
            {"start": 0, "end": 10, "title": "reference 0"},
            {"start": 0, "end": 10, "title": "reference 2"},
            {"start": 10, "end": 19, "title": "A", "url": URL, "quote": "q"},
        ],
    ),
    "xAI's list": (
        [{"content": f"It is mild[[1]]({URL})"}, {"content": " and wet."}],
        [{"start": 11, "end": 14, "url": URL}],
    ),
    "Azure's documents": (
        [
            {"context": {"citations": [{"title": "A", "url": URL, "content": "q", "chunk_id": "0"}], "intent": "[]"}},
            {"content": "It is mild [doc1]."},
        ],
        [{"start": 11, "end": 17, "title": "A", "url": URL, "quote": "q"}],
    ),
    **{
        name: (
            [{"content": f"It is mild {mark}."}],
            [{"start": 11, "end": 11 + len(mark), "title": "A", "url": URL, "quote": "q"}],
        )
        for name, mark in {"Zhipu's list": "[ref_1]", "Qwen's list": "[ref_1]", "Ark's list": "[1]"}.items()
    },
    "annotations": (
        [
            {"content": "It is mild and wet."},
            {
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {"url": URL, "title": "A", "start_index": 6, "end_index": 10},
                    }
                ]
            },
        ],
        [{"start": 6, "end": 10, "url": URL, "title": "A"}],
    ),
}


BESIDE: dict[str, dict[str, Any]] = {
    "xAI's list": {"citations": [URL]},
    "Zhipu's list": {"web_search": [{"title": "A", "link": URL, "content": "q", "refer": "ref_1"}]},
    "Qwen's list": {"search_info": {"search_results": [{"index": 1, "title": "A", "url": URL, "snippet": "q"}]}},
    "Ark's list": {"references": [{"title": "A", "url": URL, "summary": "q"}]},
}
"""What the last chunk has beside the token counts."""


@pytest.mark.drawn(3)
@pytest.mark.parametrize("name", SOURCES)
def test_sources_have_one_form(model: HostileModel, name: str):
    """Whatever the service calls them: with the range that it gives, or the text that they stand behind."""
    kind = "chat-completions"
    deltas, citations = SOURCES[name]
    recorded_events = chat_response(*deltas)
    recorded_events[-2] |= BESIDE.get(name, {})
    played = play(model, kind, to_wire(kind, recorded_events))
    assert played.body["citations"] == citations
    (completed,) = played.data("message.completed")
    assert (completed["text"], completed["citations"]) == (played.body["response"], citations)
    assert play(model, kind, COMPLETE_STREAMS[kind], entries=played.outcome.entries).outcome.text == "Hi"


@pytest.mark.parametrize("tools", [(), (FunctionTool(name="known", func=lambda: "done"),)], ids=["none", "another"])
def test_a_call_of_a_tool_that_the_agent_does_not_have_is_told(model: HostileModel, tools: Sequence[FunctionTool]):
    """Events and a step have it, beside the calls of other tools, and the model is told that it did not run."""
    kind = "chat-completions"
    names = ["absent", *(tool.name for tool in tools)]
    calls = [
        {"index": index, "id": f"call_{index}", "type": "function", "function": {"name": name, "arguments": "{}"}}
        for index, name in enumerate(names)
    ]
    bodies = to_wire(kind, chat_response({"tool_calls": calls}, finish="tool_calls")), COMPLETE_STREAMS[kind]
    played = play(model, kind, *bodies, tools=tools)
    outcomes = ["not_run", "success"][: len(names)]
    assert played.body["response"] == ("Hi" if tools else "")
    assert [data["name"] for data in played.data("tool.started")] == names
    assert [data["outcome"] for data in played.data("tool.completed")] == outcomes
    steps = [(step["name"], step["outcome"]) for step in played.steps if step["kind"] == "tool_call"]
    assert steps == [*zip(names, outcomes, strict=True)]
    requests = [request.body for request in model.received[1:]]
    play(model, kind, COMPLETE_STREAMS[kind], entries=played.outcome.entries)
    for body in map(json.loads, [*requests, model.received[-1].body]):
        result = next(message["content"] for message in body["messages"] if message["role"] == "tool")
        assert result == 'Error: Requested function "absent" not found.'
        assert "absent" not in json.dumps(body.get("tools"))


def test_a_last_usage_of_zeros_does_not_replace_the_real_one(model: HostileModel):
    """Some services send it after the end."""
    recorded_events = chat_response({"content": "Hi"})
    zeros = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    recorded_events.insert(-1, recorded_events[-2] | {"usage": zeros})
    assert play(model, "chat-completions", to_wire("chat-completions", recorded_events)).body["usage"] == {
        "input_token_count": 3,
        "output_token_count": 2,
        "total_token_count": 5,
    }
