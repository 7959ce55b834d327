"""Budgets count what services report and what models say, in the words of each service."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.durable_agent_host.hostile_model import (
    HostileModel,
    chat_chunk,
    events,
    hostile_model,
    messages_events,
    response_events,
    stream,
)
from tests.durable_agent_host.hostile_streams import tool_call_stream
from tests.durable_agent_host.test_scenarios_budgets import budget_error, read_usage
from tests.kit import AgentHost, running_host

APP = Path(__file__).parent / "apps" / "reported"


@pytest.fixture(scope="module")
def _model() -> Iterator[HostileModel]:
    with hostile_model() as running:
        yield running


@pytest.fixture(scope="module")
def host(_model: HostileModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent of every kind of client, whose turns may take 5000 tokens."""
    with running_host(tmp_path_factory.mktemp("reported"), None, app=APP, MODEL_URL=_model.url) as running:
        yield running


@pytest.fixture
def model(_model: HostileModel) -> HostileModel:
    """The endpoint, with nothing scripted."""
    _model.play()
    return _model


def build_usage(input_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Give the usage of a response."""
    return {"input_tokens": input_tokens, "output_tokens": output_tokens, "total_tokens": input_tokens + output_tokens}


def responding(*items: tuple[str, str], usage: dict[str, Any] | None) -> bytes:
    """Write a response of messages, each with what comes of it in pieces, and as a whole."""
    created_event, added_event, _, delta, *_, text_done, item_done, completed_event = response_events("x")
    item_events: list[dict[str, Any]] = []
    for index, (streamed_text, text) in enumerate(items):
        position = {"output_index": index, "item_id": f"msg_{index}"}
        part = {"type": "output_text", "text": text, "annotations": []}
        item = item_done["item"] | {"id": f"msg_{index}", "content": [part]}
        item_events.append(added_event | {"output_index": index, "item": item | {"content": []}})
        item_events += [
            delta | position | {"delta": streamed_text[n : n + 100]} for n in range(0, len(streamed_text), 100)
        ]
        item_events += [text_done | position | {"text": text}, item_done | {"output_index": index, "item": item}]
    response = completed_event["response"] | {
        "output": [event["item"] for event in item_events if event["type"] == item_done["type"]]
    }
    all_events = [
        created_event,
        *item_events,
        completed_event | {"response": response | ({"usage": usage} if usage else {})},
    ]
    return stream(
        events(*(event | {"sequence_number": sequence_number} for sequence_number, event in enumerate(all_events)))
    )


@pytest.mark.parametrize("agent", ["Responses", "OverResponses"])
def test_a_text_counts_once_although_its_end_repeats_it(host: AgentHost, model: HostileModel, agent: str):
    """An answer within the budget is not stopped; that of an agent within leaves no room to read it once more."""
    texts = ["word " * 1600, "more " * 1600]
    tool_calls = [stream(tool_call_stream("Responses", [("c1", '{"task": "Go."}')]))] if agent != "Responses" else []
    long = responding(*zip(texts, texts, strict=True), usage=build_usage(20, 4000))
    model.play(*tool_calls, long, responding(("Done.", "Done."), usage=build_usage(20, 10)))
    response = host.run(agent, {"message": "go", "session_id": (session := uuid4().hex)})
    assert response.status_code == 200 or (tool_calls and "does not allow the next call" in budget_error(response)), (
        response.text
    )
    assert 4000 < read_usage(host, agent, session)["tokens"] < 5000


def test_arguments_count_once_although_their_end_repeats_them(host: AgentHost, model: HostileModel):
    """A service without figures is paid for what its model has said."""
    arguments = json.dumps({"words": 1, "why": "so " * 4000})
    body = tool_call_stream("Responses", [("c1", arguments)])
    arguments_done = {
        "type": "response.function_call_arguments.done",
        "output_index": 0,
        "item_id": "fc_c1",
        "arguments": arguments,
    }
    head, mark, tail = body.partition(b"event: response.output_item.done")
    model.play(
        stream(head + events(arguments_done | {"sequence_number": 9}) + mark + tail),
        responding(("Hi", "Hi"), usage=None),
    )
    response = host.run("Responses", {"message": "go", "session_id": (session := uuid4().hex)})
    assert response.status_code == 402, response.text
    assert 3000 < read_usage(host, "Responses", session)["tokens"] < 3500


def test_the_cost_of_gemini_has_thoughts_and_what_its_tools_gave(host: AgentHost, model: HostileModel):
    """Its figures list both separately: thoughts count as output, results of hosted tools as input."""
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "thoughtsTokenCount": 700, "totalTokenCount": 1015}
    candidate = {"content": {"role": "model", "parts": [{"text": "Hi."}]}, "finishReason": "STOP"}
    model.play(stream(events({"candidates": [candidate], "usageMetadata": usage | {"toolUsePromptTokenCount": 300}})))
    response = host.run("Gemini", {"message": "go", "session_id": (session := uuid4().hex)})
    assert response.status_code == 200, response.text
    figures = read_usage(host, "Gemini", session)
    assert (figures["tokens"], figures["cost"]) == (1015, pytest.approx((310 * 10 + 705 * 100) / 1_000_000))


LONG = "word " * 1000


def long_response(client: str, figure: str) -> bytes:
    """Write an answer of 5000 characters in a service's words, whose figures of usage are all the same."""
    match client:
        case "Responses":
            details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
            spoken = responding((LONG, LONG), usage={"input_tokens": "#", "output_tokens": "#", **details})
            spoken = spoken.partition(b"\r\n\r\n")[2]
        case "Completions":
            usage = {"choices": [], "usage": {"prompt_tokens": "#", "completion_tokens": "#", "total_tokens": "#"}}
            spoken = events(chat_chunk(LONG), chat_chunk(finish="stop"), chat_chunk() | usage, "[DONE]")
        case "Claude":
            spoken = events(*messages_events(LONG)).replace(b'_tokens": 1', b'_tokens": "#"')
        case _:
            candidate = {"content": {"role": "model", "parts": [{"text": LONG}]}, "finishReason": "STOP"}
            usage = {"promptTokenCount": "#", "candidatesTokenCount": "#", "totalTokenCount": "#"}
            spoken = events({"candidates": [candidate], "usageMetadata": usage})
    return stream(spoken.replace(b'"#"', figure.encode()))


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("client", "figure"),
    [
        *(("Responses", figure) for figure in ("null", "-5", "0", "9" * 18)),
        *(
            (client, figure)
            for client in ("Completions", "Claude", "Gemini", "OverClaude")
            for figure in ("0", "9" * 18)
        ),
    ],
)
def test_a_response_with_invalid_usage_is_estimated(host: AgentHost, model: HostileModel, client: str, figure):
    """By what it has said: figures that are none, or zero, do not let it pass for free."""
    kind = client.removeprefix("Over")
    tool_calls = [stream(tool_call_stream(kind, [("c1", '{"task": "Go."}')]))] if kind != client else []
    model.play(*tool_calls, *[long_response(kind, figure)] * 2)
    response = host.run(client, {"message": "go", "session_id": (session := uuid4().hex)})
    assert response.status_code == 200, response.text
    figures = read_usage(host, client, session)
    call_count = len(tool_calls) + 1
    assert figures["tokens"] > call_count * 1250, figures
    assert figures["cost"] > call_count * 1250 * 100 / 1_000_000
