"""Complete answers of each service, and connections that end badly after them."""

import gzip
import threading
import time
import zlib
from collections.abc import Callable
from typing import Any

from tests.durable_agent_host.hostile_model import (
    Send,
    chat_chunk,
    events,
    messages_events,
    parts_stream,
    response_events,
    stream,
)
from tests.durable_agent_host.hostile_streams import named_event

TOKENS = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
RESPONSE = response_events("Hi")
RESPONSE[-1]["response"]["usage"] = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 5,
}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "object": "thread.message",
    "role": "assistant",
    "thread_id": "thread_1",
    "run_id": "run_1",
    "status": "completed",
    "content": [{"type": "text", "text": {"value": "Hi", "annotations": []}}],
}
RUN = {"id": "run_1", "object": "thread.run", "thread_id": "thread_1", "assistant_id": "asst_1"}
STEP = {
    "id": "step_1",
    "object": "thread.run.step",
    "type": "message_creation",
    "status": "completed",
    "run_id": "run_1",
    "step_details": {"type": "message_creation", "message_creation": {"message_id": "msg_1"}},
}
COMPLETE_STREAMS = {
    "openai-responses": events(*RESPONSE),
    "chat-completions": events(
        chat_chunk("Hi"), chat_chunk(finish="stop"), chat_chunk() | {"choices": [], "usage": TOKENS}, "[DONE]"
    ),
    "anthropic": events(*messages_events("Hi")),
    "gemini": events(
        {"candidates": [{"content": {"role": "model", "parts": [{"text": "H"}]}}]},
        {
            "candidates": [{"content": {"role": "model", "parts": [{"text": "i"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
        },
    ),
    "azure-ai-agents": b"".join(
        (
            named_event("thread.run.created", RUN | {"status": "queued"}),
            named_event("thread.message.completed", MESSAGE),
            named_event("thread.run.step.completed", STEP),
            named_event("thread.run.completed", RUN | {"status": "completed", "usage": TOKENS}),
            named_event("done", "[DONE]"),
        )
    ),
}
"""Complete answers, as they are on the wire, that say ``Hi``."""


def stream_with_length(body: bytes, more: int) -> bytes:
    """Write a stream whose length is wrong."""
    return stream(body).replace(f"content-length: {len(body)}".encode(), f"content-length: {len(body) + more}".encode())


CHUNK = b"%x\r\n%b\r\n"


def chunked_stream(*parts: bytes, **headers: str) -> Send:
    """Write a stream in chunks, without the last one."""
    return parts_stream([CHUNK % (len(part), part) for part in parts], transfer_encoding="chunked", **headers)


def reset(body: bytes) -> Send:
    """Write a stream in chunks, and reset the connection instead of ending it."""

    def send(write: Any) -> None:
        chunked_stream(body)(write)
        raise ConnectionResetError

    return send


def keep_open(body: bytes, closed_by_client: threading.Event) -> Send:
    """Write a stream in chunks, and then comments for half a minute; notes whether the client has closed it before."""

    def send(write: Any) -> None:
        chunked_stream(body)(write)
        for _ in range(120):
            time.sleep(0.25)
            try:
                write(CHUNK % (3, b":\n\n"))
            except OSError:
                closed_by_client.set()
                return

    return send


def gzip_with_wrong_checksum(body: bytes) -> Send:
    """Write a stream in gzip, flushed after its last event as servers do, with a wrong checksum."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    compressed_bytes = packer.compress(body) + packer.flush(zlib.Z_SYNC_FLUSH)
    return chunked_stream(compressed_bytes, packer.flush()[:-8] + bytes(8), content_encoding="gzip")


CONNECTION_CLOSES: dict[str, Callable[[bytes], bytes | Send]] = {
    "longer length": lambda body: stream_with_length(body, 9),
    "shorter length": lambda body: stream_with_length(body, -1),
    "trailing bytes": lambda body: stream_with_length(body + b"garbage", -7),
    "trailing event": lambda body: stream(body + b"data: {garbage\n\n"),
    "no last chunk": chunked_stream,
    "broken chunk": lambda body: parts_stream(
        [CHUNK % (len(body), body), b"no length\r\n"], transfer_encoding="chunked"
    ),
    "reset": reset,
    "gzip": lambda body: stream(gzip.compress(body), content_encoding="gzip"),
    "broken gzip": gzip_with_wrong_checksum,
}
"""Ends of a connection after a complete answer: a good one, and bad ones."""
