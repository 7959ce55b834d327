"""The fold of streams of the Chat Completions API, over HTTP and through the framework's client for it."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random

import pytest
from agent_framework import Agent
from agent_framework_openai import OpenAIChatCompletionClient

from durable_agent_host.stream.fold import fold_part, fold_updates, response_as_updates
from tests.durable_agent_host.stream.streams import provider, stored, stored_all

USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


def call(name, arguments, call_id="a", **place):
    """A tool call, or a piece of one with its place."""
    named = {"id": call_id, "type": "function"} if call_id else {}
    return place | named | {"function": ({"name": name} if name else {}) | {"arguments": arguments}}


def piece(place, arguments):
    return call(None, arguments, None, index=place)


ANSWERS = {
    "text": (["Hel", "lo ", "you"], {"content": "Hello you"}),
    "refusal": ([{"refusal": "I "}, {"refusal": "cannot"}], {"refusal": "I cannot"}),
    "text and calls one after the other": (
        [
            "hm",
            {"tool_calls": [call("f", '{"x"', "a", index=0)]},
            {"tool_calls": [piece(0, ":1}")]},
            {"tool_calls": [call("g", "", "b", index=1)]},
            {"tool_calls": [piece(1, '{"y":2}')]},
        ],
        {"content": "hm", "tool_calls": [call("f", '{"x":1}', "a"), call("g", '{"y":2}', "b")]},
    ),
    "calls mixed": (
        [
            {"tool_calls": [call("f", '{"x"', "a", index=0), call("g", '{"y"', "b", index=1)]},
            {"tool_calls": [piece(1, ":2")]},
            {"tool_calls": [piece(0, ":1")]},
            {"tool_calls": [piece(1, "}"), piece(0, "}")]},
        ],
        {"tool_calls": [call("f", '{"x":1}', "a"), call("g", '{"y":2}', "b")]},
    ),
    "calls of one id": (
        [
            {"tool_calls": [call("f", '{"x"', "a", index=0), call("f", '{"y"', "a", index=1)]},
            {"tool_calls": [piece(0, ":1}")]},
            {"tool_calls": [piece(1, ":2}")]},
        ],
        {"tool_calls": [call("f", '{"x":1}', "a"), call("f", '{"y":2}', "a")]},
    ),
    "call without arguments": ([{"tool_calls": [call("f", "", "a", index=0)]}], {"tool_calls": [call("f", "", "a")]}),
}
"""What is said → its deltas, and the message of an answer that is not streamed."""


@pytest.fixture(scope="module")
def service():
    """A service that plays what its attribute says, and its URL."""

    class Player(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            body = "".join(f"data: {json.dumps(one)}\n\n" for one in chunks_of(self.server.deltas)) + "data: [DONE]\n\n"
            body = body if asked.get("stream") else json.dumps(whole_of(self.server.whole))
            self.send_response(200)
            self.send_header("content-type", "text/event-stream" if asked.get("stream") else "application/json")
            self.send_header("content-length", str(len(body.encode())))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Player) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def chunks_of(deltas):
    base = {"id": "cc_1", "object": "chat.completion.chunk", "created": 1, "model": "m", "system_fingerprint": "fp"}
    said = [{"content": delta} if isinstance(delta, str) else delta for delta in deltas]
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in [{"role": "assistant"}, *said]]
    choices.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    return [*(base | {"choices": [choice]} for choice in choices), base | {"choices": [], "usage": USAGE}]


def whole_of(message):
    choice = {"index": 0, "message": {"role": "assistant", "content": None} | message, "finish_reason": "stop"}
    base = {"id": "cc_1", "object": "chat.completion", "created": 1, "model": "m", "system_fingerprint": "fp"}
    return base | {"choices": [choice], "usage": USAGE}


async def play(service, deltas, message):
    """Give the updates of the streamed answer, and the answer that is not streamed."""
    service.deltas, service.whole = deltas, message
    client = OpenAIChatCompletionClient(
        model="m", api_key="practice", base_url=f"http://127.0.0.1:{service.server_port}/v1"
    )
    agent = Agent(client, name="Player")
    updates = [update async for update in agent.run("x", stream=True)]
    answer = await agent.run("x")
    await client.client.close()
    return updates, answer


def said_in(response):
    contents = [content for message in response.messages for content in message.contents]
    return [(one.type, one.text, one.call_id, one.name, one.arguments) for one in contents]


@pytest.mark.parametrize("name", ANSWERS)
async def test_the_fold_is_the_answer_that_is_not_streamed(service, name):
    """Texts, refusals and calls, mixed or of one id, are what the client reads from a whole answer; the laws hold."""
    updates, answer = await play(service, *ANSWERS[name])
    folded = fold_updates(updates, provider)
    assert said_in(folded) == said_in(answer)
    assert (folded.usage_details, folded.finish_reason) == (answer.usage_details, answer.finish_reason)
    for seed in range(4):
        cuts = sorted(Random(seed).randint(0, len(updates)) for _ in range(2))
        parts = updates[: cuts[0]], updates[cuts[0] : cuts[1]], updates[cuts[1] :]
        pieces = [update for part in parts for update in fold_part(part, provider)]
        assert stored_all(fold_updates(pieces, provider)) == stored_all(folded)
    assert stored(fold_updates(response_as_updates(folded), provider)) == stored(folded)


async def test_details_of_reasoning_that_come_in_pieces_are_kept(service):
    """Every detail that a service gives of its reasoning is there, in order: it wants them back."""
    details = [{"type": "reasoning.text", "text": text} for text in ("th", "ink")]
    updates, _ = await play(service, [*({"reasoning_details": [one]} for one in details), "a"], {"content": "a"})
    folded = fold_updates(updates, provider)
    reasoning, text = folded.messages[0].contents
    assert (json.loads(reasoning.protected_data), text.text) == (details, "a")
    parts = [*fold_part(updates[:2], provider), *fold_part(updates[2:], provider)]
    assert stored_all(fold_updates(parts, provider)) == stored_all(folded)
