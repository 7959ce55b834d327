"""An app that is notified of turns that wait or have ended: a function of it, or a URL with signed requests."""

import asyncio
import base64
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import requests
from standardwebhooks import Webhook

from durable_agent_host.errors import NotificationError, RegistrationError, SettingError
from durable_agent_host.features.notifications.notification import Notification
from durable_agent_host.features.notifications.webhooks import TIMEOUT_SECONDS, make_notify
from durable_agent_host.settings import Settings
from functions_host.testing import AppUnderTest, durable_app
from tests.durable_agent_host.test_scenarios_approvals import (
    allow,
    approve,
    plan_payments,
    read_ended_turn,
    waiting_turn,
)
from tests.durable_agent_host.test_scenarios_cancel import cancel
from tests.durable_agent_host.test_scenarios_encryption import KEYS, key
from tests.kit import SHORT_LEASE, AgentHost, Lives, PracticeModel, model_environment, start_host
from tests.processes import wait_until

__all__ = ["durable_app"]

APP = Path(__file__).parent / "apps" / "notifications"
OLD_SECRET, SECRET = (f"whsec_{base64.b64encode(bytes([number]) * 32).decode()}" for number in (1, 2))
SIGNED = {"DURABLE_AGENT_HOST_NOTIFY_SECRET": f"{OLD_SECRET},{SECRET}"}
FAILED = {"instanceIdPrefix": "notification-", "runtimeStatus": "Failed"}


class Receiver:
    """Receives signed requests, and answers with the given statuses, then with 204."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        self.received: list[tuple[dict[str, str], dict[str, Any]]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                headers = {name.lower(): value for name, value in self.headers.items()}
                Webhook(SECRET).verify(body, headers)
                receiver.received.append((headers, json.loads(body)))
                self.send_response(receiver.statuses.pop(0) if receiver.statuses else 204)
                self.send_header("location", receiver.url)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://localhost:{self.server.server_port}/hook"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def types(self) -> list[str]:
        """The events that it has received, in order."""
        return [body["type"] for _, body in self.received]

    @property
    def ids(self) -> list[str]:
        """Their ids."""
        return [headers["webhook-id"] for headers, _ in self.received]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """A receiver."""
    running = Receiver()
    yield running
    running.server.shutdown()
    running.server.server_close()


def read_notifications(ledger: Path) -> list[dict[str, Any]]:
    """Read what the app's function has written."""
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def await_notifications(ledger: Path, count: int) -> list[dict[str, Any]]:
    """Wait for a number of notifications."""
    return wait_until(lambda: found if len(found := read_notifications(ledger)) >= count else None)


def test_a_function_is_notified_of_waits_and_ends(lives: Callable[..., Lives], model: PracticeModel, tmp_path: Path):
    """Each event comes once, with a key of its own and where to read the turn, whose state it shows by then."""
    host = lives(APP).host
    ledger = tmp_path / "ledger.txt"
    model.plan(plan_payments(12.5), {"text": "Paid."})
    turn = waiting_turn(host)
    (waiting,) = await_notifications(ledger, 1)
    (call,) = waiting["pending_calls"]
    assert (waiting["type"], waiting["status"]) == ("turn.waiting", "waiting")
    assert (call["call_id"], call["arguments"]) == (turn["pending_calls"][0]["call_id"], {"amount": 12.5})
    assert (waiting["agent"], waiting["session_id"], waiting["turn_id"]) == (
        "Payer",
        turn["session_id"],
        turn["turn_id"],
    )
    assert host.get(waiting["turn_path"]).json()["pending_calls"] == turn["pending_calls"]
    assert approve(turn, allow(call)).ok
    completed = await_notifications(ledger, 2)[1]
    assert (completed["type"], completed["pending_calls"]) == ("turn.completed", [])
    assert host.get(completed["turn_path"]).json()["response"] == "Paid."

    model.plan({"error": {"status": 400, "message": "no such temperature"}})
    assert host.run("Payer", {"message": "pay"}).status_code >= 400
    await_notifications(ledger, 3)  # the order of two turns' notifications is not promised
    model.plan(plan_payments(1))
    assert cancel(waiting_turn(host)).status_code == 202
    types = [notification["type"] for notification in await_notifications(ledger, 5)]
    assert types[:3] == ["turn.waiting", "turn.completed", "turn.failed"]
    assert sorted(types[3:]) == ["turn.cancelled", "turn.waiting"]
    assert len({notification["key"] for notification in read_notifications(ledger)}) == 5


def test_a_function_is_notified_of_a_workflow_that_waits(
    lives: Callable[..., Lives], model: PracticeModel, tmp_path: Path
):
    """Once each time that the run begins to wait, over a kill, with all questions and where to answer them."""
    life = lives(APP)
    ledger = tmp_path / "ledger.txt"
    workflows = ("asking", "outer")
    for workflow in workflows:
        assert requests.post(f"{life.host.url}/api/workflow/{workflow}/run?runId={workflow}-run", data="One?\nTwo?").ok
    first_notifications = {sent["workflow"]: sent for sent in await_notifications(ledger, 2)}
    host = life.crash()
    for workflow in workflows:
        waiting = first_notifications[workflow]
        names = ("type", "status", "run_id", "agent", "turn_path", "answer_path")
        answer_path = f"/workflow/{workflow}/respond/{workflow}-run"
        expected_values = ["workflow.waiting", "waiting", f"{workflow}-run", "", "", answer_path]
        assert [waiting[name] for name in names] == expected_values
        calls = {call["arguments"]["question"]: call["call_id"] for call in waiting["pending_calls"]}
        assert calls.keys() == {"One?", "Two?"}
        for question, result in (("Two?", "Perhaps."), ("One?", "Yes.")):
            body = json.dumps({"call_id": calls[question], "result": result}).encode()
            assert host.post(waiting["answer_path"], body).status_code == 200

    def next_notifications() -> list[dict[str, Any]]:
        first_keys = {sent["key"] for sent in first_notifications.values()}
        return [sent for sent in read_notifications(ledger) if sent["key"] not in first_keys]

    wait_until(lambda: {sent["workflow"] for sent in next_notifications()} == {*workflows})
    for sent in next_notifications():
        assert [call["arguments"]["question"] for call in sent["pending_calls"]] == ["Sure?"]


def test_a_function_that_died_with_the_process_is_called_again_with_the_same_key(
    lives: Callable[..., Lives], model: PracticeModel, tmp_path: Path
):
    """A kill in the function repeats this one notification, with its key."""
    life = lives(APP, **SHORT_LEASE)
    (tmp_path / "die").touch()
    model.plan({"text": "Hi."})
    with suppress(requests.RequestException):  # it may die before its answer has left
        life.host.run("Payer", {"message": "hi"})
    life.host.process.wait(30)
    host = life.crash()
    first, second = await_notifications(tmp_path / "ledger.txt", 2)
    assert first == second
    model.plan({"text": "Hi."})
    host.run("Payer", {"message": "hi"})
    assert await_notifications(tmp_path / "ledger.txt", 3)[2]["key"] != first["key"]


@pytest.mark.drawn(1)
@pytest.mark.parametrize(("before", "after", "count"), [({"SILENT": "1"}, {}, 0), ({}, {"SILENT": "1"}, 1)])
def test_a_turn_keeps_what_it_began_with(
    model: PracticeModel, tmp_path: Path, before: dict[str, str], after: dict[str, str], count: int
):
    """A turn that waits while the app begins or stops to be notified ends as any other."""
    ledger = tmp_path / "ledger.txt"
    start = partial(start_host, tmp_path / "data", model, app=APP, LEDGER=str(ledger))
    model.plan(plan_payments(1), {"text": "Paid."})
    with start(**before) as host:
        turn = waiting_turn(host)
        wait_until(lambda: len(read_notifications(ledger)) == count)
    with start(port=int(host.url.rpartition(":")[2]), **after):
        assert approve(turn, allow(turn["pending_calls"][0])).ok
        assert wait_until(lambda: read_ended_turn(turn))["response"] == "Paid."
        assert len(read_notifications(ledger)) == count


@pytest.mark.drawn(1)
@pytest.mark.parametrize("keys", [{}, {KEYS: key(1)}], ids=["plain", "encrypted"])
def test_a_receiver_that_fails_gets_the_same_event_again_later(
    durable_app: Callable[..., AppUnderTest], receiver: Receiver, model: PracticeModel, keys: dict[str, str]
):
    """The turn's answer does not wait for it; the pause is a durable timer; a redirect is a failure."""
    app = durable_app(APP, settings=model_environment(model, HOOK=receiver.url, **SIGNED, **keys))
    receiver.statuses = [503, 302]
    model.plan(plan_payments(1))
    answer = app.http("POST", "/api/agents/Payer/run", {"message": "pay", "session_id": "s"})
    assert answer.status == 202
    wait_until(lambda: len(receiver.received) == 3 or app.advance(timedelta(seconds=2)))
    app.advance(timedelta(days=2))
    assert receiver.types == ["turn.waiting"] * 3
    assert len(set(receiver.ids)) == 1
    _, body = receiver.received[0]
    assert all(other == body for _, other in receiver.received)
    assert set(body) == {"type", "timestamp", "data"}
    turn_id = answer.json()["turn_id"]
    assert body["data"] == {
        "agent": "Payer",
        "session_id": "s",
        "turn_id": turn_id,
        "status": "waiting",
        "turn_path": f"/agents/Payer/sessions/s/turns/{turn_id}",
        "pending_calls": answer.json()["pending_calls"],
        "answer_path": f"/agents/Payer/sessions/s/turns/{turn_id}/answers",
    }


def dead_letters(host: AgentHost) -> list[dict[str, Any]]:
    """List notifications that were not delivered."""
    return requests.get(f"{host.management}/instances", params=FAILED).json()


def test_what_was_not_delivered_is_listed_and_can_be_sent_again(
    lives: Callable[..., Lives], receiver: Receiver, model: PracticeModel
):
    """A receiver that answers 410 is asked no more; the log and the failed orchestration say why. No one else sends."""
    host = lives(APP, HOOK=receiver.url, **SIGNED).host
    receiver.statuses = [410]
    model.plan({"text": "Hi."})
    answer = host.run("Payer", {"message": "hi"})
    (letter,) = wait_until(lambda: dead_letters(host))
    turn_id = answer.headers["x-ms-turn-id"]
    reason = f"turn {turn_id} (agent Payer, session {answer.headers['x-ms-session-id']!r}): the notification"
    assert reason in letter["output"]
    assert "localhost answered 410" in letter["output"]
    assert json.loads(letter["input"])["turn_id"] == turn_id
    (line,) = [line for line in host.output if "localhost answered 410" in line and "ERROR" in line.upper()]
    assert reason in line
    restart = f"{host.management}/instances/{letter['instanceId']}/restart"
    assert requests.post(restart, params={"restartWithNewInstanceId": "false"}).ok
    wait_until(lambda: len(receiver.received) == 2)
    assert receiver.ids == [letter["instanceId"]] * 2
    wait_until(lambda: not dead_letters(host))
    forged = f"{host.management}/orchestrators/notify_turn/notification-forged"
    assert requests.post(forged, json=json.loads(letter["input"])).ok
    (letter,) = wait_until(lambda: dead_letters(host))
    assert "was not started by the app, so nothing was done" in letter["output"]
    assert len(receiver.received) == 2


def notification() -> Notification:
    """Build a notification."""
    return Notification("notification-1", "turn.completed", "2026-01-01", "A", "s", "t", "completed", "/agents/A")


def test_a_receiver_that_never_answers_delays_no_turn(durable_app: Callable[..., AppUnderTest], model: PracticeModel):
    """More deliveries than the host runs activities at once hold none of them."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as listener:
        hook = f"http://127.0.0.1:{listener.getsockname()[1]}/hook"
        app = durable_app(APP, settings=model_environment(model, HOOK=hook, **SIGNED))
        start = time.monotonic()
        for _ in range(10):
            model.plan({"text": "Hi."})
            assert app.http("POST", "/api/agents/Payer/run", {"message": "hi"}).status == 200
        assert time.monotonic() - start < TIMEOUT_SECONDS


def test_a_receiver_that_does_not_answer_is_asked_again(receiver: Receiver):
    """A connection that is refused is a failure to be repeated."""
    receiver.server.server_close()
    notify: Any = make_notify(f"{receiver.url}?token=secret", Settings(notify_secret=SECRET))
    with pytest.raises(NotificationError, match=r"^localhost did not answer: [A-Za-z]+$") as info:
        asyncio.run(notify(notification()))
    assert info.value.retryable


@pytest.mark.parametrize(
    ("notify", "secret", "error"),
    [
        ("https://example.com/hook", "", "DURABLE_AGENT_HOST_NOTIFY_SECRET is not the secret"),
        ("https://example.com/hook", "whsec_a", "DURABLE_AGENT_HOST_NOTIFY_SECRET is not the secret"),
        ("example.com/hook", SECRET, "not a URL"),
        ("ftp://example.com/hook", SECRET, "not a URL"),
        ("https://user:password@example.com/hook", SECRET, "not a URL"),
        (lambda: None, "", "cannot be called as notify\\(notification\\)"),
    ],
)
def test_what_cannot_work_is_refused_at_start(notify: Any, secret: str, error: str):
    """The reason says what to correct, without the secret."""
    with pytest.raises((SettingError, RegistrationError), match=error):
        make_notify(notify, Settings(notify_secret=secret))
