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

from tests.durable_agent_host.extension_points import PAIRS, POINTS, Point, close_clients, name_of
from tests.kit import AgentHost, Lives, PracticeModel, running_host
from tests.processes import wait_until

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*AGENT_HOOKS:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*AiohttpClientSession:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]
APP = Path(__file__).parent / "apps" / "extensions"
TURNS = ("Where is plum?", "And now?")


@dataclass(frozen=True)
class Run:
    """What could be seen of the turns of one agent.

    Attributes:
        requests: path, headers and body of each.
        lines: of the ledger.
        responses: of the turns.
    """

    requests: list[Any]
    lines: list[str]
    responses: list[str]


def comparable_requests(model: PracticeModel) -> list[Any]:
    """Return the requests, without headers that no extension point sets, and with the model's ids numbered."""
    requests = [
        (request["path"], own_headers(request["headers"]), neutral(request["body"])) for request in model.requests()
    ]
    text = json.dumps(requests)
    numbers: dict[str, int] = {}
    return json.loads(re.sub(r"[0-9a-f]{24,}", lambda match: f"id-{numbers.setdefault(match[0], len(numbers))}", text))


def own_headers(headers: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the headers that an app or a client of the framework sets."""
    names = {"x-team", "x-from-options", "anthropic-beta", "user-agent"}
    return {name: sorted(value.split(",")) for name, value in headers.items() if name.lower() in names}


def neutral(body: Any) -> Any:
    """Return a body without what the host writes differently on purpose, which other wire tests are about.

    The provider's own items go back as they came, where the framework's clients leave out fields; messages of a role
    that follow each other are one.
    """
    match body:
        case {"input": [*items], **rest}:
            return rest | {
                "input": [without(item, "id", "status", "logprobs") if "type" in item else item for item in items]
            }
        case {"messages": [*messages], "stream_options": _, **rest}:
            stripped_items = [
                {name: value for name, value in message.items() if (name, value) != ("content", None)}
                for message in messages
            ]
            return rest | {"messages": join_texts(stripped_items)}
        case {"messages": [*messages], **rest}:
            return rest | {"messages": join_messages(messages, "content")}
        case {"contents": [*contents], **rest}:
            stripped_items = without(contents, "thoughtSignature")
            parts = [
                content | {"parts": [part for part in content["parts"] if part != {"text": ""}]}
                for content in stripped_items
            ]
            return rest | {"contents": join_messages(parts, "parts")}
        case _:
            return body


def without(value: Any, *names: str) -> Any:
    """Leave fields out at any depth."""
    if isinstance(value, list):
        return [without(item, *names) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without(item, *names) for name, item in value.items() if name not in names}


def join_messages(messages: Sequence[Mapping[str, Any]], field: str) -> list[dict[str, Any]]:
    """Join messages of a role that follow each other."""
    result: list[dict[str, Any]] = []
    for message in messages:
        contents = message[field] if isinstance(message[field], list) else [{"type": "text", "text": message[field]}]
        if result and result[-1]["role"] == message["role"]:
            result[-1][field] += contents
        else:
            result.append({**message, field: [*contents]})
    return result


def join_texts(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join users' texts that follow each other, as the services require whose roles alternate."""
    result: list[dict[str, Any]] = []
    for message in messages:
        if result and result[-1]["role"] == message["role"] == "user":
            result[-1]["content"] += f"\n\n{message['content']}"
        else:
            result.append({**message})
    return result


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
            response = self.host.run(name, {"message": text, "session_id": session})
            return response.json()["response"] if response.ok else response.text

        return self._play(POINTS[point], turn, self.ledger)

    def run_bare(self, client: str, point: str) -> Run:
        """Run the turns of an agent without the host."""
        agent = POINTS[point].build(name_of(point, client), client, self.model.url.removesuffix("/v1"))
        session = AgentSession(session_id="s")

        async def run_agent(text: str) -> str:
            return (await agent.run(text, session=session, stream=True).get_final_response()).text

        return self._play(POINTS[point], lambda text: self.loop.run(run_agent(text)), self.own_ledger)

    def _play(self, point: Point, turn: Callable[[str], str], ledger: Path) -> Run:
        self.model.reset()
        call = {"calls": [{"name": point.tool, "arguments": {"word": "plum"}}]}
        inner = [{"calls": [{"name": "look_up", "arguments": {"word": "pear"}}]}, {"text": "It is on page 7."}]
        calls = [call, *inner] if point.tool == "ask_expert" else [call] * point.rounds
        texts = TURNS[: point.turns]
        for _ in texts:
            self.model.plan(*calls, {"text": point.answer})
        ledger.write_text("")
        responses = [turn(text) for text in texts]
        return Run(comparable_requests(self.model), ledger.read_text().splitlines(), responses)


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


@pytest.mark.sweep
@pytest.mark.parametrize(("client", "point"), PAIRS)
def test_the_host_does_what_the_framework_does(client: str, point: str, bench: Bench):
    """Requests, effects and answers are those of the agent without a host."""
    bare, run = bench.run_bare(client, point), bench.run(client, point)
    assert run.lines == bare.lines
    assert run.responses == bare.responses
    requests = bare.requests
    if (client, point) == ("anthropic", "unknown-tool"):  # the host's own results are not marked as errors for Claude
        requests = json.loads(json.dumps(requests).replace('"is_error": true', '"is_error": false'))
    assert run.requests == requests


def test_middleware_runs_again_after_a_kill(practice_model: PracticeModel, tmp_path: Path):
    """A turn is killed in its second tool: agent and chat middleware run again, finished calls do not."""
    model, ledger = practice_model, tmp_path / "ledger"
    [client] = [client for client, point in PAIRS if point == "all-middleware"][:1]
    name = name_of("all-middleware", client)
    ledger.write_text("")
    model.reset()
    lives = Lives(tmp_path / "data", None, app=APP, MODEL_URL=model.url.removesuffix("/v1"), LEDGER=str(ledger))
    try:
        model.plan(*({"calls": [{"name": tool, "arguments": {"word": "plum"}}]} for tool in ("look_up", "linger")))
        body = {"message": TURNS[0], "session_id": "s", "wait_for_response": False}
        turn_id = lives.host.run(name, body).json()["turn_id"]
        wait_until(lambda: "\nlinger plum" in ledger.read_text())
        model.plan({"text": "Page 7."}, times=None)
        before = ledger.read_text()
        call_count = len(model.requests())
        lives.crash()
        view = lives.host.end_of_turn(f"{lives.host.url}/api/agents/{name}/sessions/s/turns/{turn_id}")
        assert view["status"] == "completed", view
        after = ledger.read_text().removeprefix(before)
        counts = {line: after.count(line) for line in ("agent-1 > run", "client-chat-1 > call", "second-chat > call")}
        assert counts == {"agent-1 > run": 1, "client-chat-1 > call": 3, "second-chat > call": 3}
        assert "look_up plum" not in after
        assert after.count("linger plum") == after.count("client-function-1 > linger") == 1
        assert len(model.requests()) == call_count + 1
    finally:
        lives.host.stop()
