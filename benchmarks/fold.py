"""What the fold costs, next to the framework's own finalizer, and what it stores of recorded streams, in one run.

    .venv/bin/python benchmarks/fold.py [--chunks 100 1000 10000 100000] [--repeat 15] [--limit 20]

Times: a stream of one content in so many chunks, as the real client parses the events of the Responses API. Both sides
get the same updates and take turns, so that what else the machine does falls on both. Garbage collection is on. The
framework's side is ``AgentResponse.from_updates``; where it would take longer than the limit for one fold, as the
square of the length before says, it is left out ("-"). "calls" are calls of tools in parallel, ten chunks each, mixed;
"chat", "claude", "gemini" and "agents" are texts in chunks of Chat Completions, Anthropic, Gemini and Azure AI Agents,
"claude code" is code of Anthropic's, "plain" a text in updates that no client made. Times are the processor's, both
sides being one thread, so that they hold on a busy machine.

Bytes, for each recorded stream: ``streamed`` is the JSON of the events, ``updates`` what the updates' contents take as
they are encoded, ``stored`` what the contents of the fold add to the entry that the session stores, ``final`` the
compact contents of the provider's own final response: the framework's dictionaries of what the client parses without a
stream, completed by the same items. All is compact UTF-8 JSON.
"""

import argparse
import asyncio
import copy
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from agent_framework import AgentResponse, AgentResponseUpdate, ChatResponseUpdate, Content
from agent_framework._types import map_chat_to_agent_update
from agent_framework_anthropic import AnthropicClient
from agent_framework_openai import OpenAIChatCompletionClient
from anthropic._models import construct_type as typed_event
from anthropic.types.beta import BetaRawMessageStreamEvent
from openai._models import construct_type
from openai.types.chat import ChatCompletionChunk

sys.path.insert(0, str(Path(__file__).parent.parent))

from durable_agent_host.codec.content import encode_content
from durable_agent_host.codec.message import encode_response_entry
from durable_agent_host.providers.anthropic.provider import ANTHROPIC
from durable_agent_host.providers.chat_completions.provider import CHAT
from durable_agent_host.providers.gemini.provider import GEMINI
from durable_agent_host.providers.gemini.response_reader import ResponseReader
from durable_agent_host.providers.openai.provider import RESPONSES
from durable_agent_host.stream.fold import ItemReader, fold_updates
from durable_agent_host_azure_ai_agents.provider import AZURE_AI_AGENTS
from durable_agent_host_azure_ai_agents.run_events import RunReader
from tests.durable_agent_host.stream.streams import FOLDER, parse_response, read_recordings, updates_of

BASE = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": []}
TIME = "2026-01-01T00:00:00+00:00"


def text_events(chunks: int) -> list[dict[str, Any]]:
    """A message in so many deltas."""
    place = {"output_index": 0, "content_index": 0, "item_id": "msg_1"}
    part = {"type": "output_text", "annotations": [], "logprobs": [], "text": "token " * chunks}
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
    return [
        {"type": "response.content_part.added", **place, "part": part | {"text": ""}},
        *({"type": "response.output_text.delta", **place, "delta": "token ", "logprobs": []} for _ in range(chunks)),
        {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


def code_events(chunks: int) -> list[dict[str, Any]]:
    """A code run whose script has so many deltas."""
    place = {"output_index": 0, "item_id": "ci_1"}
    code = "x = 1\n" * chunks
    item = {"type": "code_interpreter_call", "id": "ci_1", "code": code, "container_id": "cntr_1", "outputs": []}
    delta = {"type": "response.code_interpreter_call_code.delta", **place, "delta": "x = 1\n"}
    return [
        *(delta | {"sequence_number": number} for number in range(chunks)),
        {"type": "response.code_interpreter_call_code.done", **place, "code": code, "sequence_number": chunks},
        {"type": "response.output_item.done", "output_index": 0, "item": item | {"status": "completed"}},
    ]


def argument_events(chunks: int) -> list[dict[str, Any]]:
    """One function call whose arguments have so many deltas."""
    return _call_events(1, chunks)


def parallel_events(chunks: int) -> list[dict[str, Any]]:
    """Function calls of ten deltas each, mixed."""
    return _call_events(chunks // 10, 10)


def _call_events(calls: int, deltas: int) -> list[dict[str, Any]]:
    def item(n: int) -> dict[str, Any]:
        text = '{"a":' + " " * (deltas - 2) + "1}"
        return {"type": "function_call", "id": f"fc_{n}", "call_id": f"call_{n}", "name": "f", "arguments": text}

    kind = "response.function_call_arguments"
    fragments = ['{"a":', *[" "] * (deltas - 2), "1}"]
    places = [{"output_index": n, "item_id": f"fc_{n}"} for n in range(calls)]
    return [
        *(
            {"type": "response.output_item.added", "output_index": n, "item": item(n) | {"arguments": ""}}
            for n in range(calls)
        ),
        *({"type": f"{kind}.delta", **place, "delta": fragment} for fragment in fragments for place in places),
        *({"type": f"{kind}.done", **place, "arguments": item(0)["arguments"]} for place in places),
        *({"type": "response.output_item.done", "output_index": n, "item": item(n)} for n in range(calls)),
    ]


def chat_updates(chunks: int) -> list[AgentResponseUpdate]:
    """A text in so many chunks of Chat Completions, as the hosted client reads them."""
    choice = {"index": 0, "delta": {"content": "token "}, "finish_reason": None, "logprobs": None}
    base = {"object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "f", "id": "c"}
    last = base | {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", "logprobs": None}]}
    said = [*([base | {"choices": [choice]}] * chunks), last]
    client = CHAT.adapt(OpenAIChatCompletionClient(model="m", api_key="practice"))
    typed = (construct_type(type_=ChatCompletionChunk, value=copy.deepcopy(one)) for one in said)
    return _read_by(client, map(client._parse_response_update_from_openai, typed))  # noqa: SLF001 - as the client does


def claude_updates(chunks: int) -> list[AgentResponseUpdate]:
    """A text in so many deltas of Anthropic, as the hosted client reads them."""
    return _claude({"type": "text", "text": ""}, {"type": "text_delta", "text": "token "}, chunks)


def claude_code_updates(chunks: int) -> list[AgentResponseUpdate]:
    """The code of a hosted tool in so many deltas of Anthropic."""
    block = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
    fragments = ['{"code": "', *["token "] * (chunks - 2), '"}']
    return _claude(block, *({"type": "input_json_delta", "partial_json": fragment} for fragment in fragments))


def _claude(block: dict[str, Any], *deltas: Any) -> list[AgentResponseUpdate]:
    if isinstance(deltas[-1], int):
        deltas = (deltas[0],) * deltas[-1]
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events = [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]
    client = ANTHROPIC.adapt(AnthropicClient(model="m", api_key="practice"))
    typed = (typed_event(type_=cast("Any", BetaRawMessageStreamEvent), value=copy.deepcopy(one)) for one in events)
    state, usage_told = SimpleNamespace(), None
    read = (client._process_stream_event(event, usage_told, request_state=state) for event in typed)  # noqa: SLF001
    return _read_by(client, (one for one in read if one is not None))


def _read_by(client: Any, updates: Iterable[Any]) -> list[AgentResponseUpdate]:
    """Read what a hosted client has parsed to the end, as it does itself."""

    async def arriving() -> AsyncIterator[Any]:
        for update in updates:
            yield update

    async def read() -> list[AgentResponseUpdate]:
        stream = client._build_response_stream(arriving())  # noqa: SLF001 - what the client does with each stream
        return [map_chat_to_agent_update(update, "Player") async for update in stream]

    return asyncio.run(read())


def gemini_updates(chunks: int) -> list[AgentResponseUpdate]:
    """A text in so many chunks of Gemini, as the hosted client reads them."""
    reader = ResponseReader(streaming=True)
    said = {
        "candidates": [{"content": {"role": "model", "parts": [{"text": "token "}]}, "index": 0}],
        "responseId": "r",
    }
    return [
        map_chat_to_agent_update(
            ChatResponseUpdate(role="assistant", contents=reader.read(said), response_id="r", raw_representation=said),
            "Player",
        )
        for _ in range(chunks)
    ]


def agents_updates(chunks: int) -> list[AgentResponseUpdate]:
    """A text in so many deltas of Azure AI Agents, as the client reads them."""
    text = {"type": "text", "text": {"value": "token " * chunks, "annotations": []}}
    whole = {"id": "msg_1", "object": "thread.message", "role": "assistant", "content": [text]}
    fragment = {"index": 0, "type": "text", "text": {"value": "token "}}
    delta = {"id": "msg_1", "object": "thread.message.delta", "delta": {"content": [fragment]}}
    reader = RunReader("thread_1", "run_1")
    events = [*([("thread.message.delta", delta)] * chunks), ("thread.message.completed", whole)]
    read = (update for name, data in events for update in reader.read(name, data))
    return [map_chat_to_agent_update(update, "Player") for update in read]


def plain_updates(chunks: int) -> list[AgentResponseUpdate]:
    """A text in so many updates that say nothing else."""
    return [AgentResponseUpdate(contents=[Content.from_text("token ")], role="assistant") for _ in range(chunks)]


def _through_responses(events_of: Callable[[int], list[dict[str, Any]]]) -> Callable[[int], list[AgentResponseUpdate]]:
    return lambda chunks: updates_of([{"type": "response.created", "response": BASE}, *events_of(chunks)])


STREAMS: dict[str, Callable[[int], list[AgentResponseUpdate]]] = {
    "text": _through_responses(text_events),
    "code": _through_responses(code_events),
    "arguments": _through_responses(argument_events),
    "calls": _through_responses(parallel_events),
    "chat": chat_updates,
    "claude": claude_updates,
    "claude code": claude_code_updates,
    "gemini": gemini_updates,
    "agents": agents_updates,
    "plain": plain_updates,
}
PROVIDERS: dict[str, ItemReader] = {
    "chat": CHAT,
    "claude": ANTHROPIC,
    "claude code": ANTHROPIC,
    "gemini": GEMINI,
    "agents": AZURE_AI_AGENTS,
}
"""Stream → the provider whose client gives it; the others are OpenAI's."""


def seconds(work: Callable[[], object]) -> float:
    """Time one call."""
    began = time.process_time()
    work()
    return time.process_time() - began


def shown(times: list[float]) -> str:
    """Write median and p99 in milliseconds."""
    if not times:
        return f"{'-':>10} {'-':>10}"
    return f"{statistics.median(times) * 1000:>10.2f} {sorted(times)[math.ceil(len(times) * 0.99) - 1] * 1000:>10.2f}"


def time_streams(lengths: list[int], repeat: int, limit: float) -> None:
    """Print the times of both sides."""
    print(
        f"{'stream':<12} {'chunks':>7} {'ours ms':>10} {'p99':>10} {'theirs ms':>10} {'p99':>10} {'ratio':>7} {'n':>4}"
    )
    for name, stream_of in STREAMS.items():
        slowest = 0.0
        for chunks in lengths:
            updates, items = stream_of(chunks), PROVIDERS.get(name, RESPONSES)
            ours: list[float] = []
            theirs: list[float] = []
            gc.collect()
            gc.freeze()
            runs = max(3, min(repeat, 2_000_000 // (chunks * 10)))
            for _ in range(runs):
                ours.append(seconds(lambda updates=updates, items=items: fold_updates(updates, items)))
                if slowest * 100 <= limit and (not theirs or theirs[-1] < 1 or len(theirs) < 3):
                    theirs.append(seconds(lambda updates=updates: AgentResponse.from_updates(updates)))
            gc.unfreeze()
            slowest = max(theirs) if theirs else math.inf
            ratio = f"{statistics.median(theirs) / statistics.median(ours):>6.1f}x" if theirs else f"{'-':>7}"
            print(f"{name:<12} {chunks:>7} {shown(ours)} {shown(theirs)} {ratio} {len(ours):>4}", flush=True)


def size(value: object) -> int:
    """Count the bytes of compact JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))


def plain(value: Any) -> Any:
    """Leave live provider objects out of the framework's dictionaries."""
    if isinstance(value, dict):
        known: dict[str, Any] = value
        return {name: plain(inner) for name, inner in known.items() if name != "raw_representation"}
    return [plain(one) for one in value] if isinstance(value, list) else value


def stored_bytes(response: AgentResponse[Any]) -> int:
    """Count what the contents of a response take where they are stored: their entry, but for an entry without them."""
    bare = copy.copy(response)
    bare.messages = [copy.copy(message) for message in response.messages]
    for message in bare.messages:
        message.contents = []
    whole, empty = (size(encode_response_entry("turn", one, created_at=TIME)) for one in (response, bare))
    return whole - empty


def weigh_streams() -> None:
    """Print the bytes of every recorded stream."""
    print(f"\n{'recorded stream':<56} {'streamed':>9} {'updates':>9} {'stored':>8} {'final':>8} {'stored/final':>12}")
    ratios: list[float] = []
    totals = [0, 0, 0, 0]
    for stream in read_recordings():
        if stream.final is None or not stream.name.endswith(".jsonl") or not stream.final.get("output"):
            continue
        updates: list[AgentResponseUpdate] = stream.updates
        final = plain([content.to_dict() for message in parse_response(stream.final) for content in message.contents])
        row = [
            size(stream.events),
            sum(size([encode_content(content) for content in update.contents]) for update in updates),
            stored_bytes(fold_updates(updates, RESPONSES)),
            size(final),
        ]
        totals = [a + b for a, b in zip(totals, row, strict=True)]
        ratios.append(row[2] / row[3])
        numbers = f"{row[0]:>9} {row[1]:>9} {row[2]:>8} {row[3]:>8}"
        print(f"{stream.name.removesuffix('.jsonl'):<56} {numbers} {ratios[-1]:>12.3f}")
    print(f"{'all':<56} {totals[0]:>9} {totals[1]:>9} {totals[2]:>8} {totals[3]:>8} {totals[2] / totals[3]:>12.3f}")
    print(f"stored/final: median {statistics.median(ratios):.3f}, largest {max(ratios):.3f}, streams {len(ratios)}")


def main() -> None:
    """Run both parts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chunks", type=int, nargs="+", default=[100, 1_000, 10_000, 100_000])
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--limit", type=float, default=20.0, help="seconds for one fold of the framework")
    options = parser.parse_args()
    time_streams(options.chunks, options.repeat, options.limit)
    if FOLDER.is_dir():
        weigh_streams()
    else:
        print("no recordings: set RECORDINGS_DIR")


if __name__ == "__main__":
    main()
