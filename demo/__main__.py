"""The demo: hold conversations over HTTP, kill the host between turns, and print what was stored.

The last turn is streamed, and the host is killed in the middle of its answer (`streamed_turn`). The demo uses public
HTTP routes and the command lines of the practice model and the embedded host, nothing else. It compares the items that
the practice model sent with what the session stored and with what the next turn replayed; a difference gives status 1.
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

from demo.checks import check_continued, check_replayed, check_stored
from demo.conversations import CONVERSATIONS, RECORDED, Conversation
from demo.processes import Process, StartFailedError, get_json, post, post_json
from demo.providers import OPENAI, PROVIDERS
from demo.streamed_turn import show_stream

KILLED = "  (SIGKILL: the host process is killed and started again on the same data)\n"


@dataclass
class Demo:
    """One run of the demo.

    Args:
        recordings: folder of recorded traffic, or None for the built-in conversations.
        port: the host's, 0 for a free one.
        provider: by whose wire the model is asked; a key of `PROVIDERS`.
    """

    recordings: Path | None
    port: int
    provider: str = OPENAI
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
        """Start the embedded host with the provider's function app and the demo's data."""
        held_by = PROVIDERS[self.provider]
        arguments = ["start", "--app", held_by.app, "--port", str(self.port), "--data", self.data]
        settings = held_by.environment(self.model.url.removesuffix("/v1"))
        self.host = Process.start("functions_host", arguments, settings, without=held_by.without)

    def stop(self) -> None:
        """Stop both processes."""
        for name in ("host", "model"):
            if process := getattr(self, name, None):
                process.stop()

    def hold(self, conversation: Conversation) -> None:
        """Hold one conversation, kill the host after its first turn, and check the last answer."""
        print(f"── {conversation.agent} " + "─" * (70 - len(conversation.agent)))
        if conversation.recordings:
            print(f"  (the model plays {', '.join(conversation.recordings)})")
            steps = [{"recording": name} for name in conversation.recordings]
            post_json(f"{self.control}/plans", {"when": {"user_text": conversation.messages[0]}, "steps": steps})
        session_id, answer, begun = None, "", len(self.requests())
        for number, message in enumerate(conversation.messages):
            if number == 1:
                self.host.kill()
                print(KILLED)
                self.start_host()
            session_id, answer = self.say(conversation.agent, message, session_id, begun)
        for expected in conversation.expected:
            if expected not in answer:
                self.losses.append(f"{conversation.agent}: the last answer does not know of {expected!r}: {answer!r}")

    def stream(self) -> None:
        """Stream one turn and kill the host in the middle of its answer."""

        def kill_and_restart() -> str:
            self.host.kill()
            self.start_host()
            return self.host.url

        calls = PROVIDERS[self.provider].calls_of_stream
        self.losses += show_stream(self.control, self.host.url, kill_and_restart, model_calls=calls)

    def say(self, agent: str, message: str, session_id: str | None, begun: int) -> tuple[str | None, str]:
        """Send one message, print the answer, and check what was stored.

        Args:
            agent: name.
            message: of the user.
            session_id: None for a new session.
            begun: how many requests the model had received before the session began.
        """
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
        self.losses += check_stored(session, requests[seen:], has_own_ids=self.provider != OPENAI)
        self.losses += check_replayed(agent, requests[begun:seen], requests[seen:])
        self.losses += check_continued(agent, requests[seen:], is_first=not query)
        self.add_row(agent, session["turns"][-1]["stats"], milliseconds)
        return session_id, body

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests that the model received."""
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
        """Print the size and the time of every turn."""
        names = ("turn", "agent", "chunks", "contents", "bytes streamed", "bytes stored", "ratio", "host ms")
        widths = [max(len(row[n]) for row in (names, *self.rows)) for n in range(len(names))]
        for row in (names, *self.rows):
            print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        print("\nchunks: updates streamed by model and tools; contents: what is stored of them; bytes stored: JSON of")
        print("request and response, before it is compressed; host ms: request to answer, less the time inside the")
        print("agent (model, tools, client).")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: of the command line, without the program's name.

    Returns:
        0 when nothing was lost, 1 when something was, 2 when a process did not start.
    """
    parser = argparse.ArgumentParser(prog="./scripts/demo", description="Durable conversations, with a host that dies.")
    parser.add_argument("--recordings", type=Path, metavar="DIR", help="play recorded provider traffic of this folder")
    parser.add_argument(
        "--provider", choices=list(PROVIDERS), default=OPENAI, help=f"whose API to ask by (default: {OPENAI})"
    )
    parser.add_argument("--serve", action="store_true", help="leave model and host running afterwards")
    parser.add_argument("--port", type=int, default=0, help="of the host (default: a free one)")
    options = parser.parse_args(arguments)
    if options.recordings and options.provider != OPENAI:
        parser.error(f"--recordings plays traffic of {OPENAI}: leave --provider out")
    demo = Demo(options.recordings and options.recordings.resolve(), options.port, options.provider)
    signal.signal(signal.SIGTERM, _end)
    try:
        demo.start()
        print(f"practice model {demo.model.url}   host {demo.host.url}   data {demo.data}\n")
        for conversation in (CONVERSATIONS[:1] + RECORDED) if options.recordings else CONVERSATIONS:
            if conversation.agent in PROVIDERS[demo.provider].agents:
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
    print(f"  look    {demo.host.url}/api/inspector")
    print(f"  try     curl {demo.host.url}/api/agents/BugRepro/run -d \"Please echo 'hello'\"")
    print(f"  model   {demo.control}/requests", flush=True)
    os.waitpid(demo.host.pid, 0)


if __name__ == "__main__":
    sys.exit(main())
