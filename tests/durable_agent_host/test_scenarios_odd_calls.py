"""Calls that a service would not take back: it accepts the running turn, and the session goes on after a cancel."""

import json
import re
import threading
from collections.abc import Callable, Iterator

import pytest
import requests

from tests.durable_agent_host.bounded_lab import bounded_host, bounded_model
from tests.durable_agent_host.hostile_model import HostileModel, stream
from tests.durable_agent_host.hostile_streams import tool_call_stream
from tests.durable_agent_host.service_rules import find_violation
from tests.durable_agent_host.test_scenarios_hostile_model import COMPLETE_STREAMS
from tests.kit import AgentHost, wait_until

CLIENTS = ("Responses", "Completions", "Claude", "Gemini")
ARGUMENTS = '{"words": 2}'
NAMES = {"none": "", "spaces": "no such tool", "long": "x" * 300, "control": "a\0b", "letters": "查询", "number": "7"}


@pytest.fixture(scope="module")
def _model() -> Iterator[HostileModel]:
    with bounded_model() as running:
        yield running


@pytest.fixture(scope="module")
def host(_model: HostileModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    """A host with an agent of every kind of client."""
    folder = tmp_path_factory.mktemp("odd-calls")
    with bounded_host(folder / "data", _model, folder / "effects.txt") as running:
        yield running


@pytest.fixture
def model(_model: HostileModel) -> HostileModel:
    """The endpoint, with nothing scripted and nothing received."""
    _model.play()
    return _model


def named(client: str, name: str) -> bytes:
    """Write an answer that calls a tool by a name."""
    return stream(tool_call_stream(client, [("call_1", ARGUMENTS)]).replace(b'"say"', json.dumps(name).encode()))


def unannounced(client: str) -> bytes:
    """Write an answer with arguments of a call whose beginning never came."""
    asked = tool_call_stream(client, [("call_1", ARGUMENTS)])
    if client == "Claude":
        return stream(b"".join(one + b"\n\n" for one in asked.split(b"\n\n") if b"content_block_start" not in one))
    return stream(asked.replace(b'"name": "say", ', b""))


ODD: list[tuple[str, str, bytes]] = [
    *((client, case, named(client, name)) for client in CLIENTS for case, name in NAMES.items()),
    *((client, "unannounced", unannounced(client)) for client in ("Completions", "Claude")),
    *(
        ("Claude", f"input-{place}", stream(tool_call_stream("Claude", [("call_1", text)])))
        for place, text in enumerate(["[1]", '"text"', "null", "7"])
    ),
]
"""Client, case, and an answer with a call that its service would not take back."""
odd = pytest.mark.parametrize(("client", "case", "asked"), ODD, ids=[f"{client}-{case}" for client, case, _ in ODD])


def goes_on(host: AgentHost, model: HostileModel, client: str, session: str) -> str:
    """Run a turn that succeeds, with a request that the service accepts; gives what was sent."""
    model.play(COMPLETE_STREAMS[client])
    reply = host.run(client, {"message": "And now?", "session_id": session})
    assert (reply.status_code, reply.json().get("response")) == (200, "Hello."), reply.text
    return sent(client, model)


def sent(client: str, model: HostileModel) -> str:
    """Give the last request, which the service accepts and which has the call with its result."""
    body = json.loads(model.received[-1].body)
    assert find_violation(client, body) is None
    text = json.dumps(body)
    assert any(kind in text for kind in ('"function_call"', '"tool_calls"', '"tool_use"', '"functionCall"'))
    assert "is not known" not in text
    return text


@odd
def test_an_odd_call_is_sent_in_a_form_that_the_service_accepts(
    host: AgentHost, model: HostileModel, client: str, case: str, asked: bytes
):
    """In the running turn, with its result, and as the same text in the next one; the record has it as it came."""
    model.play(asked, COMPLETE_STREAMS[client])
    session = f"odd-{case}"
    reply = host.run(client, {"message": "Good morning", "session_id": session})
    assert reply.status_code == 200, reply.text
    first = sent(client, model)
    later = goes_on(host, model, client, session)
    assert names_in(later) >= names_in(first)
    stored = requests.get(f"{host.url}/api/agents/{client}/sessions/{session}/export", timeout=60).json()
    if case in NAMES:
        assert json.dumps(NAMES[case]) in names_in(json.dumps(stored))


def names_in(text: str) -> set[str]:
    """List the names in JSON."""
    return set(re.findall('"name": ("[^"]*")', text))


@pytest.mark.parametrize(
    ("client", "case", "asked"),
    [row for row in ODD if row[1] in {next(iter(NAMES)), "unannounced", "input-0"}],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_cancel_after_an_odd_call_is_no_dead_end(
    host: AgentHost, model: HostileModel, client: str, case: str, asked: bytes
):
    """What the turn had done stays, and each later turn is accepted."""
    released = threading.Event()
    model.play(asked, waiting(released))
    ids = {"session_id": f"cancelled-{case}", "wait_for_response": False}
    started = host.run(client, {"message": "Good morning", **ids})
    url = f"{host.url}/api/agents/{client}/sessions/{ids['session_id']}/turns/{started.headers['x-ms-turn-id']}"
    try:
        wait_until(lambda: len(model.received) == 2)
        assert requests.post(f"{url}/cancel", timeout=30).status_code == 202
        assert host.end_of_turn(url)["status"] == "cancelled"
    finally:
        released.set()
    for _ in range(2):
        goes_on(host, model, client, ids["session_id"])


def waiting(released: threading.Event) -> Callable[[Callable[[bytes], None]], None]:
    """Answer nothing until an event is set."""
    return lambda _write: released.wait(60) and None
