"""What the codec costs, next to upstream's state classes: encode, decode and bytes, in one run.

    .venv/bin/python benchmarks/codec.py [--messages 10 1000 10000] [--repeat 30] [--providers NAME …]

Sessions of tool turns (question, call, result, answer) with the properties that the OpenAI client sets; with
``--providers``, turns as each provider's client has streamed them from the practice model, with reasoning and its seal,
one table for each. Both sides get the same messages. The steps:

- ``decode``: from the state to the framework's messages for the model. Upstream loses on the way what its format has
  no field for.
- ``encode``: from the framework's messages of all turns to the state.
- ``read`` and ``write``: an operation of the entity makes an object of the state, and the state of the object. Ours
  leaves the entries as they are; upstream's builds an object for each content.
- ``add``: one more turn is encoded, to a session that was read, and the state is made.
- ``store``: the same through the commit of the turn, with its receipt, which upstream does not have.

The state is parsed JSON. Parsing and writing the text is Python's own, costs both sides the same for a byte, and is
not in the times. Times are the processor's, so that what else the machine does counts for little. The sides take turns;
a step of a short session is timed over many in a row. Garbage collection is on; each step begins without garbage, and
what was made before the steps is not looked at. Bytes are those of compact UTF-8 JSON of the whole state; ``contents``
is what the framework's own dictionaries of the contents take.
"""

import argparse
import asyncio
import gc
import json
import re
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from agent_framework import AgentResponse, Content, Message
from agent_framework_durabletask import DurableAgentState, RunRequest
from agent_framework_durabletask._durable_agent_state import DurableAgentStateRequest, DurableAgentStateResponse

sys.path.insert(0, str(Path(__file__).parent.parent))

from durable_agent_host.codec.entity_state import decode_session, encode_session
from durable_agent_host.codec.message import decode_message, encode_message, encode_request_entry, encode_response_entry
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest, TurnStats
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.transcript import replay_messages
from tests.durable_agent_host.provider_lab import KINDS, ProviderLab

AT = "2026-11-21T05:44:59.552365+00:00"
AT_TIME = datetime.fromisoformat(AT)
MESSAGES_A_TURN = 4


@dataclass(frozen=True)
class Turn:
    """One turn of the benchmark's conversation."""

    request: TurnRequest
    response: AgentResponse[Any]


def make_turn(number: int) -> Turn:
    """Make a turn with one tool call; ids are of the provider's lengths."""
    item = {"output_index": 0, "item_id": f"fc_{number:050x}"}
    identity = {"output_index": 0, "fc_id": item["item_id"], "openai": item}
    call_id = f"call_{number:024x}"
    question = f"What is the temperature at station {number}, and how does it compare with the day before?"
    arguments = json.dumps({"station": number, "unit": "celsius", "days": 2}, separators=(",", ":"))
    result = f"Station {number}: 7.4 degrees today, 8.1 the day before, wind from the west, no rain expected."
    answer = f"At station {number} it is 7.4 °C, which is 0.7 degrees colder than the day before. No rain is expected."
    call = Content.from_function_call(call_id, "temperature", arguments=arguments, additional_properties=identity)
    back = Content.from_function_result(call_id, result=result, additional_properties=identity)
    call.id = back.id = f"af-call-{number:032x}"
    text = Content.from_text(answer, additional_properties={"logprobs": [], "openai": {"logprobs": []}})
    response: AgentResponse[Any] = AgentResponse(
        messages=[
            Message("assistant", [call], author_name="Weather"),
            Message("tool", [back], author_name="Weather"),
            Message("assistant", [text], author_name="Weather"),
        ],
        response_id=f"resp_{number:050x}",
        created_at=AT,
        finish_reason="stop",
        usage_details={"input_token_count": 286, "output_token_count": 132, "total_token_count": 418},
    )
    return Turn(TurnRequest("Weather", "s", f"{number:032x}", question, created_at=AT), response)


def temperature(station: int, unit: str, days: int) -> str:
    """Tell a station's temperature."""
    return (
        f"Station {station}: 7.4 degrees {unit} today, 8.1 the day before, wind from the west, no rain in {days} days."
    )


def streamed_turns(kind: str) -> Callable[[int], Turn]:
    """Stream a turn from the practice model by a provider's client; gives what makes turns like it, with other ids."""
    lab = ProviderLab(tools=[temperature])
    call = {"name": "temperature", "arguments": {"station": 1, "unit": "celsius", "days": 2}}
    lab.plan(
        {"items": [{"reasoning": "The tool knows."}, {"calls": [call]}]},
        {"text": "At station 1 it is 7.4 °C, which is 0.7 degrees colder than the day before. No rain is expected."},
    )
    question = "What is the temperature at station 1, and how does it compare with the day before?"
    outcome = asyncio.run(lab.cold_turn(kind, question))
    text = json.dumps([encode_message(one) for one in lab.messages if one.role != "user"])
    ids = set(re.findall(r'"([^" ]*[0-9a-f]{16}[^" ]*)"', text))
    assert outcome.status == "completed"

    def make(number: int) -> Turn:
        said = text
        for one in ids:
            said = said.replace(one, f"{one[:-12]}{number:012x}")
        response: AgentResponse[Any] = AgentResponse(
            messages=[decode_message(one) for one in json.loads(said)],
            response_id=f"resp_{number:050x}",
            created_at=AT,
            finish_reason="stop",
            usage_details={"input_token_count": 286, "output_token_count": 132, "total_token_count": 418},
        )
        return Turn(TurnRequest("Weather", "s", f"{number:032x}", question, created_at=AT), response)

    return make


def contents_bytes(turns: list[Turn]) -> int:
    """Add up the compact JSON of the contents themselves."""
    said = [Message("user", [turn.request.message]) for turn in turns]
    everything = said + [message for turn in turns for message in turn.response.messages]
    return sum(size(content.to_dict()) for message in everything for content in message.contents)


def size(value: Any) -> int:
    """Count the bytes of compact UTF-8 JSON."""
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


class Ours:
    """A session of this project."""

    def new(self) -> Session:
        """Begin a session."""
        return Session()

    def entries(self, turn: Turn) -> Any:
        """Encode a turn."""
        return (
            encode_request_entry(turn.request),
            encode_response_entry(turn.request.turn_id, turn.response, created_at=AT),
        )

    def encode(self, turns: list[Turn]) -> Any:
        """Make a state of the messages of turns."""
        return encode_session(Session(entries=tuple(entry for turn in turns for entry in self.entries(turn))))

    def add(self, session: Session, turn: Turn) -> Session:
        """Add the messages of a turn."""
        return replace(session, entries=session.entries + self.entries(turn))

    def store(self, session: Session, turn: Turn) -> Session:
        """Commit a turn."""
        outcome = TurnOutcome(
            turn.request.turn_id,
            "completed",
            entries=self.entries(turn),
            request_hash="0" * 64,
            ended_at=AT,
            stats=TurnStats(33, 6020, 3, 1290, 24.6),
        )
        return commit_outcome(session, outcome, window=ReceiptWindow(200))[0]

    def read(self, state: Any) -> Session:
        """Make an object of a state."""
        return decode_session(state)

    def write(self, session: Session) -> Any:
        """Make a state of the object."""
        return encode_session(session)

    def messages(self, session: Session) -> list[Message]:
        """Give the messages for the model."""
        return replay_messages(session.entries)


class Upstream:
    """A session of agent_framework_durabletask."""

    def new(self) -> DurableAgentState:
        """Begin a session."""
        return DurableAgentState()

    def add(self, state: DurableAgentState, turn: Turn) -> DurableAgentState:
        """Add a turn."""
        request = RunRequest(message=turn.request.message, correlation_id=turn.request.turn_id, created_at=AT_TIME)
        history = state.data.conversation_history
        history.append(DurableAgentStateRequest.from_run_request(request))
        history.append(DurableAgentStateResponse.from_run_response(turn.request.turn_id, turn.response))
        return state

    store = add

    def encode(self, turns: list[Turn]) -> Any:
        """Make a state of the messages of turns."""
        state = DurableAgentState()
        for turn in turns:
            self.add(state, turn)
        return state.to_dict()

    def read(self, state: Any) -> DurableAgentState:
        """Make an object of a state."""
        return DurableAgentState.from_dict(state)

    def write(self, state: DurableAgentState) -> Any:
        """Make a state of the object."""
        return state.to_dict()

    def messages(self, state: DurableAgentState) -> list[Message]:
        """Give the messages for the model."""
        return [message.to_chat_message() for entry in state.data.conversation_history for message in entry.messages]


class Measured:
    """What one side takes for each step of a session of some turns.

    Attributes:
        times: milliseconds by step.
        state: the session as JSON.
    """

    def __init__(self, side: Any, turns: list[Turn]) -> None:
        session = side.new()
        for turn in turns[:-1]:
            session = side.store(session, turn)
        before = json.loads(json.dumps(side.write(session)))
        self.state = json.loads(json.dumps(side.write(side.store(side.read(before), turns[-1]))))
        self.times: dict[str, list[float]] = {}
        self._side, self._turns, self._before = side, turns, before

    def measure(self) -> None:
        """Take each step once."""
        side, turns, before = self._side, self._turns, self._before
        self._take("decode", lambda _: side.messages(side.read(self.state)))
        self._take("encode", lambda _: side.encode(turns))
        self._take("read", lambda _: side.read(self.state))
        self._take("write", side.write, lambda: side.read(self.state))
        self._take("add", lambda held: side.write(side.add(held, turns[-1])), lambda: side.read(before))
        self._take("store", lambda held: side.write(side.store(held, turns[-1])), lambda: side.read(before))

    def _take(self, step: str, work: Callable[[Any], Any], prepare: Callable[[], Any] = lambda: None) -> None:
        gc.collect()
        held = [prepare() for _ in range(max(1, 100 // len(self._turns)))]
        started = time.process_time()
        for one in held:
            work(one)
        seconds = time.process_time() - started
        self.times.setdefault(step, []).append(seconds * 1000 / len(held))


def median(times: list[float]) -> float:
    """Give the middle of some times."""
    return statistics.median(times)


def p99(times: list[float]) -> float:
    """Give the 99th percentile of some times."""
    return statistics.quantiles(times, n=100, method="inclusive")[98]


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, nargs="+", default=[10, 1000, 10000])
    parser.add_argument("--repeat", type=int, default=30)
    parser.add_argument("--providers", choices=list(KINDS), nargs="+", default=[])
    options = parser.parse_args()
    for kind in options.providers or [""]:
        print(f"\n{kind}" if kind else "", end="\n" if kind else "")
        compare(streamed_turns(kind) if kind else make_turn, options.messages, options.repeat)


def compare(make: Callable[[int], Turn], lengths: list[int], repeat: int) -> None:
    """Measure both sides and print the table.

    Args:
        make: a turn by its number.
        lengths: of sessions, in messages.
        repeat: how often each step is timed.
    """
    print(f"{'messages':>9} {'step':<10} {'ours ms':>9} {'p99':>9} {'upstream ms':>12} {'p99':>9} {'times faster':>13}")
    for count in lengths:
        turns = [make(number) for number in range(max(2, round(count / MESSAGES_A_TURN)))]
        ours, upstreams = Measured(Ours(), turns), Measured(Upstream(), turns)
        gc.freeze()
        ours.measure()
        upstreams.measure()  # once to warm up
        ours.times, upstreams.times = {}, {}
        for _ in range(repeat):
            ours.measure()
            upstreams.measure()
        for step, one in ours.times.items():
            other = upstreams.times[step]
            print(
                f"{len(turns) * MESSAGES_A_TURN:>9} {step:<10} {median(one):>9.3f} {p99(one):>9.3f} "
                f"{median(other):>12.3f} {p99(other):>9.3f} {median(other) / median(one):>13.1f}"
            )
        our_bytes, upstream_bytes = size(ours.state), size(upstreams.state)
        contents = contents_bytes(turns)
        print(
            f"{len(turns) * MESSAGES_A_TURN:>9} bytes      ours {our_bytes}, upstream {upstream_bytes}, contents "
            f"{contents}: {our_bytes / contents:.2f} x the contents, {our_bytes / upstream_bytes:.2f} x upstream"
        )


if __name__ == "__main__":
    main()
