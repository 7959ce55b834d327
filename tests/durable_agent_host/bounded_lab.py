"""A host whose bounds of what models may send are small."""

import contextlib
import gzip
import json
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import requests

from tests.durable_agent_host.hostile_model import HostileModel, Send, hostile_model, parts_stream, stream
from tests.durable_agent_host.hostile_streams import (
    AGENTS_ROUTES,
    beginning,
    for_ever,
    silence,
    text_event,
    tool_call_stream,
)
from tests.kit import AgentHost, running_host

BOUNDS = {
    "ANSWER_BYTES": 300_000,
    "LINE_BYTES": 100_000,
    "TURN_BYTES": 500_000,
    "MODEL_CALLS": 5,
    "CALLS_AT_ONCE": 10,
    "ARGUMENT_BYTES": 20_000,
    "TOOL_RESULT_BYTES": 20_000,
    "STREAM_READERS": 2,
}
ANSWER_SECONDS = 120
CLIENTS = ("Responses", "Completions", "Claude", "Gemini", "Agents")
"""Agents of the app, each with another client."""


@contextlib.contextmanager
def bounded_model() -> Iterator[HostileModel]:
    """Run an endpoint for the app ``bounded``: it also answers the routes of Azure AI Agents."""
    with hostile_model() as running:
        running.by_path |= AGENTS_ROUTES
        yield running


@contextlib.contextmanager
def bounded_host(folder: Path, model: HostileModel, effects: Path, **more: str) -> Iterator[AgentHost]:
    """Run the app ``bounded``.

    Args:
        folder: for its data.
        model: whom all of its agents ask.
        effects: the file to which their tool writes.
        more: settings.
    """
    settings = {f"DURABLE_AGENT_HOST_MAX_{name}": str(value) for name, value in BOUNDS.items()}
    settings |= {
        "DURABLE_AGENT_HOST_ANSWER_SECONDS": str(ANSWER_SECONDS),
        "MODEL_URL": model.url,
        "EFFECTS": str(effects),
    }
    with running_host(folder, None, app=Path(__file__).parent / "apps" / "bounded", **{**settings, **more}) as running:
        yield running


def check_conversation(host: AgentHost, response: requests.Response, agent: str, *, reason: str = "") -> None:
    """Compare the conversation after a failed turn: empty, or, if tools have run, from the request to the reason."""
    messages = host.session(agent, response.headers["x-ms-session-id"])["messages"]
    if not reason:
        assert messages == []
        return
    assert reason in messages[-1]["contents"][0]["text"]
    assert messages[0]["role"] == "user"


def endless(client: str, part: bytes) -> Send:
    """Write an endless stream that repeats the same part."""
    return parts_stream(chain([beginning(client)], for_ever(part)))


CALL = ("call_1", '{"words": 1}')
LONG_ARGUMENTS = json.dumps({"words": 1, "more": "x" * 30_000})
BOMB = gzip.compress(b"\n\n" * 10_000_000)
MISBEHAVIOURS: dict[str, tuple[Callable[[str], bytes | Send], str]] = {
    "words": (lambda client: endless(client, text_event(client, "more " * 100) * 20), "MAX_ANSWER_BYTES"),
    "silence": (lambda client: endless(client, silence(client) * 500), "MAX_ANSWER_BYTES"),
    "a line": (
        lambda client: parts_stream(chain([beginning(client), b"data: "], for_ever(b"y" * 60_000, 0.5))),
        "MAX_LINE_BYTES",
    ),
    "a bomb": (lambda _: stream(BOMB, content_encoding="gzip"), "MAX_ANSWER_BYTES"),
    "calls at once": (
        lambda client: stream(tool_call_stream(client, [(f"call_{number}", CALL[1]) for number in range(100)])),
        "MAX_CALLS_AT_ONCE",
    ),
    "arguments": (lambda client: stream(tool_call_stream(client, [("call_1", LONG_ARGUMENTS)])), "MAX_ARGUMENT_BYTES"),
    "a loop": (lambda client: stream(tool_call_stream(client, [CALL])), "MAX_MODEL_CALLS"),
}
"""Misbehaviour → the response of a client's model, and the limit that the problem names."""
