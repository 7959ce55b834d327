"""The demo: hold conversations over HTTP, kill the host between turns, and print the size of the stored turns.

The last turn is streamed, and the host is killed in the middle of its response (`streamed_turn`). The demo uses
only public HTTP routes and the command lines of the embedded host and of `tests/stand_ins`, the practice model with
the services of all providers. It compares the items that the model sent with the stored session and with the items
that the next turn replayed; a difference gives status 1.
"""

import argparse
import contextlib
import json
import os
import shutil
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

KILLED = "  (SIGKILL: the host process is killed and restarted on the same data)\n"


@dataclass
class Demo:
    """One run of the demo.

    Args:
        recordings: folder of recorded traffic, or None for the built-in conversations.
        port: the host's port, 0 for a free one.
        provider: whose API is used to call the model; a key of `PROVIDERS`.
        func: use the Core Tools (``func start``) instead of the embedded host.
    """

    recordings: Path | None
    port: int
    provider: str = OPENAI
    func: bool = False
    data: str = field(default_factory=lambda: tempfile.mkdtemp(prefix="durable-agent-demo-"))
    rows: list[tuple[str, ...]] = field(default_factory=list[tuple[str, ...]])
    losses: list[str] = field(default_factory=list[str])

    def start(self) -> None:
        """Start the practice model with the services of all providers, and the embedded host."""
        recording_options = ["--recordings", str(self.recordings)] if self.recordings else []
        self.model = Process.start("tests.stand_ins", ["--port", "0", *recording_options])
        self.control = self.model.url.removesuffix("/v1") + "/practice"
        self.start_host()

    def start_host(self) -> None:
        """Start the embedded host with the provider's function app and the demo's data."""
        provider = PROVIDERS[self.provider]
        arguments = ["start", "--app", provider.app, "--port", str(self.port), "--data", self.data]
        settings = provider.environment(self.model.url.removesuffix("/v1"))
        if self.func:
            sample = json.loads(Path("local.settings.sample.json").read_text(encoding="utf-8"))
            self.host = Process.start_func(self.port, sample["Values"] | settings)
            return
        self.host = Process.start("functions_host", arguments, settings, without=provider.removed_variables)

    def stop(self) -> None:
        """Stop both processes, and delete the data, unless something was lost."""
        for name in ("host", "model"):
            if process := getattr(self, name, None):
                process.stop()
        if not self.losses:
            shutil.rmtree(self.data, ignore_errors=True)

    def hold_conversation(self, conversation: Conversation) -> None:
        """Hold one conversation, kill the host after its first turn, and check the last response."""
        print(f"── {conversation.agent} " + "─" * (70 - len(conversation.agent)))
        if conversation.recordings:
            print(f"  (the model replays {', '.join(conversation.recordings)})")
            steps = [{"recording": name} for name in conversation.recordings]
            post_json(f"{self.control}/plans", {"when": {"user_text": conversation.messages[0]}, "steps": steps})
        session_id = None
        response_text = ""
        first_request_index = len(self.requests())
        for index, message in enumerate(conversation.messages):
            if index == 1:
                self.host.kill()
                print(KILLED)
                self.start_host()
            session_id, response_text = self.send_message(conversation.agent, message, session_id, first_request_index)
        for expected_text in conversation.expected_texts:
            if expected_text not in response_text:
                self.losses.append(
                    f"{conversation.agent}: the last response does not contain {expected_text!r}: {response_text!r}"
                )

    def stream_turn(self) -> None:
        """Stream one turn and kill the host in the middle of its response."""

        def kill_and_restart() -> str:
            self.host.kill()
            self.start_host()
            return self.host.url

        model_calls = PROVIDERS[self.provider].stream_model_calls
        self.losses += show_stream(self.control, self.host.url, kill_and_restart, model_calls=model_calls)

    def send_message(
        self, agent: str, message: str, session_id: str | None, first_request_index: int
    ) -> tuple[str | None, str]:
        """Send one message, print the response, and check the stored session.

        Args:
            agent: name of the agent.
            message: text of the user.
            session_id: None for a new session.
            first_request_index: number of model requests before the session started.
        """
        print(f"  you    {message}")
        request_count = len(self.requests())
        query = f"?thread_id={session_id}" if session_id else ""
        start_time = time.perf_counter()
        status, headers, body = post(f"{self.host.url}/api/agents/{agent}/run{query}", message)
        milliseconds = (time.perf_counter() - start_time) * 1000
        print("  agent  " + body.strip().replace("\n", "\n         ") + "\n")
        session_id = headers.get("x-ms-thread-id")
        if status != 200 or not session_id:  # noqa: PLR2004
            self.losses.append(f"{agent}: {message!r} failed with {status}: {body}")
            return session_id, body
        session = get_json(f"{self.host.url}/api/agents/{agent}/sessions/{session_id}")
        requests = self.requests()
        self.losses += check_stored(session, requests[request_count:], has_own_ids=self.provider != OPENAI)
        self.losses += check_replayed(agent, requests[first_request_index:request_count], requests[request_count:])
        self.losses += check_continued(agent, requests[request_count:], is_first=not query)
        self.add_row(agent, session["turns"][-1]["stats"], milliseconds)
        return session_id, body

    def requests(self) -> list[dict[str, Any]]:
        """Return the requests that the model received."""
        return get_json(f"{self.control}/requests")

    def add_row(self, agent: str, stats: dict[str, Any], milliseconds: float) -> None:
        """Add a turn to the table."""
        streamed_bytes = stats["bytes_streamed"]
        stored_bytes = stats["bytes_stored"]
        self.rows.append(
            (
                f"{len(self.rows) + 1}",
                agent,
                f"{stats['chunks_streamed']}",
                f"{stats['contents_stored']}",
                f"{streamed_bytes:,}",
                f"{stored_bytes:,}",
                f"{stored_bytes / streamed_bytes:.0%}" if streamed_bytes else "-",
                f"{milliseconds - stats['agent_milliseconds']:.1f}",
            )
        )

    def print_table(self) -> None:
        """Print the size and the time of every turn."""
        names = ("turn", "agent", "chunks", "contents", "bytes streamed", "bytes stored", "ratio", "host ms")
        widths = [max(len(row[index]) for row in (names, *self.rows)) for index in range(len(names))]
        for row in (names, *self.rows):
            print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
        print("\nchunks: updates streamed by model and tools; contents: stored contents; bytes stored: JSON of")
        print("request and response, before compression; host ms: from request to response, minus the time in the")
        print("agent (model, tools, client).")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo.

    Args:
        arguments: arguments of the command line, without the program name.

    Returns:
        0 if nothing was lost, 1 if something was, 2 if a process did not start, 130 after Ctrl-C.
    """
    parser = argparse.ArgumentParser(
        prog="./scripts/demo", description="Durable conversations, with a host that is killed."
    )
    parser.add_argument(
        "--recordings", type=Path, metavar="DIR", help="replay recorded provider traffic of this folder"
    )
    parser.add_argument(
        "--provider", choices=list(PROVIDERS), default=OPENAI, help=f"whose API to use (default: {OPENAI})"
    )
    parser.add_argument("--serve", action="store_true", help="leave model and host running afterwards")
    parser.add_argument("--func", action="store_true", help="run on func start; see ./scripts/try-func")
    parser.add_argument("--port", type=int, default=0, help="port of the host (default: a free one)")
    options = parser.parse_args(arguments)
    if options.recordings and options.provider != OPENAI:
        parser.error(f"--recordings has traffic of {OPENAI} only: omit --provider")
    if options.func and options.provider != OPENAI:
        parser.error(f"--func runs the app of {OPENAI} only: omit --provider")
    demo = Demo(options.recordings and options.recordings.resolve(), options.port, options.provider, options.func)
    signal.signal(signal.SIGTERM, _exit_on_signal)
    try:
        demo.start()
        print(f"practice model {demo.model.url}   host {demo.host.url}   data {demo.data}\n")
        for conversation in (CONVERSATIONS[:1] + RECORDED) if options.recordings else CONVERSATIONS:
            if conversation.agent in PROVIDERS[demo.provider].agents:
                demo.hold_conversation(conversation)
        demo.stream_turn()
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
        return 128 + signal.SIGINT
    finally:
        demo.stop()
    return 1 if demo.losses else 0


def _exit_on_signal(signal_number: int, _frame: object) -> None:
    sys.exit(128 + signal_number)


def serve(demo: Demo) -> None:
    """Print the URLs and wait for the host's end, or Ctrl-C."""
    print(f"\nStill running (stop with Ctrl-C):\n  agents  {demo.host.url}/api/agents")
    print(f"  inspect {demo.host.url}/api/inspector")
    print(f"  try     curl {demo.host.url}/api/agents/BugRepro/run -d \"Please echo 'hello'\"")
    print(f"  model   {demo.control}/requests", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        os.waitpid(demo.host.pid, 0)


if __name__ == "__main__":
    sys.exit(main())
