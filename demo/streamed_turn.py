"""The demo's streamed turn: the host is killed in the middle of a response, and the client resumes."""

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
RESPONSE_TEXT = "Six times seven is forty-two: " + ", ".join(f"{n} times six is {6 * n}" for n in range(1, 8)) + "."
PLAN = {
    "when": {"user_text": MESSAGE},
    "steps": [
        {"calls": [{"name": "calculator", "arguments": {"a": 6, "b": 7, "op": "multiply"}}]},
        *({"text": RESPONSE_TEXT, "chunk_characters": 6, "delay_milliseconds": 25} for _ in range(2)),
    ],
}
"""The tool call, and the response twice: the kill interrupts the first, the second replaces it."""


@dataclass
class StreamedTurn:
    """A client's state of a turn that it follows.

    Attributes:
        texts: text deltas of the response, by event id.
        last_event_id: id of the last event received.
        names: names of all events, in order of arrival.
        final_event: data of the final event; None before it.
    """

    texts: dict[int, str] = field(default_factory=dict[int, str])
    last_event_id: int | None = None
    names: list[str] = field(default_factory=list[str])
    final_event: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        """The response so far."""
        return "".join(self.texts[event_id] for event_id in sorted(self.texts))

    def apply_event(self, event_id: int, name: str, data: dict[str, Any]) -> None:
        """Apply an event as every client must: collect the deltas, discard those that are repeated."""
        self.last_event_id = event_id
        self.names.append(name)
        if name == "message.delta":
            self.texts[event_id] = data["text"]
        elif name == "turn.restarted":
            self.texts = {
                text_event_id: text
                for text_event_id, text in self.texts.items()
                if text_event_id < data["discard_from"]
            }
        elif name in {"turn.completed", "turn.failed"}:
            self.final_event = data


def _read_events(url: str, headers: dict[str, str], body: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    request = urllib.request.Request(url, body.encode(), {"accept": "text/event-stream"} | headers)  # noqa: S310 - a loopback URL of this program
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310
        fields: dict[str, str] = {}
        for line in response:
            name, _, value = line.decode().rstrip("\n").partition(": ")
            if name:
                fields[name] = value
            elif "data" in fields:
                yield int(fields["id"]), fields["event"], json.loads(fields["data"])
                fields = {}


def show_stream(control: str, url: str, kill_and_restart: Callable[[], str], *, model_calls: int) -> list[str]:
    """Stream one turn, kill the host in the middle of its response, and resume on the new host.

    Args:
        control: URL of the practice model's control routes.
        url: the host's URL.
        kill_and_restart: returns the URL of the new host.
        model_calls: number of model calls that the turn needs.

    Returns:
        What was lost or done twice, one sentence each.
    """
    print(f"── {AGENT}, streamed " + "─" * (60 - len(AGENT)))
    post_json(f"{control}/plans", PLAN)
    request_count = len(get_json(f"{control}/requests"))
    print(f"  you    {MESSAGE}")
    turn = StreamedTurn()
    session_id = uuid4().hex
    path = f"/api/agents/{AGENT}/run?session_id={session_id}"
    headers = {"content-type": "text/plain", "idempotency-key": uuid4().hex}
    is_restarted = False
    while turn.final_event is None:
        resume_headers = {} if turn.last_event_id is None else {"last-event-id": str(turn.last_event_id)}
        try:
            for event in _read_events(url + path, headers | resume_headers, MESSAGE):
                turn.apply_event(*event)
                if not is_restarted and len(turn.text) > len(RESPONSE_TEXT) // 2:
                    break
        except (URLError, ConnectionError, ValueError):
            if is_restarted:
                raise
        if not is_restarted:
            print(f"  agent  {turn.text} …\n         (SIGKILL in the middle of the response; the client resumes)")
            url = kill_and_restart()
            is_restarted = True
    print(f"  agent  {turn.text}\n")
    print("  events " + ", ".join(f"{turn.names.count(name)} {name}" for name in dict.fromkeys(turn.names)) + "\n")
    session = get_json(f"{url}/api/agents/{AGENT}/sessions/{session_id}")
    model_requests = [
        request for request in get_json(f"{control}/requests")[request_count:] if request["output"] is not None
    ]
    return _find_losses(turn, session, len(model_requests), model_calls)


def _find_losses(turn: StreamedTurn, session: dict[str, Any], actual_calls: int, expected_calls: int) -> list[str]:
    losses: list[str] = []
    final_event = turn.final_event or {}
    if not turn.text == final_event.get("response") == RESPONSE_TEXT:
        losses.append(f"the client has {turn.text!r}, and the final event is {final_event}")
    if len(session["messages"]) != 4:  # noqa: PLR2004 - question, call, result, response
        losses.append(f"the streamed turn is stored in {len(session['messages'])} messages, not 4")
    if turn.names.count("tool.started") != 1 or turn.names.count("tool.completed") != 1:
        losses.append("the tool was run more than once")
    if actual_calls != expected_calls:  # the call, the interrupted response, the response
        losses.append(f"{actual_calls} model calls were made, and {expected_calls} are needed")
    return losses
