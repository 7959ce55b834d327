"""An agent does the same here as in the bare framework, whatever of the framework's extension points it uses.

Each agent runs the same turns twice: in the host, over HTTP, and by its own ``run`` in this process. Both ask the same
practice model. What the model received, what the app's code left in its ledger, and the answers are equal.
"""

import asyncio
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from agent_framework import AgentSession

from tests.durable_agent_host.extension_points import CLIENTS, PAIRS, POINTS, Point, close_clients, name_of
from tests.kit import AgentHost, Lives, PracticeModel, running_host
from tests.processes import wait_until

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*AGENT_HOOKS:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
APP = Path(__file__).parent / "apps" / "extensions"
TURNS = ("Where is plum?", "And now?")
AT_SERVICE = re.compile(r"/(assistants|threads)(/asst_\w+)?$")
"""Requests that find or make the agent and the thread: whoever comes first makes the agent."""


@dataclass(frozen=True)
class Run:
    """What could be seen of the turns of one agent.

    Attributes:
        requests: path, headers and body of each.
        lines: of the ledger.
        answers: of the turns.
    """

    requests: list[Any]
    lines: list[str]
    answers: list[str]


def received(model: PracticeModel) -> list[Any]:
    """Return the requests, without headers that no extension point sets, and with the model's ids numbered."""
    asked = [one for one in model.requests() if one["method"] == "POST" and not AT_SERVICE.search(one["path"])]
    text = json.dumps([(one["path"], own_headers(one["headers"]), neutral(one["body"])) for one in asked])
    numbers: dict[str, int] = {}
    return json.loads(re.sub(r"[0-9a-f]{24,}", lambda one: f"id-{numbers.setdefault(one[0], len(numbers))}", text))


def own_headers(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the headers that an app or a client of the framework sets."""
    names = {"x-team", "x-from-options", "anthropic-beta", "user-agent"}
    return {name: sorted(value.split(",")) for name, value in headers.items() if name.lower() in names}


def neutral(body: Any) -> Any:
    """Return a body without what the host writes differently on purpose, which other wire tests are about.

    The provider's own items go back as they came, where the framework's clients leave out fields; messages of a role
    that follow each other are one; a run of the service carries the turn's id.
    """
    match body:
        case {"input": [*items], **rest}:
            return rest | {
                "input": [without(one, "id", "status", "logprobs") if "type" in one else one for one in items]
            }
        case {"messages": [*messages], "stream_options": _, **rest}:
            said = [
                {name: value for name, value in one.items() if (name, value) != ("content", None)} for one in messages
            ]
            return rest | {"messages": said}
        case {"messages": [*messages], **rest}:
            return rest | {"messages": joined(messages, "content")}
        case {"contents": [*contents], **rest}:
            said = without(contents, "thoughtSignature")
            parts = [one | {"parts": [part for part in one["parts"] if part != {"text": ""}]} for one in said]
            return rest | {"contents": joined(parts, "parts")}
        case {"metadata": {**metadata}, **rest}:
            own = without(metadata, "turn_id", "request", "number")
            return rest | ({"metadata": own} if own else {})
        case _:
            return body


def without(value: Any, *names: str) -> Any:
    """Leave fields out at any depth."""
    if isinstance(value, list):
        return [without(one, *names) for one in value]
    if not isinstance(value, dict):
        return value
    return {name: without(one, *names) for name, one in value.items() if name not in names}


def joined(messages: Sequence[Mapping[str, Any]], field: str) -> list[dict[str, Any]]:
    """Join messages of a role that follow each other."""
    result: list[dict[str, Any]] = []
    for one in messages:
        contents = one[field] if isinstance(one[field], list) else [{"type": "text", "text": one[field]}]
        if result and result[-1]["role"] == one["role"]:
            result[-1][field] += contents
        else:
            result.append({**one, field: [*contents]})
    return result


def calls(model: PracticeModel) -> int:
    """Count the model calls, but for those of a service whose runs take several requests."""
    return sum("/threads/" not in path for path, *_ in received(model))


class Bench:
    """Runs turns in the host, and without it.

    Args:
        host: has all agents.
        model: that all agents ask.
        ledger: of the host.
        own_ledger: of this process.
        loop: of the agents without a host.
    """

    def __init__(
        self, host: AgentHost, model: PracticeModel, *, ledger: Path, own_ledger: Path, loop: asyncio.Runner
    ) -> None:
        self.host, self.model, self.loop = host, model, loop
        self.ledger, self.own_ledger = ledger, own_ledger

    def run(self, client: str, point: str) -> Run:
        """Run the turns of an agent in the host."""
        name, session = name_of(point, client), f"{client}-{point}"

        def turn(text: str) -> str:
            answer = self.host.run(name, {"message": text, "session_id": session})
            return answer.json()["response"] if answer.ok else answer.text

        return self._play(POINTS[point], turn, self.ledger)

    def signal(self, client: str, point: str) -> Run:
        """Run the turns of an agent by its entity's operation."""
        name, session = name_of(point, client), f"{client}-{point}-signalled"

        def turn(text: str) -> str:
            self.host.signal(name, session, "run", {"message": text, "correlationId": f"{session}-{text}"})
            count = 2 * (TURNS.index(text) + 1)
            read = f"/agents/{name}/sessions/{session}"
            wait_until(lambda: (answer := self.host.get(read)).ok and answer.json()["message_count"] == count)
            return ""

        return self._play(POINTS[point], turn, self.ledger)

    def run_bare(self, client: str, point: str) -> Run:
        """Run the turns of an agent without the host."""
        agent = POINTS[point].build(name_of(point, client), client, self.model.url.removesuffix("/v1"))
        session = AgentSession(session_id="s")

        async def answer(text: str) -> str:
            return (await agent.run(text, session=session, stream=True).get_final_response()).text

        return self._play(POINTS[point], lambda text: self.loop.run(answer(text)), self.own_ledger)

    def _play(self, point: Point, turn: Callable[[str], str], ledger: Path) -> Run:
        self.model.reset()
        call = {"calls": [{"name": point.tool, "arguments": {"word": "plum"}}]}
        inner = [{"calls": [{"name": "look_up", "arguments": {"word": "pear"}}]}, {"text": "It is on page 7."}]
        calls = [call, *inner] if point.tool == "ask_expert" else [call] * point.rounds
        texts = TURNS[: point.turns]
        for _ in texts:
            self.model.plan(*calls, {"text": point.answer})
        ledger.write_text("")
        answers = [turn(text) for text in texts]
        return Run(received(self.model), ledger.read_text().splitlines(), answers)


@pytest.fixture(scope="module")
def bench(practice_model: PracticeModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A host with all agents, and a loop without one."""
    folder = tmp_path_factory.mktemp("extended")
    ledger, own_ledger = folder / "hosted", folder / "bare"
    more = {"MODEL_URL": practice_model.url.removesuffix("/v1"), "LEDGER": str(ledger)}
    with (
        running_host(folder / "data", None, app=APP, **more) as host,
        asyncio.Runner() as loop,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setenv("LEDGER", str(own_ledger))
        yield Bench(host, practice_model, ledger=ledger, own_ledger=own_ledger, loop=loop)
        loop.run(close_clients())


@pytest.mark.parametrize(("client", "point"), PAIRS)
def test_the_host_does_what_the_framework_does(client: str, point: str, bench: Bench):
    """Requests, effects and answers are those of the agent without a host."""
    bare, run = bench.run_bare(client, point), bench.run(client, point)
    assert run.lines == bare.lines
    assert run.answers == bare.answers
    assert run.requests == bare.requests


@pytest.mark.parametrize("client", CLIENTS)
def test_a_signal_to_the_entity_does_what_the_framework_does(client: str, bench: Bench):
    """A turn by the entity's operation passes the same middleware and context providers."""
    bare, run = bench.run_bare(client, "all-middleware"), bench.signal(client, "all-middleware")
    assert (run.lines, run.requests) == (bare.lines, bare.requests)


def test_a_turn_goes_through_its_middleware_again_after_a_kill(practice_model: PracticeModel, tmp_path: Path):
    """Each client's turn is killed in its second tool: agent and chat middleware run again, finished calls do not."""
    model, ledger = practice_model, tmp_path / "ledger"
    ledger.write_text("")
    model.reset()
    lives = Lives(tmp_path / "data", None, app=APP, MODEL_URL=model.url.removesuffix("/v1"), LEDGER=str(ledger))
    try:
        turns: dict[str, str] = {}
        for client in CLIENTS:
            name = name_of("all-middleware", client)
            model.plan(*({"calls": [{"name": tool, "arguments": {"word": "plum"}}]} for tool in ("look_up", "linger")))
            body = {"message": TURNS[0], "session_id": "s", "wait_for_response": False}
            turns[client] = lives.host.run(name, body).json()["turn_id"]
            lingering = len(turns)
            wait_until(lambda lingering=lingering: ledger.read_text().count("\nlinger plum") == lingering)
        model.plan({"text": "Page 7."}, times=None)
        before = ledger.read_text()
        asked = calls(model)
        lives.crash()
        for client, turn_id in turns.items():
            path = f"/agents/{name_of('all-middleware', client)}/sessions/s/turns/{turn_id}"
            view = lives.host.end_of_turn(f"{lives.host.url}/api{path}")
            assert view["status"] == "completed", view
        after = ledger.read_text().removeprefix(before)
        agents = len(CLIENTS)
        counts = {line: after.count(line) for line in ("agent-1 > run", "client-chat-1 > call", "second-chat > call")}
        assert counts == {"agent-1 > run": agents, "client-chat-1 > call": 3 * agents, "second-chat > call": 3 * agents}
        assert "look_up plum" not in after
        assert after.count("linger plum") == after.count("client-function-1 > linger") == agents
        assert calls(model) == asked + agents - 1
    finally:
        lives.host.stop()
