"""Loads what a process's first request to the Responses API needs, without network access.

The SDK (openai 3.54) loads the API's module on first use, gets the platform's name with a separate process, and builds
the parsers of stream events when the first ones arrive: the first turn would wait half a second for it. Here a client
without connections reads the short response below.
"""

import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, Final

from durable_agent_host.providers.openai.client import adapt_client

_URL: Final = "http://warm-up.invalid/nothing-is-sent"
_RESPONSE: Final[dict[str, Any]] = {
    "id": "resp_0",
    "object": "response",
    "created_at": 0,
    "model": "none",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
    "status": "completed",
}
_USAGE: Final[dict[str, Any]] = {
    "input_tokens": 1,
    "input_tokens_details": {"cached_tokens": 0},  # a field fewer than the SDK requires, as several services send it
    "output_tokens": 1,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 2,
}
_PART: Final[dict[str, Any]] = {"type": "output_text", "text": "Yes.", "annotations": []}
_MESSAGE: Final[dict[str, Any]] = {
    "type": "message",
    "id": "msg_0",
    "role": "assistant",
    "status": "completed",
    "content": [_PART],
}
_IN_MESSAGE: Final = {"item_id": "msg_0", "output_index": 0, "content_index": 0}
_EVENTS: Final[tuple[dict[str, Any], ...]] = (
    {"type": "response.created", "response": _RESPONSE | {"status": "in_progress"}},
    {"type": "response.in_progress", "response": _RESPONSE | {"status": "in_progress"}},
    {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE | {"content": []}},
    {"type": "response.content_part.added", **_IN_MESSAGE, "part": _PART | {"text": ""}},
    {"type": "response.output_text.delta", **_IN_MESSAGE, "delta": "Yes.", "logprobs": []},
    {"type": "response.output_text.done", **_IN_MESSAGE, "text": "Yes.", "logprobs": []},
    {"type": "response.content_part.done", **_IN_MESSAGE, "part": _PART},
    {"type": "response.output_item.done", "output_index": 0, "item": _MESSAGE},
    {"type": "response.completed", "response": _RESPONSE | {"output": [_MESSAGE], "usage": _USAGE}},
)


async def warm_up() -> None:
    """Have an adapted client read a streamed response without a server.

    The client has none of the framework's layers, so nothing observes the call.
    """
    import anyio.lowlevel  # noqa: PLC0415 - the purpose of this function
    import httpx2  # noqa: PLC0415
    from agent_framework import Message  # noqa: PLC0415
    from agent_framework_openai import RawOpenAIChatClient  # noqa: PLC0415
    from openai import AsyncOpenAI  # noqa: PLC0415

    lines = [
        f"event: {event['type']}\ndata: {json.dumps(event | {'sequence_number': index})}\n\n"
        for index, event in enumerate(_EVENTS)
    ]

    def respond(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, text="".join(lines))

    await anyio.lowlevel.checkpoint()  # loads the connection code for this kind of loop
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(respond)) as http:
        sdk = AsyncOpenAI(api_key="none", base_url=_URL, http_client=http, max_retries=0)
        client: Any = adapt_client(RawOpenAIChatClient(model="none", async_client=sdk))
        with _suppress_request_log():
            async for _ in client.get_response([Message("user", ["?"])], stream=True, options={"store": False}):
                pass


@contextmanager
def _suppress_request_log() -> Generator[None]:
    """Suppress the log line of this call; concurrent requests are logged."""
    log = logging.getLogger("httpx2")
    log.addFilter(_is_real)
    try:
        yield
    finally:
        log.removeFilter(_is_real)


def _is_real(record: logging.LogRecord) -> bool:
    return _URL not in record.getMessage()
