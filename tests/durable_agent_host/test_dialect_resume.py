"""Connections are cut at any byte, and hosts killed: the events of each dialect come once, with their numbers."""

import contextlib
import json
import random
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from tests.kit import SHORT_LEASE, AgentHost, PracticeModel, start_host
from tests.sweeps import IS_LONG, chooser, count

APP = Path(__file__).parent / "apps" / "resume"
LONG = "Größer 😀 als 漢字,\r\n\n\u2028data: und länger. " * 8
THINKING = {"reasoning": "Hm, 思う. " * 8}
PACE = {"chunk_characters": 5, "delay_milliseconds": 8}
SIZE = 2 if IS_LONG else 1
"""How many sessions of each dialect there are at the same time, and how many turns in each."""
CUTS = 3
"""Of each part of a turn, besides what a kill cuts."""


def call(name: str, **arguments: Any) -> dict[str, Any]:
    """A call of a tool."""
    return {"name": name, "arguments": arguments}


SCRIPTS: Sequence[Sequence[dict[str, Any]]] = (
    [
        {"items": [THINKING, {"text": LONG}, {"calls": [call("weather", city="Bonn")]}]},
        {"items": [THINKING, {"text": "The end."}]},
    ],
    [
        {"items": [{"text": LONG}, {"calls": [call("pay", amount=3), call("locate"), call("weather", city="Köln")]}]},
        {"items": [THINKING, {"text": LONG + "The end."}]},
    ],
    [
        {"items": [THINKING, {"calls": [call("pay", amount=4), call("Researcher", task="research it")]}]},
        {"items": [{"text": LONG}, {"calls": [call("locate")]}]},
        {"text": LONG + "The end.", "incomplete": "max_output_tokens"},
    ],
    [
        {
            "items": [
                {"code": "print(1)", "logs": "1\n"},
                {"text": LONG},
                {"calls": [call("Researcher", task="research it")]},
            ]
        },
        {"items": [{"text": LONG}, {"calls": [call("pay", amount=5)]}]},
        {"error": {"status": 400, "code": "bad", "message": "The end."}},
    ],
    [
        {"items": [THINKING, {"text": LONG}], "break_after_events": 40},
        {"items": [THINKING, {"text": LONG + "The end."}]},
    ],
)
ENDS = {"The end.", LONG + "The end.", "the model's service rejected the call with 400: The end."}
INNER = {"items": [THINKING, {"text": LONG}]}


class Request(NamedTuple):
    """A request of a client."""

    method: str
    path: str
    body: Any = None
    headers: Mapping[str, str] = MappingProxyType({})

    def encode(self) -> bytes:
        """Write it."""
        body = b"" if self.body is None else json.dumps(self.body).encode()
        fields = {
            "host": "127.0.0.1",
            "connection": "close",
            "accept": "text/event-stream",
            "content-length": len(body),
            **self.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return f"{self.method} /api{self.path} HTTP/1.1\r\n{head}\r\n".encode() + body


class Received(NamedTuple):
    """What came of an answer before its connection was lost."""

    status: int | None
    events: list[dict[str, str]]
    is_whole: bool

    @classmethod
    def read(cls, data: bytes) -> "Received":
        """Read the whole events of an answer."""
        head, separator, rest = data.partition(b"\r\n\r\n")
        if not separator:
            return cls(None, [], is_whole=False)
        body = b""
        is_whole = b"chunked" not in head
        while not is_whole and (chunk := rest.partition(b"\r\n"))[1]:
            size = int(chunk[0], 16)
            is_whole = not size
            body += chunk[2][:size]
            rest = chunk[2][size + 2 :]
        status = int(head.split()[1])
        assert status < 400, (data[:4000]).decode()
        *blocks, _ = (body or rest).split(b"\n\n")
        events = [dict(line.partition(": ")[::2] for line in block.decode().split("\n")) for block in blocks]
        return cls(status, [event for event in events if "data" in event], is_whole)


class Line:
    """The connections of a client.

    Args:
        url: of the host.
        chance: draws where they are cut.
        cuts: how many connections are to be cut at each part of a turn.

    Attributes:
        drops: how many were lost, also by kills.
    """

    def __init__(self, url: str, chance: random.Random, cuts: int) -> None:
        self.url = urlsplit(url)
        self._chance = chance
        self._cuts = self._cuts_left = cuts
        self.drops = 0

    def renew(self) -> None:
        """Begin the next part."""
        self._cuts_left = self._cuts

    def read(self, request: Request) -> Received:
        """Send a request, and read the answer, or reset its connection after some bytes."""
        limit = None
        if self._cuts_left:
            self._cuts_left -= 1
            limit = self._chance.randrange(self._chance.choice((2, 400, 3000, 12000, 40000)))
        data = b""
        address = (self.url.hostname, self.url.port)
        with contextlib.suppress(ConnectionError), socket.create_connection(address, timeout=90) as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.sendall(request.encode())
            while limit is None or len(data) < limit:
                more = connection.recv(65536 if limit is None else min(limit - len(data), 65536))
                if not more:
                    break
                data += more
        received = Received.read(data)
        self.drops += not received.is_whole
        if not data:
            time.sleep(0.02)
        return received


class Client(ABC):
    """A client of a dialect that comes back whenever it has lost its connection.

    Args:
        session_id: of its session.
        messages: what the user says, one after the other.
    """

    def __init__(self, session_id: str, messages: Sequence[str]) -> None:
        self.session_id = session_id
        self.messages = messages

    @abstractmethod
    def converse(self, line: Line) -> None:
        """Run the turns to their ends."""

    @abstractmethod
    def check(self, line: Line) -> tuple[int, Sequence[str]]:
        """Hold all that came against what is read without an interruption; gives their number, and the last texts."""


class NumberedClient(Client):
    """A client that reads on after the last event that it has.

    Attributes:
        parts: of all turns, from a request to the end or the next wait: the request, and the events.
    """

    def __init__(self, session_id: str, messages: Sequence[str]) -> None:
        super().__init__(session_id, messages)
        self.parts: list[tuple[Request, list[Any]]] = []

    def converse(self, line: Line) -> None:
        events: list[Any] = []
        for message in self.messages:
            request: Request | None = self.begin(message, events)
            while request:
                line.renew()
                events = []
                self.parts.append((request, events))
                while not (events and self.is_end(events[-1])):
                    events += self.events(line.read(self.come_back(request, events) if events else request))
                request = self.reply(events)

    def check(self, line: Line) -> tuple[int, Sequence[str]]:
        for request, events in self.parts:
            assert [self.number(event) for event in events] == list(range(len(events)))
            assert events == self.events(line.read(self.read_again(request, events)))
        ends = [events for _, events in self.parts if self.reply(events) is None]
        return sum(len(events) for _, events in self.parts), [self.text(events) for events in ends]

    @abstractmethod
    def begin(self, message: str, before: list[Any]) -> Request:
        """Make the request that runs a turn after others."""

    @abstractmethod
    def events(self, received: Received) -> list[Any]:
        """Read events."""

    @abstractmethod
    def number(self, event: Any) -> int:
        """Give the number of an event."""

    @abstractmethod
    def is_end(self, event: Any) -> bool:
        """Whether an event is the last one of its part."""

    @abstractmethod
    def come_back(self, request: Request, events: list[Any]) -> Request:
        """Make the request for the events after some."""

    @abstractmethod
    def reply(self, events: list[Any]) -> Request | None:
        """Make the request that answers what the turn waits for."""

    @abstractmethod
    def read_again(self, request: Request, events: list[Any]) -> Request:
        """Make the request for all events of a part."""

    @abstractmethod
    def text(self, events: list[Any]) -> str:
        """Give the last text of an ended turn."""


class Responses(NumberedClient):
    """A client of the Responses API."""

    def begin(self, message: str, before: list[Any]) -> Request:
        body = {"model": "Helper", "input": message, "stream": True}
        if before:
            body["previous_response_id"] = before[-1]["response"]["id"]
        return Request("POST", "/openai/v1/responses", body, {"idempotency-key": message})

    def events(self, received: Received) -> list[Any]:
        events = [json.loads(event["data"]) for event in received.events]
        assert [event["type"] for event in events] == [event["event"] for event in received.events]
        return events

    def number(self, event: Any) -> int:
        return event["sequence_number"]

    def is_end(self, event: Any) -> bool:
        return event["type"] in {"response.completed", "response.failed", "response.incomplete"}

    def come_back(self, request: Request, events: list[Any]) -> Request:
        whole = self.read_again(request, events)
        return whole._replace(path=f"{whole.path}&starting_after={events[-1]['sequence_number']}")

    def reply(self, events: list[Any]) -> Request | None:
        response = events[-1]["response"]
        replies: list[Any] = []
        for item in response["output"]:
            if item["type"] == "function_call":
                replies.append({"type": "function_call_output", "call_id": item["call_id"], "output": "Bonn"})
            if item["type"] == "mcp_approval_request":
                replies.append({"type": "mcp_approval_response", "approval_request_id": item["id"], "approve": True})
        body = {"model": "Helper", "input": replies, "stream": True, "previous_response_id": response["id"]}
        return Request("POST", "/openai/v1/responses", body) if replies else None

    def read_again(self, request: Request, events: list[Any]) -> Request:
        return Request("GET", f"/openai/v1/responses/{events[0]['response']['id']}?stream=true")

    def text(self, events: list[Any]) -> str:
        response = events[-1]["response"]
        return response["error"]["message"] if response["error"] else response["output"][-1]["content"][0]["text"]


class AGUI(NumberedClient):
    """A client of AG-UI."""

    def begin(self, message: str, before: list[Any]) -> Request:
        messages = before[-2]["messages"] if before else []
        return self._run([*messages, {"id": f"of {message}", "role": "user", "content": message}])

    def _run(self, messages: list[Any], **fields: Any) -> Request:
        ids = {"threadId": self.session_id, "runId": f"run {len(self.parts)}", "protocolVersion": "1.0"}
        return Request("POST", "/agui/Helper", {**ids, "messages": messages, **fields})

    def events(self, received: Received) -> list[Any]:
        return [{"number": int(event["id"]), **json.loads(event["data"])} for event in received.events]

    def number(self, event: Any) -> int:
        return event["number"]

    def is_end(self, event: Any) -> bool:
        return event["type"] in {"RUN_FINISHED", "RUN_ERROR"}

    def come_back(self, request: Request, events: list[Any]) -> Request:
        return request._replace(headers={"last-event-id": str(events[-1]["number"])})

    def reply(self, events: list[Any]) -> Request | None:
        messages = events[-2]["messages"]
        done = {message.get("toolCallId") for message in messages}
        calls = [call for message in messages for call in message.get("toolCalls", ()) if call["id"] not in done]
        results = [
            {"id": f"of {call['id']}", "role": "tool", "toolCallId": call["id"], "content": "Bonn"}
            for call in calls
            if call["function"]["name"] == "locate"
        ]
        interrupts = events[-1].get("outcome", {}).get("interrupts", ())
        resume = [
            {"interruptId": item["id"], "status": "resolved", "payload": {"approved": True}} for item in interrupts
        ]
        return self._run([*messages, *results], resume=resume) if results or resume else None

    def read_again(self, request: Request, events: list[Any]) -> Request:
        return request

    def text(self, events: list[Any]) -> str:
        return events[-1].get("message") or events[-2]["messages"][-1]["content"]


class AISDK(Client):
    """A client of the AI SDK, which reads a message from its beginning.

    Attributes:
        turns: of each the requests: the user's message, and the answers to what it waits for; and the readings: the
            steps that were left out, and the chunks.
    """

    def __init__(self, session_id: str, messages: Sequence[str]) -> None:
        super().__init__(session_id, messages)
        self.turns: list[tuple[list[Request], list[tuple[int, list[Any]]]]] = []
        self._replied_ids: set[str] = set()

    def converse(self, line: Line) -> None:
        for message in self.messages:
            body = {"id": f"of {message}", "role": "user", "parts": [{"type": "text", "text": message}]}
            request = Request("POST", "/ai/Helper", {"id": self.session_id, "message": body})
            self.turns.append(([request], []))
            line.renew()
            self._finish(request, line)

    def _finish(self, request: Request, line: Line) -> None:
        requests, readings = self.turns[-1]
        while True:
            status, is_whole = self._read(request, line)
            chunks = readings[-1][1]
            if not is_whole:  # 204: the turn has ended, or what was posted has not arrived
                path = f"/ai/Helper/{self.session_id}/stream"
                request = requests[-1] if status == 204 else Request("GET", path)
            elif chunks[-1].get("finishReason") != "tool-calls":
                return
            else:
                self._reply(*readings[-1])
                line.renew()
                request = requests[-1]

    def check(self, line: Line) -> tuple[int, Sequence[str]]:
        texts: list[str] = []
        for turn in [*self.turns]:
            self.turns.append(turn)
            requests, readings = turn
            for request in requests[::-1]:
                assert self._read(request, line)[1]
            whole = readings[-1][1]
            starts = [index for index, chunk in enumerate(whole) if chunk["type"] == "start-step"]
            for steps, chunks in readings:
                is_waiting = chunks and chunks[-1].get("finishReason") == "tool-calls"
                found = chunks[:-1] if is_waiting else chunks
                assert found == [whole[0], *whole[starts[steps] :]][: len(found)]
            texts.append(_last_text(whole))
        return sum(len(chunks) for _, readings in self.turns for _, chunks in readings), texts

    def _read(self, request: Request, line: Line) -> tuple[int | None, bool]:
        """Read chunks; gives the status, and whether they are all there are."""
        received = line.read(request)
        chunks = [event["data"] for event in received.events]
        assert "[DONE]" not in chunks[:-1]
        events = [json.loads(chunk) for chunk in chunks if chunk != "[DONE]"]
        parts = request.body["messages"][0]["parts"] if request.body and "messages" in request.body else []
        self.turns[-1][1].append((parts.count({"type": "step-start"}), events))
        return received.status, chunks[-1:] == ["[DONE]"]

    def _reply(self, steps: int, chunks: list[Any]) -> None:
        """Make the request that answers what the turn waits for, unless there is one, which has not arrived."""
        done = {chunk["toolCallId"] for chunk in chunks if chunk["type"].startswith("tool-output")}
        asked = {chunk["toolCallId"] for chunk in chunks if chunk["type"] == "tool-approval-request"}
        parts: list[Any] = [{"type": "step-start"}] * (steps + sum(chunk["type"] == "start-step" for chunk in chunks))
        ids: set[str] = set()
        for chunk in chunks:
            if chunk["type"] == "tool-input-available" and (id_ := chunk["toolCallId"]) not in done:
                part = {"type": "dynamic-tool", "toolCallId": id_, "toolName": chunk["toolName"]}
                if id_ in asked:
                    parts.append(part | {"state": "approval-responded", "approval": {"id": id_, "approved": True}})
                elif not chunk["providerExecuted"]:
                    parts.append(part | {"state": "output-available", "output": "Bonn"})
                ids.add(id_)
        if not ids <= self._replied_ids:
            self._replied_ids |= ids
            message = {"id": chunks[0]["messageId"], "role": "assistant", "parts": parts}
            self.turns[-1][0].append(Request("POST", "/ai/Helper", {"id": self.session_id, "messages": [message]}))


def _last_text(chunks: list[Any]) -> str:
    """Fold chunks as a page does; gives the error, or the last text."""
    texts: list[str] = []
    count_before = 0
    for chunk in chunks:
        match chunk["type"]:
            case "start-step":
                count_before = len(texts)
            case "reset-step":
                del texts[count_before:]
            case "text-start":
                texts.append("")
            case "text-delta":
                texts[-1] += chunk["delta"]
            case "error":
                texts.append(chunk["errorText"])
            case _:
                pass
    return texts[-1]


DIALECTS = (Responses, AGUI, AISDK)


def plan(model: PracticeModel, name: str, script: Sequence[dict[str, Any]]) -> None:
    """Script the turn of a client; a model call that a crash has interrupted is answered in the same way."""
    has_break = "break_after_events" in script[0]
    model.plan(*(step | PACE for step in script), user_text=name, by_round=not has_break, times=None)


@pytest.mark.sweep
@pytest.mark.timeout(3600)
def test_a_dialects_events_come_once_whatever_is_cut_or_killed(model: PracticeModel, tmp_path: Path):
    """What clients of turns at the same time have put together is what is read without an interruption."""
    chance = chooser("dialect resume")
    rounds = count("KILLS", short=2, long=50)
    model.plan(INNER | PACE, user_text="research it", by_round=True)
    totals = {dialect.__name__: [0, 0] for dialect in DIALECTS}

    def start(port: int) -> AgentHost:
        return start_host(tmp_path / "data", model, app=APP, port=port, **SHORT_LEASE)

    host = start(0)
    try:
        for number in range(rounds):
            talks: list[tuple[Client, Line]] = []
            for dialect in DIALECTS:
                for place in range(SIZE):
                    session_id = f"{dialect.__name__}-{number}-{place}"
                    messages = [f"{session_id} {word}" for word in ("begin", "continue")[:SIZE]]
                    for message in messages:
                        plan(model, message, chance.choice(SCRIPTS))
                    talks.append((dialect(session_id, messages), Line(host.url, random.Random(chance.random()), CUTS)))
            with ThreadPoolExecutor(len(talks)) as threads:
                ends = [threads.submit(client.converse, line) for client, line in talks]
                time.sleep(chance.uniform(0.1, 5 if IS_LONG else 2))
                host.kill()
                host = start(talks[0][1].url.port)
                for end in ends:
                    end.result()
                for client, line in talks:
                    total = totals[type(client).__name__]
                    total[0] += line.drops
                    event_count, texts = client.check(Line(host.url, chance, 0))
                    assert len(texts) == SIZE
                    assert ENDS.issuperset(texts)
                    total[1] += event_count
            print(f"{number + 1} kills; drops and events: {totals}")
    finally:
        host.kill()
