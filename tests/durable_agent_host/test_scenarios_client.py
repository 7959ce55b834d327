"""The client in Python: over HTTP and in a function of the app, it does the same."""

import asyncio
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import requests

from durable_agent_host import (
    AgentClient,
    AgentClientError,
    HostUnreachableError,
    PendingCall,
    PendingTurnCall,
    Principal,
    TurnEvent,
    TurnResult,
)
from tests.kit import AgentHost, PracticeModel, running_host, start_host
from tests.processes import wait_until

APP = Path(__file__).parent / "apps" / "client"

Call = Callable[..., Awaitable[Any]]
"""Calls a method of a client for a principal, with its arguments; a stream's events come as a list."""


@pytest.fixture(scope="module")
def _site(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentHost]:
    folder = tmp_path_factory.mktemp("client")
    env = {"LEDGER": str(folder / "ledger.txt"), "DURABLE_AGENT_HOST_WAIT_SECONDS": "0.3"}
    with running_host(folder / "data", practice_model, app=APP, **env) as host:
        yield host


@pytest.fixture
def site(_site: AgentHost, model: PracticeModel) -> AgentHost:
    """A host whose ``run`` gives up waiting soon, with an app that identifies its callers."""
    return _site


def local_call(host: AgentHost, method: str, *, principal: str = "ada", **arguments: Any) -> Any:
    """Have a function of the app call the method."""
    response = requests.post(f"{host.url}/api/desk/{principal}/{method}", json=arguments)
    assert response.ok, response.text
    body = response.json()
    if error := body.get("error"):
        raise AgentClientError(error["message"], status=error["status"], problem=error["problem"])
    value = body["value"]
    if method == "pending":
        return [PendingTurnCall(*item[:3], PendingCall(**item[3])) for item in value]
    if isinstance(value, list):
        return [TurnEvent(**item) for item in value]
    return TurnResult(**value | {"pending_calls": tuple(PendingCall(**item) for item in value["pending_calls"])})


async def remote_call(host: AgentHost, method: str, *, principal: str = "ada", **arguments: Any) -> Any:
    """Call the method over HTTP."""
    async with AgentClient(host.url, headers={"x-who": principal}) as client:
        result = getattr(client, method)(**arguments)
        return [event async for event in result] if method in {"stream", "follow"} else await result


@pytest.fixture(params=["in_process", "http"])
def call(request: pytest.FixtureRequest, site: AgentHost) -> Call:
    """A client of each kind."""
    if request.param == "http":
        return lambda method, **arguments: remote_call(site, method, **arguments)
    return lambda method, **arguments: asyncio.to_thread(local_call, site, method, **arguments)


async def test_a_run_waits_for_its_answer_and_a_key_is_one_turn(call: Call, model: PracticeModel):
    """It waits longer than the route does; the same key gets the same answer, and the model is asked once."""
    model.plan({"text": '{"town": "Ghent"}', "delay_milliseconds": 150, "chunk_characters": 4})
    schema = {"type": "object", "properties": {"town": {"type": "string"}}, "required": ["town"]}
    arguments = {"agent": "Payer", "message": "where?", "idempotency_key": uuid4().hex, "response_format": schema}
    result = await call("run", **arguments)
    assert (result.status, result.value, result.pending_calls) == ("success", {"town": "Ghent"}, ())
    assert result.usage["output_token_count"] > 0
    assert await call("run", **arguments) == result
    assert len(model.requests()) == 1
    turn = await call("turn", agent="Payer", session_id=result.session_id, turn_id=result.turn_id)
    assert (turn.status, turn.response, turn.data["asked_by"]["principal"]) == ("completed", result.response, "ada")


async def test_a_stream_has_the_events_of_the_turn(call: Call, site: AgentHost, model: PracticeModel):
    """Text comes in fragments, the last event is the answer of ``run``, and a turn can be followed later.

    The log has the requests to the model, and none of those to the app's own routes.
    """
    model.plan({"text": "The train leaves at noon.", "chunk_characters": 5})
    events = await call("stream", agent="Payer", message="when?")
    names = [event.name for event in events if event.name != "message.delta"]
    assert names == ["turn.started", "message.started", "message.completed", "turn.completed"]
    assert (
        "".join(event.data["text"] for event in events if event.name == "message.delta") == events[-1].data["response"]
    )
    turn = {"session_id": events[0].session_id, "turn_id": events[0].turn_id}
    assert events[0].data == turn
    assert await call("follow", agent="Payer", **turn, after=events[1].id) == events[2:]
    assert await call("follow", agent="Payer", **turn, after=events[-1].id) == []
    assert ("HTTP Request: POST http://127.0.0.1" in site.text, "http://app/" in site.text) == (True, False)


async def test_a_turn_that_runs_is_cancelled(call: Call, model: PracticeModel):
    """Who started it without waiting cancels it, twice; another run of the session goes on."""
    model.plan({"text": "This takes very long. " * 40, "delay_milliseconds": 50}, {"text": "Well."})
    turn = await call("run", agent="Payer", message="talk", wait=False, session_id=f"büro 7 {uuid4().hex}")
    assert turn.status == "accepted"
    ids = {"session_id": turn.session_id, "turn_id": turn.turn_id}
    await asyncio.to_thread(wait_until, model.requests)
    assert (await call("cancel", agent="Payer", **ids)).status == "cancelling"
    events = await call("follow", agent="Payer", **ids)
    assert (events[-1].name, events[-1].session_id) == ("turn.cancelled", turn.session_id)
    assert (await call("cancel", agent="Payer", **ids)).status == "cancelled"
    assert (await call("run", agent="Payer", message="so?", session_id=turn.session_id)).response == "Well."


async def test_pending_calls_are_answered(call: Call, site: AgentHost, model: PracticeModel):
    """A turn that waits is a result, with its calls; the answers let it go on, and may be given again."""
    amounts = [float(uuid4().int % 10**6) for _ in range(2)]
    calls = [{"name": "pay", "arguments": {"amount": amount}} for amount in amounts]
    model.plan({"calls": calls}, {"text": "Paid once."})
    arguments = {"agent": "Payer", "message": "pay", "idempotency_key": uuid4().hex}
    result = await call("run", **arguments)
    assert (result.status, result.response) == ("waiting", None)
    ids = {"agent": "Payer", "session_id": result.session_id, "turn_id": result.turn_id}
    assert await call("pending") == [PendingTurnCall(*ids.values(), pending) for pending in result.pending_calls]
    assert await call("pending", principal="bob") == []
    first, second = result.pending_calls
    assert (first.kind, first.name, first.arguments) == ("approval", "pay", {"amount": amounts[0]})
    approval = {"call_id": first.call_id, "approved": True}
    denial = {"call_id": second.call_id, "approved": False, "reason": "too much"}
    assert (await call("answer", **ids, answer=approval)).pending_calls == (second,)
    answers = (await call("answer", **ids, answer=[denial, approval])).data["answers"]
    assert {answer["call_id"]: answer["approved"] for answer in answers} == {
        first.call_id: True,
        second.call_id: False,
    }
    with pytest.raises(AgentClientError, match="different answer") as refusal:
        await call("answer", **ids, answer=approval | {"approved": False})
    assert refusal.value.status == 409
    assert (await call("run", **arguments)).response == "Paid once."
    ledger = site.data.parent / "ledger.txt"
    assert [line for line in ledger.read_text().splitlines() if line in {f"paid {a}" for a in amounts}] == [
        f"paid {amounts[0]}"
    ]


async def test_a_refusal_has_status_and_reason(call: Call, model: PracticeModel):
    """A turn that fails names itself; what does not exist, or is somebody else's, is a 404; a wrong field is a 400."""
    model.plan({"error": {"status": 400, "message": "no such model"}})
    with pytest.raises(AgentClientError, match="no such model") as failure:
        await call("run", agent="Payer", message="hi", session_id=f"s-{uuid4().hex}")
    turn_id = failure.value.problem["turn_id"]
    assert failure.value.turn_url.endswith(f"/turns/{turn_id}")
    ids = {"session_id": failure.value.problem["session_id"], "turn_id": turn_id}
    assert (await call("turn", agent="Payer", **ids)).status == "failed"
    for method, principal, arguments, status in (
        ("turn", "bob", {"agent": "Payer", **ids}, 404),
        ("run", "ada", {"agent": "Payer", "message": "hi", "massage": "hi"}, 400),
        ("run", "ada", {"agent": "Payer", "message": "half \ud83d"}, 400),
        ("session", "ada", {"agent": "Payer", "session_id": "half \ud83d"}, 404),
        ("run", "ada", {"agent": "Nobody", "message": "hi"}, 404),
        ("cancel", "ada", {"agent": "Payer", **ids}, 409),
    ):
        with pytest.raises(AgentClientError) as failure:
            await call(method, principal=principal, **arguments)
        assert failure.value.status == status


def test_the_app_itself_may_act_in_every_session(site: AgentHost, model: PracticeModel):
    """Its turns are nobody's, agents without routes are reachable, and its own sessions exist for no caller."""
    model.plan({"text": "Hello."}, times=3)
    first = local_call(site, "run", agent="Payer", message="hi")
    again = local_call(site, "run", principal="the-app", agent="Payer", message="hi", session_id=first.session_id)
    assert again.data["message_count"] == 4
    hidden = local_call(site, "run", principal="the-app", agent="Hidden", message="hi")
    ids = {"agent": "Hidden", "session_id": hidden.session_id, "turn_id": hidden.turn_id}
    assert "asked_by" not in local_call(site, "turn", principal="the-app", **ids).data
    with pytest.raises(AgentClientError, match="has no turn"):
        local_call(site, "turn", **ids)


def test_a_client_in_the_app_names_who_acts():
    """None, as a look-up gives it that found nobody, is not the app."""
    from durable_agent_host import DurableAgentApp

    for principal in (None, "ada"):
        with pytest.raises(TypeError, match="THE_APP"):
            DurableAgentApp().client(None, principal=principal)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError):
        DurableAgentApp().client(None)  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert DurableAgentApp().client(None, principal=Principal("ada"))  # pyright: ignore[reportArgumentType]


async def test_a_host_that_never_answered_is_reported_at_once():
    """A wrong URL is not waited for."""
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    async with AgentClient(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(HostUnreachableError, match="no host answers"):
            await client.run("Payer", "hi")


@pytest.mark.parametrize(
    ("content_type", "body"),
    [("text/html", "<h1>Sign in</h1>"), ("application/json", "[]"), ("application/json", "{}")],
)
async def test_the_answer_of_something_else_is_an_error_with_the_key(content_type, body):
    """Such as a page to log in, with status 200; the same call with the error's key is the same turn."""
    keys: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        keys.append(head.partition("idempotency-key: ")[2].split()[0])
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\nconnection: close\r\n\r\n{body}".encode())
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        async with AgentClient(f"http://127.0.0.1:{port}") as client:
            with pytest.raises(AgentClientError, match="no answer of a host of agents") as ran:
                await client.run("Helper", "Hi")
            with pytest.raises(AgentClientError, match="no answer of a host of agents") as streamed:
                await anext(client.stream("Helper", "Hi"))
    assert [ran.value.idempotency_key, streamed.value.idempotency_key] == keys


async def test_a_stream_and_a_run_outlive_a_kill_of_the_host(model: PracticeModel, tmp_path: Path):
    """The host dies in mid-answer and comes back: each event comes once, and both get the whole answer."""
    slow = {"text": "The train leaves at noon. " * 4, "until_file": str(tmp_path / "never"), "chunk_characters": 9}
    model.plan(slow, slow, {"text": "It is back."}, {"text": "It is back."})
    host = start_host(tmp_path / "data", model, app=APP)
    port = int(host.url.rpartition(":")[2])
    events: list[TurnEvent] = []
    is_killed = False
    try:
        clients = [AgentClient(host.url, headers={"x-who": "ada"}) for _ in range(2)]
        async with clients[0] as client, clients[1] as other:
            run = asyncio.create_task(other.run("Payer", "and?"))
            async for event in client.stream("Payer", "when?"):
                events.append(event)
                if event.name == "message.delta" and not is_killed:
                    is_killed = True
                    await asyncio.to_thread(wait_until, lambda: len(model.requests()) == 2)
                    host.kill()
                    host = await asyncio.to_thread(start_host, tmp_path / "data", model, app=APP, port=port)
            result = await run
    finally:
        host.stop()
    assert [event.id for event in events] == sorted({event.id for event in events})
    restart = next(event for event in events if event.name == "turn.restarted")
    discarded = range(restart.data["discard_from"], restart.id)
    texts = [event.data["text"] for event in events if event.name == "message.delta" and event.id not in discarded]
    assert "".join(texts) == "It is back."
    assert events[-1].data["response"] == result.response == "It is back."
