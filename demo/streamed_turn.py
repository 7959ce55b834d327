"""The demo's streamed turn: the host is killed in the middle of an answer, and the client resumes."""

import json
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.error import URLError
from uuid import uuid4

from demo.processes import get_json, post_json

AGENT = "Arithmetic"
MESSAGE = "Multiply 6 by 7, and explain the result at length"
ANSWER = "Six times seven is forty-two: " + ", ".join(f"{n} times six is {6 * n}" for n in range(1, 8)) + "."
PLAN = {
    "when": {"user_text": MESSAGE},
    "steps": [
        {"calls": [{"name": "calculator", "arguments": {"a": 6, "b": 7, "op": "multiply"}}]},
        *({"text": ANSWER, "chunk_characters": 6, "delay_milliseconds": 25} for _ in range(2)),
    ],
}
"""The tool call, and the answer twice: the kill interrupts the first, the second replaces it."""


@dataclass
class StreamedTurn:
    """What a client keeps of a turn that it follows.

    Attributes:
        texts: pieces of the answer, by event id.
        last_event_id: id of the last event received.
        names: names of all events, in order of arrival.
        answer: data of the final event; None before it.
    """

    texts: dict[int, str] = field(default_factory=dict[int, str])
    last_event_id: int | None = None
    names: list[str] = field(default_factory=list[str])
    answer: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self.texts[number] for number in sorted(self.texts))

    def take(self, number: int, name: str, data: dict[str, Any]) -> None:
        """Apply an event as every client must: keep the pieces, discard what is repeated."""
        self.last_event_id = number
        self.names.append(name)
        if name == "message.delta":
            self.texts[number] = data["text"]
        elif name == "turn.restarted":
            self.texts = {place: text for place, text in self.texts.items() if place < data["discard_from"]}
        elif name in {"turn.completed", "turn.failed"}:
            self.answer = data


def _events(url: str, headers: dict[str, str], body: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    request = urllib.request.Request(url, body.encode(), {"accept": "text/event-stream"} | headers)  # noqa: S310 - a loopback URL of this program
    with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
        fields: dict[str, str] = {}
        for line in answer:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                fields = {}


def show_stream(control: str, url: str, kill_and_restart: Callable[[], str], *, model_calls: int) -> list[str]:
    """Stream one turn, kill the host in the middle of its answer, and resume on the new host.

    Args:
        control: URL of the practice model's control routes.
        url: the host's URL.
        kill_and_restart: returns the URL of the new host.
        model_calls: how many the turn needs.

    Returns:
        What was lost or done twice, one sentence each.
    """
    print(f"── {AGENT}, streamed " + "─" * (60 - len(AGENT)))
    post_json(f"{control}/plans", PLAN)
    before = len(get_json(f"{control}/requests"))
    print(f"  you    {MESSAGE}")
    turn, session_id = StreamedTurn(), uuid4().hex
    path = f"/api/agents/{AGENT}/run?session_id={session_id}"
    headers = {"content-type": "text/plain", "idempotency-key": uuid4().hex}
    restarted = False
    while turn.answer is None:
        resumed = {} if turn.last_event_id is None else {"last-event-id": str(turn.last_event_id)}
        try:
            for event in _events(url + path, headers | resumed, MESSAGE):
                turn.take(*event)
                if not restarted and len(turn.text) > len(ANSWER) // 2:
                    break
        except (URLError, ConnectionError, ValueError):
            if restarted:
                raise
        if not restarted:
            print(f"  agent  {turn.text} …\n         (SIGKILL in the middle of the answer; the client resumes)")
            url, restarted = kill_and_restart(), True
    print(f"  agent  {turn.text}\n")
    print("  events " + ", ".join(f"{turn.names.count(name)} {name}" for name in dict.fromkeys(turn.names)) + "\n")
    session = get_json(f"{url}/api/agents/{AGENT}/sessions/{session_id}")
    asked = [request for request in get_json(f"{control}/requests")[before:] if request["output"] is not None]
    return _check(turn, session, len(asked), model_calls)


def _check(turn: StreamedTurn, session: dict[str, Any], asked: int, needed: int) -> list[str]:
    losses: list[str] = []
    answer = turn.answer or {}
    if not turn.text == answer.get("response") == ANSWER:
        losses.append(f"the client has {turn.text!r}, and the answer is {answer}")
    if len(session["messages"]) != 4:  # noqa: PLR2004 - question, call, result, answer
        losses.append(f"the streamed turn is stored in {len(session['messages'])} messages, not 4")
    if turn.names.count("tool.started") != 1 or turn.names.count("tool.completed") != 1:
        losses.append("the tool was run more than once")
    if asked != needed:  # the call, the answer that was killed, the answer
        losses.append(f"{asked} model calls were made, and {needed} are needed")
    return losses
