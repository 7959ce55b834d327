"""How an answer ended is told in the same words for every service: refused, filtered, cut off, or blocked before it."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.durable_agent_host.bounded_lab import bounded_host, bounded_model
from tests.durable_agent_host.hostile_model import (
    HostileModel,
    chat_chunk,
    events,
    http_response,
    messages_events,
    response_events,
    stream,
)
from tests.durable_agent_host.hostile_streams import tool_call_stream
from tests.durable_agent_host.openai_outputs import message, refusal, text
from tests.durable_agent_host.service_rules import find_violation
from tests.durable_agent_host.test_scenarios_hostile_model import COMPLETE_STREAMS
from tests.kit import RECORDINGS, AgentHost, wait_until

AZURE_FILTER = {"hate": {"filtered": True, "severity": "high"}, "violence": {"filtered": False, "severity": "safe"}}
AZURE_BLOCK = {
    "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
    "param": "prompt",
    "code": "content_filter",
    "status": 400,
    "innererror": {"code": "ResponsibleAIPolicyViolation", "content_filter_result": AZURE_FILTER},
}


@pytest.fixture(scope="module")
def _model() -> Iterator[HostileModel]:
    with bounded_model() as running:
        yield running


@pytest.fixture(scope="module")
def host(_model: HostileModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent of every kind of client."""
    folder = tmp_path_factory.mktemp("endings")
    more = {"DURABLE_AGENT_HOST_MAX_MODEL_CALLS": "100"}
    with bounded_host(folder / "data", _model, folder / "effects.txt", **more) as running:
        yield running


@pytest.fixture
def model(_model: HostileModel) -> HostileModel:
    """The endpoint, with nothing scripted and nothing received."""
    _model.play()
    return _model


def responses(*parts: dict[str, Any], **fields: Any) -> bytes:
    """Write a response of OpenAI's that ends otherwise than completed."""
    created, *_, completed = response_events("x")
    item = message(0, *parts)
    place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    words = [part["refusal"] for part in parts if part["type"] == "refusal"]
    events_of_item: list[dict[str, Any]] = [
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        *({"type": "response.refusal.delta", **place, "delta": letter} for word in words for letter in word),
        *({"type": "response.refusal.done", **place, "refusal": word} for word in words),
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]
    last = completed | {"response": completed["response"] | {"output": [item] if parts else []} | fields}
    last["type"] = f"response.{fields.get('status', 'completed')}"
    body = [created, *(events_of_item if parts else []), last]
    return stream(events(*(event | {"sequence_number": n} for n, event in enumerate(body))))


def completions(finish: str, *deltas: dict[str, Any], **fields: Any) -> bytes:
    """Write the chunks of a chat completion."""
    chunks = [chat_chunk() for _ in deltas]
    for chunk, delta in zip(chunks, deltas, strict=True):
        chunk["choices"][0]["delta"] = delta
    last = chat_chunk(finish=finish)
    last["choices"][0] |= fields
    return stream(events(*chunks, last, "[DONE]"))


def claude(stop: str, text: str = "", details: dict[str, Any] | None = None) -> bytes:
    """Write a message of Anthropic's."""
    start, *blocks, last, stop_event = messages_events(text)
    delta = {"stop_reason": stop, "stop_sequence": None, "stop_details": details}
    return stream(events(start, *(blocks if text else []), last | {"delta": delta}, stop_event))


def cut_call(stop: str) -> bytes:
    """Write a message of Anthropic's that ends within a tool call, after a text and a complete call."""
    start, *blocks, last, stop_event = messages_events("Well")
    call = {"type": "tool_use", "name": "say", "input": {}}
    arguments = [{"type": "input_json_delta", "partial_json": fragment} for fragment in ('{"words": 1}', '{"wor')]
    for index, delta in enumerate(arguments, 1):
        block = call | {"id": f"toolu_{index}"}
        blocks.append({"type": "content_block_start", "index": index, "content_block": block})
        blocks.append({"type": "content_block_delta", "index": index, "delta": delta})
    blocks.insert(-2, {"type": "content_block_stop", "index": 1})
    return stream(events(start, *blocks, last | {"delta": {"stop_reason": stop}}, stop_event))


def gemini(finish: str, *parts: dict[str, Any], **fields: Any) -> bytes:
    """Write a response of Gemini's."""
    content: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)} if parts else {}}
    return stream(events({"candidates": [content | {"finishReason": finish} | fields]}))


def agents(reason: str, text: str = "") -> bytes:
    """Write a run of Azure AI Agents that is incomplete."""
    run = {"id": "run_1", "object": "thread.run", "thread_id": "thread_1", "model": "m"}
    ended = run | {"status": "incomplete", "incomplete_details": {"reason": reason}}
    delta = {"id": "msg_2", "delta": {"content": [{"index": 0, "type": "text", "text": {"value": text}}]}}
    named: list[tuple[str, Any]] = [
        ("thread.run.created", run | {"status": "queued"}),
        ("thread.run.incomplete", ended),
        ("done", "[DONE]"),
    ]
    if text:
        named.insert(1, ("thread.message.delta", delta))
    return stream(b"".join(f"event: {name}\ndata: {json.dumps(data)}\n\n".encode() for name, data in named))


INCOMPLETE = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}
CUT = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"}
FILTERS = [{"blocked": True, "source_type": "completion", "content_filter_results": AZURE_FILTER}]
CYBER = {"type": "refusal", "category": "cyber", "explanation": "This was blocked."}
RATING = {"category": "HARM_CATEGORY_HARASSMENT", "probability": "HIGH", "blocked": True}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "say", "arguments": '{"words": 1}'}
OUTPUT = [REASONING, message(0, text("Well")), CALL | {"status": "completed"}]
CUT_ITEMS = [
    {**CALL, "id": "fc_2", "call_id": "call_2", "arguments": '{"wor', "status": "incomplete"},
    {
        "type": "custom_tool_call",
        "id": "ctc_1",
        "call_id": "call_3",
        "name": "say",
        "input": "x",
        "status": "incomplete",
    },
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "say", "arguments": "{}"},
]
CHAT_CALLS = [
    {"tool_calls": [{"index": index, "id": f"call_{index}", "function": {"name": "say", "arguments": arguments}}]}
    for index, arguments in enumerate(['{"words": 1}', '{"wor', ""])
]
GEMINI_CALL = {"functionCall": {"name": "say", "args": {"words": 1}}}
GEMINI_PART = {
    "functionCall": {"name": "say", "partialArgs": [{"jsonPath": "$.x", "stringValue": "a"}], "willContinue": True}
}
CALLS_NOT_RUN = {
    "chat length within a call": 3,
    "chat filter after a call": 1,
    "claude within a call": 2,
    "claude refusal within a call": 2,
    "length within a call": 2,
    "filter after a call": 1,
    "length in a custom call": 2,
    "length after a request for approval": 2,
    "gemini length after a call": 1,
    "gemini filter after a call": 1,
    "gemini language after a call": 1,
    "gemini length within a call": 2,
}
"""Case → number of calls that do not run, because the answer was cut off or refused."""
ENDINGS: dict[str, tuple[str, bytes, str, str, Any]] = {
    "refusal": ("Responses", responses(refusal("I cannot.")), "I cannot.", "refusal", ("I cannot.", None)),
    "filter": ("Responses", responses(text("This is"), **INCOMPLETE), "This is", "content_filter", ("filter", None)),
    "azure": ("Responses", responses(**INCOMPLETE, content_filters=FILTERS), "", "content_filter", ("filter", "hate")),
    "length": ("Responses", responses(text("This is"), **CUT), "This is", "length", None),
    "length within reasoning": ("Responses", responses(**CUT, output=[REASONING]), "", "length", None),
    "no reason": ("Responses", responses(text("Is"), status="incomplete"), "Is", "length", None),
    "chat refusal": (
        "Completions",
        completions("stop", {"refusal": "I can"}, {"refusal": "not."}),
        "I cannot.",
        "refusal",
        ("I cannot.", None),
    ),
    "chat filter": (
        "Completions",
        completions("content_filter", {"content": "This"}, content_filter_results=AZURE_FILTER),
        "This",
        "content_filter",
        ("filter", "hate"),
    ),
    "chat filter of Gemini's": (
        "Completions",
        completions("content_filter: PROHIBITED_CONTENT", {"content": "This"}),
        "This",
        "content_filter",
        ("filter", "PROHIBITED_CONTENT"),
    ),
    "chat filter of Zhipu's": (
        "Completions",
        completions("sensitive", {"content": "This"}),
        "This",
        "content_filter",
        ("filter", None),
    ),
    "chat filter of Cohere's": (
        "Completions",
        completions("ERROR_TOXIC", {"content": "This"}),
        "This",
        "content_filter",
        ("filter", None),
    ),
    "chat length": ("Completions", completions("length", {"content": "This"}), "This", "length", None),
    "claude": ("Claude", claude("refusal", "Well", CYBER), "Well", "refusal", ("This was blocked.", "cyber")),
    "claude without details": ("Claude", claude("refusal"), "", "refusal", ("refused", None)),
    "claude length": ("Claude", claude("max_tokens", "Well"), "Well", "length", None),
    "claude within a call": ("Claude", cut_call("max_tokens"), "Well", "length", None),
    "claude refusal within a call": ("Claude", cut_call("refusal"), "Well", "refusal", ("refused", None)),
    "claude window": ("Claude", claude("model_context_window_exceeded", "Well"), "Well", "length", None),
    "gemini": (
        "Gemini",
        gemini("SAFETY", {"text": "Well"}, safetyRatings=[RATING]),
        "Well",
        "content_filter",
        ("SAFETY", "HARM_CATEGORY_HARASSMENT"),
    ),
    "gemini recitation": ("Gemini", gemini("RECITATION"), "", "content_filter", ("protected", "RECITATION")),
    "gemini prohibited": (
        "Gemini",
        gemini("PROHIBITED_CONTENT", finishMessage="Not this."),
        "",
        "content_filter",
        ("Not this", "PROHIBITED_CONTENT"),
    ),
    "gemini length": ("Gemini", gemini("MAX_TOKENS", {"text": "Well"}), "Well", "length", None),
    "chat length within a call": (
        "Completions",
        completions("length", {"content": "Well"}, *CHAT_CALLS),
        "Well",
        "length",
        None,
    ),
    "chat filter after a call": (
        "Completions",
        completions("content_filter", CHAT_CALLS[0]),
        "",
        "content_filter",
        ("filter", None),
    ),
    "length within a call": ("Responses", responses(**CUT, output=[*OUTPUT, CUT_ITEMS[0]]), "Well", "length", None),
    "filter after a call": (
        "Responses",
        responses(**INCOMPLETE, output=OUTPUT),
        "Well",
        "content_filter",
        ("filter", None),
    ),
    "length in a custom call": ("Responses", responses(**CUT, output=[*OUTPUT, CUT_ITEMS[1]]), "Well", "length", None),
    "length after a request for approval": (
        "Responses",
        responses(**CUT, output=[*OUTPUT, CUT_ITEMS[2]]),
        "Well",
        "length",
        None,
    ),
    "gemini length after a call": (
        "Gemini",
        gemini("MAX_TOKENS", {"text": "Well"}, GEMINI_CALL),
        "Well",
        "length",
        None,
    ),
    "gemini filter after a call": ("Gemini", gemini("SAFETY", GEMINI_CALL), "", "content_filter", ("safety", "SAFETY")),
    "gemini language after a call": (
        "Gemini",
        gemini("LANGUAGE", GEMINI_CALL),
        "",
        "content_filter",
        ("language", "LANGUAGE"),
    ),
    "gemini length within a call": ("Gemini", gemini("MAX_TOKENS", GEMINI_CALL, GEMINI_PART), "", "length", None),
    "agents length": ("Agents", agents("max_completion_tokens", "Well"), "Well", "length", None),
    "agents filter": ("Agents", agents("content_filter"), "", "content_filter", ("filter", None)),
}


def read_events(host: AgentHost, reply: requests.Response) -> list[tuple[str, dict[str, Any]]]:
    """Read all events of a turn."""
    path = reply.request.path_url.removeprefix("/api").removesuffix("/run")
    ids = reply.headers
    log = host.get(f"{path}/sessions/{ids['x-ms-session-id']}/turns/{ids['x-ms-turn-id']}/events").text
    lines = [line.partition(": ") for line in log.splitlines()]
    names = [value for field, _, value in lines if field == "event"]
    return list(zip(names, (json.loads(value) for field, _, value in lines if field == "data"), strict=True))


def test_what_the_service_has_left_out_of_a_request_is_in_the_steps(host: AgentHost, model: HostileModel):
    """Anthropic's edits of the context, as the service reports them; the export has them, too."""
    edits = [{"type": "clear_tool_uses_20250919", "cleared_tool_uses": 8, "cleared_input_tokens": 50_000}]
    start, *blocks, last, stop = messages_events("Well")
    model.play(stream(events(start, *blocks, last | {"context_management": {"applied_edits": edits}}, stop)))
    reply = host.run("Claude", {"message": "Good morning", "session_id": "edits"})
    turn_path = f"/agents/Claude/sessions/edits/turns/{reply.headers['x-ms-turn-id']}"
    (step,) = (s for s in host.get(f"{turn_path}/steps").json()["steps"] if s["kind"] == "model_call")
    assert step["context_edits"] == edits
    assert "50000" in host.get("/agents/Claude/sessions/edits/export").text


@pytest.mark.drawn(12)
@pytest.mark.parametrize("case", ENDINGS)
def test_how_an_answer_ended_is_the_same_everywhere(host: AgentHost, model: HostileModel, case: str):
    """In the answer, the turn, the last event, the steps, the session and its receipt; and the session goes on.

    Its calls do not run, and the model is called once.
    """
    client, answer, words, reason, refused = ENDINGS[case]
    session = case.replace(" ", "-")
    model.play(answer)
    reply = host.run(client, {"message": "Good morning", "session_id": session})
    assert reply.status_code == 200, reply.text
    body = reply.json()
    status = "refused" if refused else "incomplete"
    assert (body["response"], body["finish_reason"], body["status"]) == (words, reason, status)
    if refused:
        message_part, category = refused
        assert message_part in body["refusal"]["message"]
        assert body["refusal"].get("category") == category
    assert "".join(delta["text"] for name, delta in read_events(host, reply) if name == "message.delta") == words
    end = {field: body.get(field) for field in ("finish_reason", "refusal", "status")}
    turn = host.turn(reply)
    assert {field: turn.get(field) for field in end} == end
    session_path = f"/agents/{client}/sessions/{session}"
    (receipt,) = host.get(session_path).json()["turns"]
    assert {field: receipt.get(field) for field in end} == end
    name, last = read_events(host, reply)[-1]
    assert name == "turn.completed"
    assert {field: last.get(field) for field in end} == end
    steps = host.get(f"{session_path}/turns/{turn['turn_id']}/steps").json()["steps"]
    assert [step["finish_reason"] for step in steps if step["kind"] == "model_call"] == [reason]
    assert steps[-1]["status"] == status
    tool_steps = [step for step in steps if step["kind"] == "tool_call"]
    assert [(step["outcome"], step["runs_in"]) for step in tool_steps] == [("not_run", "host")] * CALLS_NOT_RUN.get(
        case, 0
    )
    assert [step["name"] for step in tool_steps] == ["say"] * len(tool_steps)
    assert len(model.received) == 1
    if client == "Agents":
        return
    model.play(COMPLETE_STREAMS[client])
    next_reply = host.run(client, {"message": "And now?", "session_id": session}).json()
    assert (next_reply.get("response"), next_reply["status"]) == ("Hello.", "success"), next_reply
    page = host.get(f"{session_path}?limit=2").json()
    assert all(turn == receipt for turn in page["turns"] if turn["turn_id"] != next_reply["turn_id"])
    assert host.get(f"{session_path}?limit=2&cursor={page['previous']}").json()["turns"] == [receipt]
    sent = json.loads(model.received[-1].body)
    assert find_violation(client, sent) is None
    sent_text = json.dumps(sent)
    assert ("Good morning" in sent_text) == (reason != "refusal" or client != "Claude")
    assert not any(
        word in json.dumps([sent.get(name) for name in ("input", "messages", "contents")]) for word in ("say", "call")
    )
    assert not words or (words in sent_text) == (reason != "refusal" or client != "Claude")
    assert host.get(f"{session_path}/verify").json()["problems"] == []


FAILED = {"status": "failed", "error": {"code": "content_filter", "message": "The prompt was filtered."}}


def rejected(error: dict[str, Any], status: int = 400) -> bytes:
    """Write a refusal, in the form of most services."""
    return http_response(json.dumps({"type": "error", "error": error}).encode(), status=status)


BLOCKS: dict[str, tuple[str, bytes, str]] = {
    "azure within a stream": ("Responses", responses(**FAILED), ""),
    "azure": ("Responses", rejected(AZURE_BLOCK), "hate"),
    "azure chat": ("Completions", rejected(AZURE_BLOCK), "hate"),
    "azure responses": (
        "Responses",
        rejected({"message": "Filtered.", "code": "content_filter", "content_filters": FILTERS}),
        "hate",
    ),
    "openrouter": (
        "Completions",
        rejected(
            {
                "code": 403,
                "message": "Your chosen model requires moderation and your input was flagged.",
                "metadata": {"reasons": ["violence/graphic"]},
            },
            403,
        ),
        "violence/graphic",
    ),
    "dashscope": ("Completions", rejected({"code": "data_inspection_failed", "message": "Inappropriate."}), ""),
    "minimax": (
        "Completions",
        http_response(b'{"base_resp": {"status_code": 1026, "status_msg": "input new_sensitive"}}'),
        "",
    ),
    "claude": (
        "Claude",
        rejected({"type": "invalid_request_error", "message": "Output blocked by content filtering policy"}),
        "",
    ),
    "gemini": (
        "Gemini",
        stream(events({"promptFeedback": {"blockReason": "PROHIBITED_CONTENT", "safetyRatings": []}})),
        "PROHIBITED_CONTENT",
    ),
    "gemini rated": (
        "Gemini",
        stream(events({"promptFeedback": {"blockReason": "SAFETY", "safetyRatings": [RATING]}})),
        "HARM_CATEGORY_HARASSMENT",
    ),
}


@pytest.mark.drawn(4)
@pytest.mark.parametrize("name", BLOCKS)
def test_a_blocked_request_is_named_and_leaves_the_conversation_as_it_was(
    host: AgentHost, model: HostileModel, name: str
):
    """A 422 with the category, after one request; the events and the turn say the same, and the session goes on."""
    client, answer, category = BLOCKS[name]
    session = f"blocked-{name.replace(' ', '-')}"
    model.play(COMPLETE_STREAMS[client], answer, COMPLETE_STREAMS[client])
    assert host.run(client, {"message": "Good morning", "session_id": session}).status_code == 200
    reply = host.run(client, {"message": "Bad morning", "session_id": session})
    assert reply.status_code == 422, reply.text
    assert "content policy" in reply.json()["detail"]
    assert category in reply.json()["detail"]
    assert reply.json().get("category", "") == category
    assert len(model.received) == 2
    turn = host.turn(reply)
    assert (turn["status"], turn["error"]["type"]) == ("failed", "RequestBlockedError")
    assert host.session(client, session)["message_count"] == 2
    assert host.run(client, {"message": "And now?", "session_id": session}).json()["response"] == "Hello."
    assert "Bad morning" not in model.received[-1].body.decode()


def recorded(path: str) -> bytes:
    """Write a recorded stream, or a recorded body as the only event of a stream."""
    file = RECORDINGS / path
    if file.suffix == ".json":
        return stream(events(json.loads(file.read_text())))
    return stream(events(*(json.loads(line)["data"] for line in file.read_text().splitlines())))


RECORDED: dict[str, tuple[str, str, str, dict[str, int | None]]] = {
    "openai-responses/incomplete-max-output-tokens.jsonl": ("Responses", "incomplete", "length", {}),
    "openai-responses/web-search-gpt41.jsonl": ("Responses", "success", "stop", {"web_search_count": 1}),
    "chat-completions/azure-model-router-filters.jsonl": ("Completions", "success", "stop", {}),
    "anthropic/HANDMADE-refusal.jsonl": ("Claude", "refused", "refusal", {"input": 18, "output": 5}),
    "anthropic/max-tokens.jsonl": ("Claude", "incomplete", "length", {}),
    "anthropic/advisor.jsonl": (
        "Claude",
        "success",
        "stop",
        {"input": 1051 + 2728 + 3676, "output": 35 + 3880 + 3356},
    ),
    "anthropic/compaction.jsonl": (
        "Claude",
        "success",
        "stop",
        {"input": 60385 + 612, "output": 522 + 2819},
    ),
    "gemini/safety-blocked.response.json": ("Gemini", "refused", "content_filter", {"input": 14, "output": None}),
    "gemini/max-tokens-no-parts.response.json": ("Gemini", "incomplete", "length", {"input": 15, "output": 2}),
}


@pytest.mark.drawn(4)
@pytest.mark.recordings
@pytest.mark.skipif(not RECORDINGS.exists(), reason="needs the recordings")
@pytest.mark.parametrize("path", RECORDED)
def test_recorded_answers_end_as_they_ended(host: AgentHost, model: HostileModel, path: str):
    """With everything that was paid, the model that answered, and accepted back in the next turn."""
    client, status, reason, counts = RECORDED[path]
    session = path.rpartition("/")[2].partition(".")[0]
    played = recorded(path)
    model.play(played, COMPLETE_STREAMS[client])
    reply = host.run(client, {"message": "Good morning", "session_id": session})
    body = reply.json()
    assert (body["status"], body["finish_reason"]) == (status, reason), body
    usage = {name.removesuffix("_token_count"): count for name, count in body["usage"].items()}
    assert {name: usage.get(name) for name in counts} == counts
    assert f'"{host.turn(reply)["model"]}"' in played.decode()
    reply = host.run(client, {"message": "And now?", "session_id": session})
    assert reply.json().get("response") == "Hello.", reply.text
    assert find_violation(client, json.loads(model.received[-1].body)) is None


FORMAT = {"type": "object", "properties": {"words": {"type": "integer"}}, "required": ["words"]}
FITTING = '{"words": 2}'


def saying(client: str, answer: str) -> bytes:
    """Write a complete answer with a text."""
    match client:
        case "Responses":
            return stream(events(*response_events(answer)))
        case "Completions":
            return completions("stop", {"content": answer})
        case "Claude":
            return claude("end_turn", answer)
        case _:
            return gemini("STOP", {"text": answer})


@pytest.mark.drawn(2)
@pytest.mark.parametrize("is_own", [True, False])
@pytest.mark.parametrize("client", ["Responses", "Completions", "Claude", "Gemini"])
def test_an_answer_that_does_not_fit_is_asked_for_again(
    host: AgentHost, model: HostileModel, client: str, is_own: bool
):
    """The model reads what was wrong; clients discard the first answer, which only the steps and the usage have."""
    model.play(saying(client, '{"words": "two"}'), saying(client, FITTING), saying(client, "Hello."))
    agent = f"Typed{client}" if is_own else client
    session = f"format-{agent}"
    path = f"/agents/{agent}/sessions/{session}"
    requested = {} if is_own else {"response_format": FORMAT}
    reply = host.run(agent, {"message": "How many?", "session_id": session, **requested})
    body = reply.json()
    assert (body.get("value"), body["response"], body["status"]) == ({"words": 2}, FITTING, "success"), body
    _, second = (json.loads(request.body) for request in model.received)
    assert find_violation(client, second) is None
    assert ("should be a valid integer" if is_own else "'two' is not of type 'integer'") in json.dumps(second)
    assert host.get(f"{path}/turns/{body['turn_id']}").json()["value"] == {"words": 2}
    events = read_events(host, reply)
    sent_events = [(name, data.get("text", "")) for name, data in events if name != "message.completed"]
    restarted = sent_events.index(("turn.restarted", ""))
    texts = ["".join(delta for _, delta in part) for part in (sent_events[:restarted], sent_events[restarted:])]
    assert texts == ['{"words": "two"}', FITTING]
    steps = host.get(f"{path}/turns/{body['turn_id']}/steps").json()["steps"]
    calls = [step for step in steps if step["kind"] == "model_call"]
    assert ["rejected" in call for call in calls] == [True, False]
    if client == "Claude":
        assert body["usage"]["output_token_count"] == sum(call["usage"]["output_token_count"] for call in calls)
    assert [item["role"] for item in host.get(path).json()["messages"]] == ["user", "assistant"]
    if not is_own:
        assert host.run(agent, {"message": "And now?", "session_id": session}).json()["response"] == "Hello."
        assert "two" not in model.received[-1].body.decode()


@pytest.mark.parametrize("agent", ["Completions", "TypedResponses"])
def test_an_answer_that_never_fits_fails_the_turn(host: AgentHost, model: HostileModel, agent: str):
    """After one more try, by the request's format also where the agent has one; the conversation is as it was."""
    model.play(*[saying(agent.removeprefix("Typed"), '{"words": 2}')] * 3)
    wanted = {"type": "object", "required": ["letters"]}
    reply = host.run(agent, {"message": "How many?", "session_id": "never", "response_format": wanted})
    assert (reply.status_code, len(model.received)) == (502, 2), reply.text
    assert "'letters' is a required property" in reply.json()["detail"]
    steps = host.get(f"/agents/{agent}/sessions/never/turns/{reply.json()['turn_id']}/steps").json()["steps"]
    reasons = [step["rejected"] for step in steps if step["kind"] == "model_call"]
    assert reasons == [reply.json()["detail"]] * 2
    assert host.session(agent, "never")["messages"] == []


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("answer", "status", "value"),
    [
        (saying("Completions", f"```json\n{FITTING}\n```"), "success", {"words": 2}),
        (saying("Completions", f"Here it is:\n```\n{FITTING}\n```\n"), "success", {"words": 2}),
        (completions("stop", {"refusal": "I cannot."}), "refused", None),
        (completions("length", {"content": '{"wor'}), "incomplete", None),
    ],
)
def test_a_format_does_not_hide_how_an_answer_ended(
    host: AgentHost, model: HostileModel, answer: bytes, status: str, value: Any
):
    """Fenced JSON is read; a refusal and a cut answer are told as such. None of them is asked for again."""
    model.play(answer)
    body = host.run("Completions", {"message": "How many?", "response_format": FORMAT}).json()
    assert (body["status"], body.get("value"), len(model.received)) == (status, value, 1), body


@pytest.mark.drawn(1)
@pytest.mark.parametrize("agent", ["Gemini", "OverGemini", "TeamGemini"])
def test_tokens_of_a_call_without_an_answer_count_once(tmp_path: Path, model: HostileModel, agent: str):
    """The service has counted a call that cannot be read; the usage and the steps have it after a crash, too."""
    counts = {"promptTokenCount": 12_000, "candidatesTokenCount": 50, "totalTokenCount": 12_050}
    chunk = {"candidates": [{"finishReason": "MALFORMED_FUNCTION_CALL"}], "usageMetadata": counts}
    called = [stream(tool_call_stream("Completions", [("call_1", '{"task": "go"}')]))] if agent == "OverGemini" else []
    ended = [saying("Completions", "Done.")] if called else []
    model.play(*called, stream(events(chunk)), saying("Gemini", "Hello."), *ended)
    point = f"journal.model.after_append:{len(called) + 1}"
    body = {"message": "Hi", "session_id": "counted"}
    with bounded_host(tmp_path, model, tmp_path / "effects.txt", DURABLE_AGENT_HOST_CRASH=point) as crashing:
        with contextlib.suppress(requests.RequestException):
            crashing.run(agent, body, headers={"Idempotency-Key": "k"})
        wait_until(lambda: crashing.process.poll() is not None)
    with bounded_host(tmp_path, model, tmp_path / "effects.txt") as restarted:
        reply = restarted.run(agent, body, headers={"Idempotency-Key": "k"}).json()
        path = f"/agents/{agent}/sessions/counted/turns/{reply['turn_id']}/steps"
        steps = restarted.get(path).json()["steps"]
    assert reply["usage"]["input_token_count"] // 1000 == 12, reply
    assert [step["usage"]["output_token_count"] for step in steps if "wait_seconds" in step] == [50]
