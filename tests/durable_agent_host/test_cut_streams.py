"""Streams of every provider that end too early: recorded responses over HTTP, cut at many positions."""

import asyncio
import codecs
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from durable_agent_host.agent import response_limits
from durable_agent_host.agent.agent_runner import AgentRunner, RunLimits
from durable_agent_host.agent.retry_classification import RetryPolicy
from durable_agent_host.features.registry import activity_features
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.providers.registry import provider_for
from tests.durable_agent_host.connection_closes import (
    COMPLETE_STREAMS,
    CONNECTION_CLOSES,
    keep_open,
)
from tests.durable_agent_host.hostile_model import (
    HostileModel,
    Send,
    chat_chunk,
    events,
    hostile_model,
    http_response,
    messages_events,
    parts_stream,
    response_events,
    stream,
)
from tests.durable_agent_host.hostile_streams import AGENTS_ROUTES
from tests.durable_agent_host.mutations import STREAM_MUTATIONS
from tests.durable_agent_host.played_recordings import REQUEST, hosted_agent, to_wire
from tests.durable_agent_host.service_rules import find_violation
from tests.kit import CASES, RECORDINGS
from tests.null_turn_log import NullTurnLog
from tests.sweeps import chooser

pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
NO_STEPS = {"/steps": http_response(b'{"object": "list", "data": [], "has_more": false}')}
NO_MORE = http_response(b'{"error": {"message": "no more", "type": "invalid_request_error"}}', status=400)


@pytest.fixture(scope="module")
def model() -> Iterator[HostileModel]:
    """An endpoint that plays recordings."""
    with hostile_model() as running:
        yield running


def play(
    model: HostileModel, kind: str, *scripts: bytes | Send, tools: Sequence[Callable[..., Any]] = ()
) -> TurnOutcome:
    """Run a turn of an agent against scripted answers; a failed call is made once more."""
    model.play(*scripts, fallback=NO_MORE)
    model.by_path = AGENTS_ROUTES | NO_STEPS if kind == "azure-ai-agents" else {}

    async def turn() -> TurnOutcome:
        async with hosted_agent(kind, model.url, tools) as agent:
            limits = RunLimits(retry_policy=RetryPolicy(retries=1, first_seconds=0.001))
            return await AgentRunner(
                "Agent", agent, provider_for, open_log=NullTurnLog, features=activity_features(agent), limits=limits
            ).run(Session(), REQUEST)

    return asyncio.run(turn())


def load_recording(kind: str, path: Path) -> list[bytes]:
    """Read the events of a recording as they were on the wire."""
    return [to_wire(kind, [json.loads(line)["data"]]) for line in path.read_text().splitlines()]


def recorded_streams(kind: str) -> list[Path]:
    """List the recorded streams of a provider."""
    return sorted([*(RECORDINGS / kind).glob("*.jsonl"), *(RECORDINGS / kind).glob("multiturn/*/*.jsonl")])


def comparable_outcome(outcome: TurnOutcome) -> Any:
    """Give of an outcome what does not depend on the clock."""
    error = outcome.error or {}
    return outcome.status, outcome.text, error.get("message")


def cut_positions(count: int) -> Sequence[int]:
    """Choose some places to cut, the first and the last among them."""
    return sorted({1, count // 2, count - 2, count - 1} & set(range(1, count)))


@pytest.mark.drawn(1)
@pytest.mark.recordings
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="needs the recordings")
@pytest.mark.parametrize("kind", ["anthropic", "gemini", "openai-responses"])
def test_an_interrupted_recorded_stream_is_retried(model: HostileModel, kind: str):
    """Whatever was there, only the whole stream is the answer, and it is that of a stream that was never cut."""
    attempt_count = 0
    paths = recorded_streams(kind)
    for path in paths[:: max(len(paths) // 8, 1)]:
        parts = load_recording(kind, path)
        end = next((n for n, part in enumerate(parts) if is_completion_event(kind, part)), None)
        if end is None or path.name.startswith("error"):
            continue
        complete_stream = stream(b"".join(parts))
        expected_outcome, request_count = comparable_outcome(play(model, kind, complete_stream)), len(model.received)
        for cut_position in cut_positions(end + 1):
            outcome = comparable_outcome(play(model, kind, stream(b"".join(parts[:cut_position])), complete_stream))
            assert (outcome, len(model.received)) == (expected_outcome, request_count + 1), (
                f"{path.name} cut before event {cut_position}"
            )
            attempt_count += 1
        cut = stream(b"".join(parts[: end // 2 + 1])) if end else stream()
        failed_outcome = play(model, kind, cut, cut)
        assert (failed_outcome.status, failed_outcome.entries) == ("failed", ()), path.name
        assert len(model.received) == 2, path.name
    assert attempt_count > 8


def is_completion_event(kind: str, part: bytes) -> bool:
    """Tell whether a recorded event is the provider's word that the answer is whole."""
    if kind == "anthropic":
        return b'"stop_reason": "' in part
    if kind == "gemini":
        return b'"finishReason"' in part
    return b'"type": "response.completed"' in part or b'"type": "response.incomplete"' in part


CHUNKS = [events(chat_chunk(word)) for word in ("One ", "two ", "three.")]
LAST = events(chat_chunk(finish="stop"))


def test_the_characters_of_a_turn_are_limited(model: HostileModel, monkeypatch: pytest.MonkeyPatch):
    """An answer that is longer fails the turn, and is not asked for again."""
    monkeypatch.setattr(response_limits, "MAX_TURN_CHARACTERS", 6)
    outcome = play(model, "chat-completions", stream(b"".join(CHUNKS) + LAST))
    assert outcome.error is not None
    assert "more than 6 characters" in outcome.error["message"]
    assert len(model.received) == 1


def test_an_interrupted_chat_completions_stream_is_retried(model: HostileModel):
    """The finish reason is its last word; an endpoint that leaves out the usage and ``[DONE]`` has said it all."""
    complete_stream = stream(b"".join(CHUNKS) + LAST + events("[DONE]"))
    for chunk_count in range(len(CHUNKS) + 1):
        outcome = play(model, "chat-completions", stream(b"".join(CHUNKS[:chunk_count])), complete_stream)
        assert (outcome.status, outcome.text, len(model.received)) == ("completed", "One two three.", 2)
    outcome = play(model, "chat-completions", stream(b"".join(CHUNKS) + LAST))
    assert (outcome.status, outcome.text, len(model.received)) == ("completed", "One two three.", 1)


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    "failing",
    [
        {"error": {"code": 502, "message": "upstream went away"}},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "network_error"}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "TIMEOUT"}]},
        {"choices": None, "base_resp": {"status_code": 1002, "status_msg": "rate limit"}},
        {"object": "error", "message": "upstream went away", "type": "InternalServerError", "code": 500},
        {"error": "upstream went away"},
        {"detail": "upstream went away"},
        {"errors": [{"message": "upstream went away", "code": 3040}], "success": False},
    ],
)
def test_a_chat_completions_stream_with_an_error_is_retried(model: HostileModel, failing):
    """An error among the chunks, in the form of any service, does not complete a response, whatever comes after it."""
    complete_stream = stream(b"".join(CHUNKS) + LAST + events("[DONE]"))
    outcome = play(model, "chat-completions", stream(CHUNKS[0] + events(failing, "[DONE]")), complete_stream)
    assert (outcome.status, outcome.text, len(model.received)) == ("completed", "One two three.", 2), outcome.error


def error_response(status: int, body: Any, **headers: str) -> bytes:
    """Write a refusal."""
    return http_response(json.dumps(body).encode(), status=status, **headers)


OVERLOADED = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
GOOGLE = {"error": {"code": 503, "message": "The model is overloaded.", "status": "UNAVAILABLE"}}
DELAY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "0.01s"}
GOOGLE_BUSY = {"error": {"code": 429, "message": "Quota", "status": "RESOURCE_EXHAUSTED", "details": [DELAY]}}
CANCELLED = {"error": {"code": 499, "message": "The operation was cancelled.", "status": "CANCELLED"}}
GEMINI_EVENTS = events({"candidates": [{"content": {"parts": [{"text": "Hi"}]}, "finishReason": "STOP"}]})
GEMINI = stream(GEMINI_EVENTS)
CLAUDE = messages_events("Hi")


@pytest.mark.drawn(4)
@pytest.mark.parametrize(
    ("kind", "error_bytes", "complete_stream"),
    [
        ("gemini", error_response(503, GOOGLE), GEMINI),
        ("gemini", error_response(429, GOOGLE_BUSY), GEMINI),
        ("gemini", stream(events({"candidates": []}, GOOGLE)), GEMINI),
        ("gemini", stream(events({"candidates": []}) + json.dumps(GOOGLE, indent=2).encode()), GEMINI),
        ("gemini", stream(events({"error": {"code": "429", "message": "busy"}})), GEMINI),
        ("gemini", stream(GEMINI_EVENTS + json.dumps(CANCELLED, indent=2).encode()), GEMINI),
        ("gemini", stream(events({"error": "upstream went away"})), GEMINI),
        ("gemini", http_response(json.dumps([GOOGLE]).encode()), GEMINI),
        ("anthropic", error_response(529, OVERLOADED), stream(events(*CLAUDE))),
        ("anthropic", stream(events(OVERLOADED)), stream(events(*CLAUDE))),
        ("anthropic", stream(events(*CLAUDE[:3], OVERLOADED)), stream(events(*CLAUDE))),
    ],
)
def test_transient_errors_are_retried(model: HostileModel, kind: str, error_bytes: bytes, complete_stream: bytes):
    """A busy service is asked once more, before its first word and in the middle of its answer."""
    outcome = play(model, kind, error_bytes, complete_stream)
    assert (outcome.status, len(model.received)) == ("completed", 2), outcome.error


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("kind", "error_bytes"),
    [
        ("gemini", error_response(400, {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}})),
        (
            "anthropic",
            error_response(401, {"type": "error", "error": {"type": "authentication_error", "message": "no"}}),
        ),
        ("anthropic", stream(events({"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}))),
        ("chat-completions", stream(events({"code": "InvalidParameter", "message": "no", "request_id": "r"}))),
        ("openai-responses", http_response(b'{"error": {"code": "invalid_prompt", "message": "no"}}')),
    ],
)
def test_permanent_errors_are_not_retried(model: HostileModel, kind: str, error_bytes: bytes):
    """The turn fails at once, with the service's own words."""
    outcome = play(model, kind, error_bytes)
    assert (outcome.status, len(model.received)) == ("failed", 1)
    assert outcome.error is not None
    assert outcome.error["type"] == "ProviderError"
    assert "no" in outcome.error["message"]


def test_a_failed_turn_carries_the_retry_delay(model: HostileModel):
    """The wait that Gemini asks for in its details is the problem's ``Retry-After``."""
    busy = json.loads(json.dumps(GOOGLE_BUSY).replace("0.01s", "41s"))
    outcome = play(model, "gemini", error_response(429, busy))
    assert outcome.error is not None
    assert (outcome.error["retry_after_seconds"], len(model.received)) == (41, 1)


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        (
            "chat-completions",
            {"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]},
        ),
        ("openai-responses", response_events("Hi")[-1]["response"]),
        ("anthropic", CLAUDE[0]["message"] | {"content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}),
        ("gemini", [json.loads(event[6:]) for event in COMPLETE_STREAMS["gemini"].splitlines()[::2]]),
        ("gemini", b"\n".join(event[6:] for event in COMPLETE_STREAMS["gemini"].splitlines()[::2])),
    ],
)
def test_a_service_that_does_not_stream_is_read(model: HostileModel, kind: str, answer: Any):
    """A whole answer, or its chunks as lines, is read as a stream; one that is cut off, here in a character, is not."""
    body = answer if isinstance(answer, bytes) else json.dumps(answer, indent=1).encode()
    outcome = play(model, kind, http_response(codecs.BOM_UTF8 + body))
    assert (outcome.status, outcome.text, len(model.received)) == ("completed", "Hi", 1), outcome.error
    outcome = play(model, kind, http_response(body[: body.index(b"H")] + "é".encode()[:1]), http_response(body))
    assert (outcome.status, outcome.text, len(model.received)) == ("completed", "Hi", 2), outcome.error


LINE_ENDS = {"CRLF": b"\r\n", "CR": b"\r"}
WRITINGS: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda body: codecs.BOM_UTF8 + body,
    "comments": lambda body: b": keep-alive\n\n" + body.replace(b"\n\n", b"\n: PROCESSING {\n\n: keep-alive\n\n"),
    "ids": lambda body: body.replace(b"data:", b"id: 7\nretry: 1000\ndata:"),
    "names": lambda body: body if b"event:" in body else body.replace(b"data:", b"event: message\ndata:"),
    "no spaces": lambda body: body.replace(b"data: ", b"data:").replace(b"event: ", b"event:"),
    "fragments of data": lambda body: body.replace(b", ", b",\ndata: "),
    "no last line": lambda body: body.rstrip(b"\n"),
    **{name: lambda body, end=end: body.replace(b"\n", end) for name, end in LINE_ENDS.items()},
}
"""Ways to write server-sent events, in which proxies and gateways pass on the same ones."""


@pytest.mark.parametrize("kind", COMPLETE_STREAMS)
def test_a_complete_response_is_read_however_its_events_are_written(model: HostileModel, kind: str):
    """It is the same answer, and is paid for once; CRLF may come in two fragments."""
    complete_stream = COMPLETE_STREAMS[kind]
    split_stream = complete_stream.replace(b"\n", b"\r\n").replace(b"\r", b"\r|").split(b"|")
    bodies = {name: stream(write(complete_stream)) for name, write in WRITINGS.items()}
    expected_outcome = play(model, kind, stream(complete_stream))
    for name, body in (*bodies.items(), ("split CRLF", parts_stream(split_stream))):
        outcome = play(model, kind, body)
        assert (outcome.status, outcome.text, len(model.received)) == ("completed", "Hi", 1), (name, outcome.error)
        usage_and_messages = (outcome.usage, outcome.entries[1]["messages"])
        assert usage_and_messages == (expected_outcome.usage, expected_outcome.entries[1]["messages"]), name


AT_ONCE = {"trailing bytes", "broken chunk"}
"""aiohttp, which Azure's SDK uses, gives nothing of what arrives in one fragment with such an end."""


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", COMPLETE_STREAMS)
def test_a_complete_response_is_accepted_regardless_of_how_its_connection_closes(model: HostileModel, kind: str):
    """It is not asked for again, and its tokens are counted once, as those of an answer that ends well."""
    expected_outcome = play(model, kind, stream(COMPLETE_STREAMS[kind]))
    for name in CONNECTION_CLOSES.keys() - (AT_ONCE if kind == "azure-ai-agents" else set()):
        outcome = play(model, kind, CONNECTION_CLOSES[name](COMPLETE_STREAMS[kind]))
        assert (outcome.status, outcome.text, len(model.received)) == ("completed", "Hi", 1), (name, outcome.error)
        usage_and_messages = (outcome.usage, outcome.entries[1]["messages"])
        assert usage_and_messages == (expected_outcome.usage, expected_outcome.entries[1]["messages"]), name


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["openai-responses", "chat-completions", "anthropic", "gemini"])
def test_a_response_without_its_last_event_is_retried(model: HostileModel, kind: str):
    """A connection that fails before the last event leaves no answer, even if all of the text has come."""
    complete_stream = stream(COMPLETE_STREAMS[kind])
    parts = COMPLETE_STREAMS[kind].split(b"\n\n")
    end = -4 if kind == "chat-completions" else -2
    for name in ("longer length", "no last chunk", "reset", "broken gzip"):
        outcome = play(model, kind, CONNECTION_CLOSES[name](b"\n\n".join([*parts[:end], b""])), complete_stream)
        assert (outcome.status, outcome.text, len(model.received)) == ("completed", "Hi", 2), (name, outcome.error)


def test_a_run_that_is_cut_off_within_its_last_event_has_not_ended(model: HostileModel):
    """The connection ends in good order, but the tokens of the run have not come."""
    complete_stream = COMPLETE_STREAMS["azure-ai-agents"]
    expected_outcome = play(model, "azure-ai-agents", stream(complete_stream))
    cut_stream = stream(complete_stream[: complete_stream.rindex(b"usage")])
    outcome = play(model, "azure-ai-agents", cut_stream, stream(complete_stream))
    assert (outcome.text, outcome.usage, len(model.received)) == ("Hi", expected_outcome.usage, 2), outcome.error


def test_a_complete_response_does_not_wait_for_an_open_connection():
    """The turn of each service ends with the tokens, and closes the connection, on which only comments come."""

    def turn(kind: str) -> tuple[Any, ...]:
        with hostile_model() as server:
            closed_by_client = threading.Event()
            outcome = play(server, kind, keep_open(COMPLETE_STREAMS[kind], closed_by_client))
            return kind, outcome.text, bool(outcome.usage), len(server.received), closed_by_client.wait(10)

    with ThreadPoolExecutor(len(COMPLETE_STREAMS)) as threads:
        assert list(threads.map(turn, COMPLETE_STREAMS)) == [(kind, "Hi", True, 1, True) for kind in COMPLETE_STREAMS]


INVALID_HTTP: dict[str, Callable[[bytes], bytes | Send]] = {
    "status line": lambda _: b"GARBAGE\r\n\r\n",
    "header": lambda _: b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n",
    "chunk": CONNECTION_CLOSES["broken chunk"],
}
"""What is no HTTP, before an answer and in its middle."""


@pytest.mark.drawn(2)
@pytest.mark.parametrize("kind", ["openai-responses", "chat-completions", "anthropic", "gemini"])
def test_invalid_http_is_retried(model: HostileModel, kind: str):
    """It counts as a broken connection, regardless of the status of the SDK's error."""
    complete_stream = COMPLETE_STREAMS[kind]
    for name, break_stream in INVALID_HTTP.items():
        outcome = play(
            model, kind, break_stream(complete_stream[: complete_stream.index(b"\n\n") + 2]), stream(complete_stream)
        )
        assert (outcome.status, outcome.text, len(model.received)) == ("completed", "Hi", 2), (name, outcome.error)


END_OF_CALLS = {
    "chat-completions": events(chat_chunk("Bye"), chat_chunk(finish="stop"), "[DONE]"),
    "openai-responses": events(*response_events("Bye", "resp_2")),
    "anthropic": events(*messages_events("Bye")),
    "gemini": events({"candidates": [{"content": {"parts": [{"text": "Bye"}]}, "finishReason": "STOP"}]}),
    "azure-ai-agents": b"",
}
"""What the model says when it has the results of a recorded answer's calls."""


def answer_to(model: HostileModel, folder: str, body: bytes | Send) -> dict[str, Any]:
    """Play an answer, and give what a caller sees of it: text, reasoning, calls, usage, and the number of requests."""
    outcome = play(model, folder, body, stream(END_OF_CALLS[folder]))
    contents = [
        content for entry in outcome.entries[1:] for message in entry["messages"] for content in message["contents"]
    ]
    reasoning = "".join(content.get("text") or "" for content in contents if content["$type"] == "reasoning")
    calls = [(content["name"], content["arguments"]) for content in contents if content["$type"] == "functionCall"]
    error = (outcome.error or {}).get("message")
    return {
        "status": outcome.status,
        "text": outcome.text,
        "reasoning": reasoning,
        "calls": calls,
        "usage": outcome.usage,
        "error": error,
        "requests": len(model.received),
    }


@cache
def recorded_answers(folder: str) -> dict[str, list[Any]]:
    """Give the events of every recorded answer that ends well."""
    paths = recorded_streams(folder)
    answers = {str(path.relative_to(RECORDINGS)): path.read_text().splitlines() for path in paths}
    marks = ('"[DONE]"', "response.completed", "message_stop", '"finishReason"')
    if folder == "azure-ai-agents":  # whose runs have no calls of the app
        answers = {name: lines for name, lines in answers.items() if "thread.run.completed" in "".join(lines)}
        return {name: [json.loads(line) for line in lines] for name, lines in answers.items() if "submit" not in name}
    return {
        name: [json.loads(line)["data"] for line in lines]
        for name, lines in answers.items()
        if len(lines) < 300 and any(mark in "".join(lines[-3:]) for mark in marks)
    }


def as_events(folder: str, answer: Sequence[Any]) -> Sequence[Any]:
    """Give events, of lines of a recording of the Agents service with their names."""
    return [(line["event"], line["data"]) for line in answer] if folder == "azure-ai-agents" else answer


@pytest.mark.drawn(10)
@pytest.mark.recordings
@pytest.mark.skipif(not RECORDINGS.is_dir(), reason="needs the recordings")
@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder, rows in STREAM_MUTATIONS.items() for name in rows]
)
def test_a_complete_answer_is_the_same_however_it_is_written(model: HostileModel, folder: str, name: str):
    """Nothing is lost, nothing is added, and the model is asked as often: of three recordings, drawn anew each time."""
    mutate = STREAM_MUTATIONS[folder][name]
    answers = recorded_answers(folder)
    changed = [(path, mutated) for path, answer in answers.items() if (mutated := mutate(answer)) != answer]
    chance = chooser(f"complete streams, {folder}, {name}")
    for path, mutated in chance.sample(changed, min(3, len(changed))):
        body, mutated_body = (to_wire(folder, as_events(folder, answer)) for answer in (answers[path], mutated))
        expected_answer = answer_to(model, folder, stream(body))
        given_answer = answer_to(model, folder, stream(mutated_body))
        if name.startswith("done instead"):  # the tokens were in the final event
            expected_answer, given_answer = (answer | {"usage": None} for answer in (expected_answer, given_answer))
        assert given_answer == expected_answer, path
        assert given_answer["status"] != "failed", path


@pytest.mark.recordings
@pytest.mark.skipif(not CASES.is_dir(), reason="needs the small inputs")
@pytest.mark.parametrize(
    ("names", "text", "tool_calls"),
    [
        (["chat-choices-null"], "hi", []),
        (["chat-content-as-list"], "Hello friend", []),
        (["chat-empty-answer"], "", []),
        (["chat-empty-arguments"], "Bye", ["ping"]),
        (["chat-cut-arguments"], "", []),
        (["responses-call-only-in-completed"], "Bye", ["look final"]),
        (["responses-call-id-repeats-1", "responses-call-id-repeats-2"], "Bye", ["look a", "look b"]),
        (["responses-text-only-in-completed"], "Only in the final object.", []),
        (["responses-content-filter"], "This is blo", []),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and value else "",
)
def test_a_small_input_comes_out_right(model: HostileModel, names: list[str], text: str, tool_calls: list[str]):
    """The text is there, each tool runs once, and its result goes back with its call."""
    kind = "chat-completions" if names[0].startswith("chat") else "openai-responses"
    started_calls: list[str] = []

    def look(what: str) -> None:
        started_calls.append(f"look {what}")

    def ping() -> None:
        started_calls.append("ping")

    def write_file(path: str, text: str) -> None:
        started_calls.append(f"write {path} {text}")

    streams = [stream((CASES / f"{name}.sse").read_bytes()) for name in names]
    outcome = play(model, kind, *streams, stream(END_OF_CALLS[kind]), tools=[look, ping, write_file])
    assert (outcome.status, outcome.text, started_calls) == ("completed", text, tool_calls), outcome.error
    assert (outcome.finish_reason == "length") == (names == ["chat-cut-arguments"])
    assert len(model.received) == len(names) + (text == "Bye")
    client = "Completions" if kind == "chat-completions" else "Responses"
    assert find_violation(client, json.loads(model.received[-1].body)) is None
