"""The durable client's calls to its own host are those that it makes over the network, without a connection."""

import asyncio
import importlib
import json
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from functions_host.testing.client_sessions import close_session, keep_sessions_apart
from functions_host.web.own_calls import OwnCalls
from functions_host.web.server import HostServer, open_listener

SDK: Any = importlib.import_module("azure.durable_functions.models.DurableOrchestrationClient")
CALLS: list[tuple[str, str, tuple[Any, ...]]] = [
    ("get_async_request", "/instances/plain?showInput=True", ()),
    ("get_async_request", "/instances/a b%2Fc/é?x=1&y=ü", ()),
    ("get_async_request", "/empty", ()),
    ("delete_async_request", "/instances/x", ()),
    ("delete_async_request", "/empty", ()),
    ("post_async_request", "/orchestrators/f/1", ('{"a": "é"}',)),
    ("post_async_request", "/orchestrators/f", (None, "00-trace", "state")),
    ("post_async_request", "/instances/x/raiseEvent/go?taskHub=h", ({"text": "\ud83d"},)),
    ("post_async_request", "/problem", ("",)),
]


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Tell what came."""
    request = Request(scope, receive)
    path = scope["raw_path"].decode().partition("?")[0]
    told = {
        "method": scope["method"],
        "path": scope["path"],
        "raw_path": path,
        "query": scope["query_string"].decode(),
        "host": request.headers["host"],
        "type": request.headers.get("content-type") if scope["method"] == "POST" else None,
        "body": (await request.body()).decode(),
    }
    status = 503 if path == "/problem" else 202
    await Response(b"" if path == "/empty" else json.dumps(told), status)(scope, receive, send)


async def answers(origin: str) -> list[list[Any]]:
    """Make all calls with the SDK's functions."""
    return [await getattr(SDK, name)(f"{origin}{path}", *given) for name, path, given in CALLS]


@pytest.fixture
async def origin():
    """A server, whose calls are counted, with the session of the SDK's client."""
    keep_sessions_apart()
    listener = open_listener("127.0.0.1", 0)
    ready = asyncio.Event()
    server = HostServer(echo, ready.set)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    await ready.wait()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    await close_session()
    server.should_exit = True
    await serving


async def test_calls_are_those_over_the_network(origin: str):
    """Method, path, query, host, type and body reach the host alike, and statuses and bodies the client."""
    over_network = await answers(origin)
    own = OwnCalls(origin, echo)
    try:
        direct = await answers(origin)
    finally:
        own.close()
    for call, one, other in zip(CALLS, direct, over_network, strict=True):
        if call[2][:1] == (None,):  # aiohttp names a type of a body that is not there
            one[1]["type"] = other[1]["type"] = ""
        assert one == other, call
    assert [status for status, _ in direct] == [202] * 8 + [503]


async def test_own_calls_need_no_connection(origin: str):
    """Nobody listens at the host's address; after it is closed, calls go there again."""
    nowhere = "http://127.0.0.1:9"
    own = OwnCalls(nowhere, echo)
    try:
        assert (await SDK.get_async_request(f"{nowhere}/a"))[1]["host"] == "127.0.0.1:9"
        assert (await SDK.get_async_request(f"{origin}/a"))[1]["host"] == origin.removeprefix("http://")
    finally:
        own.close()
    with pytest.raises(OSError, match="connect"):
        await SDK.get_async_request(f"{nowhere}/a")


async def test_calls_come_from_any_loop(origin: str):
    """A function's thread has a loop of its own."""
    own = OwnCalls(origin, echo)
    try:
        status, told = await asyncio.to_thread(lambda: asyncio.run(SDK.get_async_request(f"{origin}/there")))
    finally:
        own.close()
    assert (status, told["path"]) == (202, "/there")
