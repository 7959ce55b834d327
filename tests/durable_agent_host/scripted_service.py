"""A model's service that plays what a test says, for clients of Anthropic, Gemini and Chat Completions, over HTTP."""

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
Refusal = tuple[int, Any]
"""Status and body of a refusal."""


class ScriptedService:
    """Answers each request with the next stream of events; its requests are kept.

    Attributes:
        bodies: of the requests, in order, without those that were refused.
        refusals: what was refused, in order.
        find_violation: what is wrong with a request, if anything; by default nothing is.
        url: where it listens.
    """

    def __init__(self, port: int) -> None:
        self.bodies: list[Json] = []
        self.refusals: list[Refusal] = []
        self.find_violation: Callable[[Json], Refusal | None] = lambda _body: None
        self.url = f"http://127.0.0.1:{port}"
        self._responses: list[list[Any]] = []
        self._lock = threading.Lock()

    def reset(self) -> None:
        """Forget what was asked and what was scripted."""
        self.bodies.clear()
        self.refusals.clear()
        self.find_violation = lambda _body: None
        self._responses.clear()

    def play(self, *responses: Iterable[Any]) -> None:
        """Script the next responses, each a list of events: dictionaries, or strings that are sent unchanged."""
        self._responses += [list(events) for events in responses]

    def next_stream(self, body: Json) -> bytes | None:
        """Note a request, and give the stream that answers it; None when nothing is scripted."""
        with self._lock:
            self.bodies.append(body)
            return b"".join(map(_frame, self._responses.pop(0))) if self._responses else None


def _frame(event: Any) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if isinstance(event.get("type"), str) else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


@contextmanager
def scripted_service() -> Iterator[ScriptedService]:
    """Serve for as long as the context lasts."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if (refusal := service.find_violation(body)) is not None:
                service.refusals.append(refusal)
                status, stream = refusal[0], json.dumps(refusal[1]).encode()
            else:
                stream = service.next_stream(body)
                status = 500 if stream is None else 200
            self.send_response(status)
            self.send_header("content-type", "text/event-stream" if status == HTTPStatus.OK else "application/json")
            self.send_header("content-length", str(len(stream or b"")))
            self.end_headers()
            self.wfile.write(stream or b"")

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service = ScriptedService(server.server_port)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


def anthropic_response(*blocks: Json | tuple[Json, list[Json]], stop: str = "end_turn") -> list[Json]:
    """The events of a message: blocks that come whole, or opened, with the deltas that follow."""
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-served-1", "content": []}
    events: list[Json] = [
        {"type": "message_start", "message": message | {"stop_reason": None, "usage": _tokens(input_tokens=3)}}
    ]
    for index, block in enumerate(blocks):
        start_block, deltas = block if isinstance(block, tuple) else (block, [])
        events.append({"type": "content_block_start", "index": index, "content_block": start_block})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    stop_fields = {"stop_reason": stop, "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": stop_fields, "usage": _tokens()}, {"type": "message_stop"}]


def _tokens(**more: int) -> Json:
    return {"output_tokens": 2} | more


def anthropic_call(call_id: str, name: str, *fragments: str, kind: str = "tool_use") -> tuple[Json, list[Json]]:
    """A block of a call as Anthropic streams it: opened with an empty input, then JSON in chunks, the first empty."""
    deltas = [{"type": "input_json_delta", "partial_json": fragment} for fragment in ("", *fragments)]
    return {"type": kind, "id": call_id, "name": name, "input": {}}, deltas


def anthropic_text(text: str) -> tuple[Json, list[Json]]:
    """A block of text."""
    return {"type": "text", "text": ""}, [{"type": "text_delta", "text": text}]


def gemini_response(*parts: Mapping[str, Any], **fields: Any) -> list[Json]:
    """The chunks of a response, one for each part, and one with further fields of the candidate."""
    chunks: list[Json] = [{"candidates": [{"content": {"role": "model", "parts": [part]}}]} for part in parts]
    usage = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
    end: Json = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP"}
    last: Json = {"candidates": [end | fields]}
    return [chunk | {"modelVersion": "gemini-served-1"} for chunk in (*chunks, last | {"usageMetadata": usage})]


def chat_response(*deltas: Json, finish: str = "stop", **fields: Any) -> list[Any]:
    """The chunks of a chat completion."""
    base = {"id": "cc_1", "object": "chat.completion.chunk", "created": 1, "model": "chat-served-1"} | fields
    choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in ({"role": "assistant"}, *deltas)]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish})
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    return [*(base | {"choices": [choice]} for choice in choices), base | {"choices": [], "usage": usage}, "[DONE]"]
