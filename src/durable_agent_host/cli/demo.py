"""The demo: conversations over HTTP with a host that is killed between two turns, and a table of what was stored.

At the end a turn is streamed, and the host is killed in the middle of its answer (`demo_stream`). The demo only uses
the public HTTP routes, and the command lines of the practice model and of the embedded host. What the provider gave out
is read back from the practice model, and held against what the session has stored and what the next turn's request
replayed; a difference ends the demo with status 1.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from durable_agent_host.cli.checks import check_continued, check_replayed, check_stored
from durable_agent_host.cli.demo_stream import show_stream
from durable_agent_host.cli.processes import Process, StartFailedError, get_json, post, post_json

KILLED = "  (SIGKILL: the host process is killed and started again on the same data)\n"


@dataclass(frozen=True)
class Conversation:
    """What is said to one agent.

    Attributes:
        agent: the agent's name in function_app.py.
        messages: what the user says, turn by turn.
        expected: a text that the last answer has to have, because the model can only know it from earlier turns.
        recordings: recorded streams that the first turn's model calls play, when a folder is given.
    """

    agent: str
    messages: tuple[str, ...]
    expected: tuple[str, ...] = ()
    recordings: tuple[str, ...] = ()


CONVERSATIONS = (
    Conversation(
        "BugRepro",
        ("Please echo 'hello world'", "Now echo 'goodbye'", "What did I ask you to echo so far?"),
        expected=("hello world", "goodbye"),
    ),
    Conversation(
        "Arithmetic",
        (
            (
                'Call calculator with {"a": 12, "b": 7, "op": "add"}, calculator with {"a": 19, "b": 3, "op": '
                '"multiply"} and calculator with {"a": 57, "b": 10, "op": "multiply"}'
            ),
            "Which results did you get before?",
        ),
        expected=("19", "57", "570"),
    ),
    Conversation(
        "Analyst",
        ("Analyse the temperatures of the three weather stations", "Which readings did you use before?"),
        expected=("Analyse the temperatures",),
    ),
)

RECORDED = (
    Conversation(
        "Arithmetic",
        ("Add 12 and 7, multiply by 3, then by 10", "Which results did you get before?"),
        expected=("570",),
        recordings=tuple(f"multiturn/four-turns-encrypted-stream/0{n}" for n in (1, 2, 3, 4)),
    ),
    Conversation(
        "Analyst",
        ("Simulate rolling two dice 10,000 times", "Which numbers did you use before?"),
        expected=("Simulate rolling two dice",),
        recordings=("ci-three-calls-logs-citation",),
    ),
    Conversation(
        "Analyst",
        ("Plot the data", "What did the plot show before?"),
        expected=("Plot the data",),
        recordings=("ci-image-output-encrypted-reasoning",),
    ),
)


@dataclass
class Demo:
    """One run of the demo.

    Args:
        recordings: a folder of recorded traffic, or None for conversations of our own making.
        port: for the host, 0 for a free one.
    """

    recordings: Path | None
    port: int
    data: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="durable-agent-demo-"))
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    losses: list[str] = field(default_factory=list[str])

    def start(self) -> None:
        """Start the practice model and the embedded host."""
        more = ["--recordings", str(self.recordings)] if self.recordings else []
        self.model = Process.start("practice_model", ["--port", "0", *more])
        self.control = self.model.url.removesuffix("/v1") + "/practice"
        self.start_host()

    def start_host(self) -> None:
        """Start the embedded host with this project's function app, on the demo's data."""
        settings = {"OPENAI_API_KEY": "practice", "OPENAI_BASE_URL": self.model.url, "OPENAI_MODEL": "practice"}
        arguments = ["start", "--app", ".", "--port", str(self.port), "--data", self.data]
        self.host = Process.start("functions_host", arguments, settings, without=("AZURE_OPENAI_ENDPOINT",))

    def stop(self) -> None:
        """Stop both processes."""
        for name in ("host", "model"):
            if process := getattr(self, name, None):
                process.stop()

    def hold(self, conversation: Conversation) -> None:
        """Hold one conversation, with a kill after its first turn, and check what became of it."""
        print(f"── {conversation.agent} " + "─" * (70 - len(conversation.agent)))
        if conversation.recordings:
            print(f"  (the model plays {', '.join(conversation.recordings)})")
            steps = [{"recording": name} for name in conversation.recordings]
            post_json(f"{self.control}/plans", {"when": {"user_text": conversation.messages[0]}, "steps": steps})
        session_id, answer = None, ""
        for number, message in enumerate(conversation.messages):
            if number == 1:
                self.host.kill()
                print(KILLED)
                self.start_host()
            session_id, answer = self.say(conversation.agent, message, session_id)
        for expected in conversation.expected:
            if expected not in answer:
                self.losses.append(f"{conversation.agent}: the last answer does not know of {expected!r}: {answer!r}")

    def stream(self) -> None:
        """Stream one turn, with a kill in the middle of its answer."""

        def kill_and_restart() -> str:
            self.host.kill()
            self.start_host()
            return self.host.url

        self.losses += show_stream(self.control, self.host.url, kill_and_restart)

    def say(self, agent: str, message: str, session_id: str | None) -> tuple[str | None, str]:
        """Say one message, print the answer, and check what was stored."""
        print(f"  you    {message}")
        seen = len(self.requests())
        query = f"?thread_id={session_id}" if session_id else ""
        started = time.perf_counter()
        status, headers, body = post(f"{self.host.url}/api/agents/{agent}/run{query}", message)
        milliseconds = (time.perf_counter() - started) * 1000
        print("  agent  " + body.strip().replace("\n", "\n         ") + "\n")
        session_id = headers.get("x-ms-thread-id")
        if status != 200 or not session_id:  # noqa: PLR2004
            self.losses.append(f"{agent}: {message!r} was answered with {status}: {body}")
            return session_id, body
        session = get_json(f"{self.host.url}/api/agents/{agent}/sessions/{session_id}")
        requests = self.requests()
        self.losses += check_stored(session, requests[seen:])
        self.losses += check_replayed(agent, requests[:seen], requests[seen:])
        self.losses += check_continued(agent, requests[seen:], is_first=not query)
        self.add_row(agent, session["turns"][-1]["stats"], milliseconds)
        return session_id, body

    def requests(self) -> list[dict[str, Any]]:
        """Read what the model has received."""
        return get_json(f"{self.control}/requests")

    def add_row(self, agent: str, stats: dict[str, Any], milliseconds: float) -> None:
        """Add a turn to the table."""
        streamed, stored = stats["bytes_streamed"], stats["bytes_stored"]
        self.rows.append(
            (
                f"{len(self.rows) + 1}",
                agent,
                f"{stats['chunks_streamed']}",
                f"{stats['contents_stored']}",
                f"{streamed:,}",
                f"{stored:,}",
                f"{stored / streamed:.0%}" if streamed else "-",
                f"{milliseconds - stats['agent_milliseconds']:.1f}",
            )
        )

    def print_table(self) -> None:
        """Print what every turn weighed."""
        names = ("turn", "agent", "chunks", "contents", "bytes streamed", "bytes stored", "ratio", "host ms")
        widths = [max(len(row[n]) for row in (names, *self.rows)) for n in range(len(names))]
        for row in (names, *self.rows):
            print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        print(
            "\nchunks: updates streamed by model and tools; contents: what is stored of them; bytes stored count both"
        )
        print(
            "messages of the turn; host ms: request to answer, less the time inside the agent (model, tools, client)."
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: of the command line, without the program's name.

    Returns:
        0 when nothing was lost, 1 when something was, 2 when it could not begin.
    """
    parser = argparse.ArgumentParser(prog="./scripts/demo", description="Durable conversations, with a host that dies.")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="play recorded provider traffic of this folder")
    parser.add_argument("--serve", action="store_true", help="leave model and host running afterwards")
    parser.add_argument("--port", type=int, default=0, help="of the host (default: a free one)")
    options = parser.parse_args(arguments)
    demo = Demo(options.recordings and options.recordings.resolve(), options.port)
    signal.signal(signal.SIGTERM, _end)
    try:
        demo.start()
        print(f"practice model {demo.model.url}   host {demo.host.url}   data {demo.data}\n")
        for conversation in (CONVERSATIONS[:1] + RECORDED) if options.recordings else CONVERSATIONS:
            demo.hold(conversation)
        demo.stream()
        demo.print_table()
        for loss in demo.losses:
            print(f"LOST: {loss}")
        print("\nNothing was lost." if not demo.losses else f"\n{len(demo.losses)} losses.")
        if options.serve:
            serve(demo)
    except StartFailedError as error:
        print(error, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print()
    finally:
        demo.stop()
    return 1 if demo.losses else 0


def _end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def serve(demo: Demo) -> None:
    """Print the URLs and wait for Ctrl-C."""
    print(f"\nStill running (Ctrl-C ends it):\n  agents  {demo.host.url}/api/agents")
    print(f"  try     curl {demo.host.url}/api/agents/BugRepro/run -d \"Please echo 'hello'\"")
    print(f"  model   {demo.control}/requests", flush=True)
    os.waitpid(demo.host.pid, 0)


if __name__ == "__main__":
    sys.exit(main())
