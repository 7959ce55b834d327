"""A model's endpoint over raw sockets: it sends exactly the bytes that a test gives it, and notes what it was sent."""

import contextlib
import json
import socket
import socketserver
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

Send = Callable[[Callable[[bytes], None]], None]
"""Writes an answer in fragments; it may raise when the client has gone, or `ConnectionResetError` to reset it."""


@dataclass
class ReceivedRequest:
    """One request as it came over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class HostileModel:
    """Answers in the order of its scripts, and with its fallback when there are none left.

    Attributes:
        url: where it listens.
        scripts: bytes of whole answers with their heads, or what writes them.
        fallback: for requests after the last script.
        received: oldest first.
        by_path: answers to requests whose path ends so, which are no model calls and are not noted.
    """

    url: str
    scripts: list[bytes | Send] = field(default_factory=list)
    fallback: bytes | Send = b""
    received: list[ReceivedRequest] = field(default_factory=list)
    by_path: dict[str, bytes] = field(default_factory=dict)

    def play(self, *scripts: bytes | Send, fallback: bytes | Send | None = None) -> None:
        """Forget everything, and answer with these from now on."""
        self.received.clear()
        self.scripts[:] = scripts
        self.fallback = (
            fallback if fallback is not None else http_response(b'{"error":{"message":"no script"}}', status=400)
        )


@contextlib.contextmanager
def hostile_model() -> Iterator[HostileModel]:
    """Serve for as long as the context lasts."""
    model = HostileModel("")

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            request = _read(self.rfile)
            if request is None:
                return
            path = request.path.partition("?")[0]
            fixed_response = next(
                (response for suffix, response in model.by_path.items() if path.endswith(suffix)), None
            )
            if fixed_response is not None:
                self.wfile.write(fixed_response)
                return
            model.received.append(request)
            script = model.scripts.pop(0) if model.scripts else model.fallback
            try:
                if callable(script):
                    script(self.wfile.write)
                else:
                    self.wfile.write(script)
            except ConnectionResetError:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.rfile.close()
                self.connection.close()
            except OSError:
                pass

    class Server(socketserver.ThreadingTCPServer):
        allow_reuse_address = True
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_address[1]}"
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        try:
            yield model
        finally:
            server.shutdown()


def _read(stream: Any) -> ReceivedRequest | None:
    line = stream.readline().decode("latin-1").split()
    if len(line) < 2:
        return None
    headers: dict[str, str] = {}
    while header := stream.readline().decode("latin-1").strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    return ReceivedRequest(line[0], line[1], headers, stream.read(int(headers.get("content-length", "0"))))


def http_response(body: bytes, *, status: int = 200, kind: str = "application/json", **headers: str) -> bytes:
    """Give an answer with a length, after which the connection is closed."""
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    head = f"HTTP/1.1 {status} Status\r\ncontent-type: {kind}\r\nconnection: close\r\n{more}"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def stream(body: bytes = b"", **headers: str) -> bytes:
    """Give an event stream that ends when the connection is closed in good order."""
    return http_response(body, kind="text/event-stream", **headers)


def events(*data: Any, with_names: bool = True) -> bytes:
    """Write server-sent events; with the name that their type gives them."""
    stream_bytes = b""
    for event in data:
        name = f"event: {event['type']}\n" if with_names and isinstance(event, dict) and "type" in event else ""
        event_data = event if isinstance(event, str) else json.dumps(event)
        stream_bytes += f"{name}data: {event_data}\n\n".encode()
    return stream_bytes


def chat_chunk(text: str | None = None, finish: str | None = None) -> dict[str, Any]:
    """Write a chunk of Chat Completions."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def response_events(text: str, response_id: str = "resp_1") -> list[dict[str, Any]]:
    """Return the stream events of a response of the Responses API with a text."""
    item = {"id": f"msg_{response_id}", "type": "message", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": []}
    response = {
        "id": response_id,
        "object": "response",
        "created_at": 1,
        "model": "m",
        "status": "completed",
        "tools": [],
        "output": [item | {"content": [part]}],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
    }
    initial_response = response | {"output": [], "status": "in_progress"}
    location = {"output_index": 0, "item_id": item["id"], "content_index": 0}
    stream_events: list[dict[str, Any]] = [
        {"type": "response.created", "response": initial_response},
        {"type": "response.output_item.added", "output_index": 0, "item": item | {"content": []}},
        {"type": "response.content_part.added", **location, "part": part | {"text": ""}},
        *({"type": "response.output_text.delta", **location, "delta": char, "logprobs": []} for char in text),
        {"type": "response.output_text.done", **location, "text": text, "logprobs": []},
        {"type": "response.output_item.done", "output_index": 0, "item": response["output"][0]},
        {"type": "response.completed", "response": response},
    ]
    return [event | {"sequence_number": number} for number, event in enumerate(stream_events)]


def messages_events(text: str) -> list[dict[str, Any]]:
    """Return the stream events of a response of Anthropic's Messages API with a text."""
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    usage = {"input_tokens": 1, "output_tokens": 1}
    return [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None, "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]


def parts_stream(parts: Iterable[bytes], **headers: str) -> Send:
    """Write an event stream without a length, part by part, until the client has gone or the parts are over."""

    def send(write: Callable[[bytes], None]) -> None:
        more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
        write(f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n{more}\r\n".encode())
        for part in parts:
            write(part)

    return send
