"""Events read by their type are the events that the SDK reads: over HTTP, with the SDK's own client beside ours."""

import asyncio
import json
import os
from collections.abc import Iterable
from typing import Any

import pytest
from openai import APIError, AsyncAzureOpenAI, AsyncOpenAI

from durable_agent_host.providers.openai.client import with_fast_event_parsing
from tests.durable_agent_host.openai_outputs import OUTPUTS, build_events, build_response_body
from tests.durable_agent_host.stream.streams import read_recordings
from tests.sweeps import IS_LONG, chooser

DELTA: dict[str, Any] = {
    "type": "response.output_text.delta",
    "item_id": "msg_1",
    "output_index": 0,
    "content_index": 0,
    "delta": "said ",
    "logprobs": [],
    "sequence_number": 4,
    "obfuscation": "x7",
    "brand_new_field": {"a": [1]},
}
ODD: dict[str, list[dict[str, Any]]] = {
    "a kind that nobody knows": [DELTA, {"type": "response.brand_new.delta", "delta": "?", "sequence_number": 5}],
    "fields that are missing": [{"type": "response.output_text.delta", "delta": "a"}, {"type": "response.completed"}],
    "fields of another form": [DELTA | {"output_index": "first"}, DELTA | {"delta": None}, DELTA | {"logprobs": "no"}],
    "no type": [{"delta": "a"}, {"type": None}, {"type": 7}],
    "an object that is no event": [{}, {"id": "resp_1", "object": "response"}],
    "lone halves of a character": [DELTA | {"delta": "\ud83d"}],
}


async def read_events(client: AsyncOpenAI, bodies: list[bytes]) -> list[list[Any]]:
    """Read streams over HTTP; an error that the SDK raises is the last thing that is heard of a stream."""
    remaining_bodies = iter(bodies)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = next(remaining_bodies)
        head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {len(body)}\r\n"
        writer.write(f"{head}connection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()

    streams: list[list[Any]] = []
    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server, client:
        port = server.sockets[0].getsockname()[1]
        client.base_url = f"http://127.0.0.1:{port}/v1"
        for _ in bodies:
            events: list[Any] = []
            try:
                stream = await client.responses.create(model="m", input="x", stream=True)
                async for event in stream:
                    events.append(event)  # noqa: PERF401 - those before an error count
            except APIError as error:
                events.append(str(error))
            streams.append(events)
    return streams


async def compare(streams: Iterable[list[dict[str, Any]]]) -> None:
    """Hold what our client hears against what the SDK's hears."""
    bodies = ["".join(f"data: {json.dumps(event)}\n\n" for event in stream).encode() for stream in streams]
    plain = AsyncOpenAI(api_key="practice", base_url="http://127.0.0.1:1/v1", max_retries=0)
    sdk_events = await read_events(plain, bodies)
    client = AsyncOpenAI(api_key="practice", base_url="http://127.0.0.1:1/v1", max_retries=0)
    fast_events = await read_events(with_fast_event_parsing(client), bodies)
    assert any(sdk_events)
    for their, our in zip(sdk_events, fast_events, strict=True):
        assert [type(event) for event in our] == [type(event) for event in their]
        assert our == their
        assert [getattr(event, "__dict__", event) for event in our] == [
            getattr(event, "__dict__", event) for event in their
        ]


async def test_responses_of_every_kind_are_read_alike():
    """Items of all kinds, with their deltas."""
    await compare([build_events(build_response_body(output)) for output in OUTPUTS.values()])


async def test_odd_events_are_read_alike():
    """What does not fit the kind that its type names is left to the SDK."""
    await compare(ODD.values())


@pytest.mark.recordings
async def test_recorded_streams_are_read_alike():
    """What services have really sent."""
    streams = [stream.events for stream in read_recordings()]
    streams = chooser("direct events").sample(streams, len(streams) if IS_LONG else min(len(streams), 15))
    if not streams:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no recordings: set RECORDINGS_DIR")
    await compare(streams)


@pytest.mark.parametrize("azure", [False, True])
async def test_the_client_argument_is_unchanged(azure: bool):
    """The copy shares its connections, and copies of the copy are of its kind."""
    client = (
        AsyncAzureOpenAI(api_key="k", azure_endpoint="https://example.invalid", api_version="v1")
        if azure
        else AsyncOpenAI(api_key="k")
    )
    async with client:
        kind, before = type(client), dict(vars(client))
        direct = with_fast_event_parsing(client)
        again = direct.with_options(max_retries=0)
        assert type(client) is kind
        assert dict(vars(client)) == before
        assert isinstance(direct, kind)
        assert type(again) is type(direct)
        assert with_fast_event_parsing(again) is again
        assert (direct.max_retries, again.max_retries) == (client.max_retries, 0)
        assert str(again.base_url) == str(client.base_url)


def test_other_things_come_back():
    """Clients of other SDKs, and what is no client."""
    for value in (None, "text", object()):
        assert with_fast_event_parsing(value) is value
