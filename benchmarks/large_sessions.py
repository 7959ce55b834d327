"""Measure a session of 100 MB: `.venv/bin/python benchmarks/large_sessions.py [--results N]`.

A document of text, an image of seven megabytes and nine tool results of ten megabytes is imported, read, continued,
verified, forked, exported and deleted, on the embedded host with the practice model. It is continued by three agents:
``Sent`` sends all of it on each turn, ``Window`` the newest 40 messages, and of ``Stored`` the model's service keeps
the conversation, so that its first turn alone sends all. A table gives for each step the seconds from
request to answer, the processor seconds of the host and of the practice model, the host's memory after the step, and
at most during it. What a turn has sent is given back a moment after its answer, so a step still has some of
the one before.
"""

import argparse
import base64
import json
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turn_overhead import connected, model_settings, print_table, send

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from beside_bare import ANSWER, MESSAGE, plan_answers  # noqa: E402

from demo.processes import Process  # noqa: E402

MEGABYTE = 1024 * 1024
SMALL_TURNS = 200
SECONDS = 600.0
NAMES = ("agent", "step", "answer", "seconds", "host cpu s", "model cpu s", "memory MB", "most MB")


def document(results: int) -> bytes:
    """Give the conversation as its import takes it: large turns, and small ones after them."""
    picture = base64.b64encode(random.Random(7).randbytes(7 * MEGABYTE)).decode()
    image = {"$type": "data", "uri": f"data:image/png;base64,{picture}", "mediaType": "image/png"}
    entries = [*_turn("image", [{**_text("What is this?")}, image], _said("A picture."))]
    for number in range(results):
        call = {"$type": "functionCall", "callId": f"call_{number}", "name": "echo", "arguments": {"text": "x"}}
        text = f"result {number}: " + 'a line of a "log", é\n' * (10 * MEGABYTE // 22)
        result = {"$type": "functionResult", "callId": f"call_{number}", "result": text}
        answer = (("assistant", [call]), ("tool", [result]), *_said(f"That was log {number}."))
        entries += _turn(f"large-{number}", [_text(f"Read log {number}.")], answer)
    for number in range(SMALL_TURNS):
        entries += _turn(f"small-{number}", [_text(f"{number} {MESSAGE}")], _said(ANSWER))
    return json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": entries}}).encode()


Messages = Sequence[tuple[str, list[Any]]]


def _text(text: str) -> dict[str, Any]:
    return {"$type": "text", "text": text}


def _said(text: str) -> Messages:
    return [("assistant", [_text(text)])]


def _turn(name: str, asked: list[Any], answer: Messages) -> Iterator[dict[str, Any]]:
    for kind, messages in (("request", [("user", asked)]), ("response", answer)):
        told = [{"role": role, "contents": contents} for role, contents in messages]
        yield {"$type": kind, "correlationId": name, "createdAt": "2026-01-01T00:00:00+00:00", "messages": told}


@dataclass(frozen=True)
class Watched:
    """A process whose memory and processor time are read."""

    pid: int

    def megabytes(self, what: str) -> float:
        """Give ``VmRSS``, the memory now, or ``VmHWM``, the most since `forget_most`."""
        found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        return int(found[1]) / 1000 if found else 0.0

    def forget_most(self) -> None:
        """Begin anew to watch for the most memory."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def cpu_seconds(self) -> float:
        """Give the processor time that it has taken."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(int(ticks) for ticks in fields[11:13]) / os.sysconf("SC_CLK_TCK")


class LargeSessions:
    """The app, its model, and what is done with a large session of each agent."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._folder = folder
        self._model = Process.start("practice_model", ["--port", "0"])
        stack.callback(self._model.stop)
        plan_answers(self._model)
        self._host = self._start()
        stack.callback(self._stop)
        self.lines: list[tuple[str, ...]] = []

    def _start(self) -> Process:
        arguments = ["start", "--app", str(HERE / "apps/long_ours"), "--port", "0", "--data", str(self._folder)]
        return Process.start(
            "functions_host", arguments, model_settings(self._model), without=("AZURE_OPENAI_ENDPOINT",)
        )

    def _stop(self) -> None:
        self._host.stop()  # the newest one

    def measure(self, agent: str, content: bytes) -> None:
        """Do everything with a session of one agent."""
        sessions = f"/api/agents/{agent}/sessions"
        self._ask(agent, "other")
        self._step(agent, "import", lambda: self._send("POST", f"{sessions}/large/import", content))
        self._step(agent, "read the newest", lambda: self._send("GET", f"{sessions}/large"))
        self._step(agent, "read large turns", lambda: self._send("GET", f"{sessions}/large?cursor=20&limit=10"))
        self._step(agent, "continue", lambda: self._ask(agent, "large"))
        self._step(agent, "continue again", lambda: self._ask(agent, "large"))
        self._host.kill()
        self._host = self._start()
        self._ask(agent, "other")
        self._step(agent, "continue after a kill", lambda: self._ask(agent, "large"))
        self._step(agent, "verify", lambda: self._send("GET", f"{sessions}/large/verify"))
        self._step(agent, "fork", lambda: self._send("POST", f"{sessions}/large/fork", b'{"session_id": "copy"}'))
        self._step(agent, "export", lambda: self._send("GET", f"{sessions}/copy/export"))
        self._step(agent, "delete", lambda: self._send("DELETE", f"{sessions}/large"))
        self._step(agent, "delete the fork", lambda: self._send("DELETE", f"{sessions}/copy"))

    def _ask(self, agent: str, session: str) -> int:
        return self._send(
            "POST", f"/api/agents/{agent}/run?thread_id={session}", json.dumps({"message": MESSAGE}).encode()
        )

    def _send(self, method: str, path: str, body: bytes | None = None) -> int:
        with connected(self._host.url, SECONDS) as host:
            headers = {"content-type": "application/json"} if body is not None else {}
            host.request(method, path, body, headers)
            answer = host.getresponse()
            content = answer.read()
        if answer.status >= 400:
            raise SystemExit(f"{method} {path} was answered with {answer.status}: {content[:500]!r}")
        return len(content)

    def _step(self, agent: str, name: str, do: Callable[[], int]) -> None:
        host, model = Watched(self._host.pid), Watched(self._model.pid)
        host.forget_most()
        began, host_cpu, model_cpu = time.perf_counter(), host.cpu_seconds(), model.cpu_seconds()
        answered = do()
        spent = time.perf_counter() - began
        line = (
            *(agent, name, f"{answered / 1e6:,.1f} MB", f"{spent:,.1f}", f"{host.cpu_seconds() - host_cpu:,.1f}"),
            *(f"{model.cpu_seconds() - model_cpu:,.1f}", f"{host.megabytes('VmRSS'):,.0f}"),
            f"{host.megabytes('VmHWM'):,.0f}",
        )
        print(" ".join(line), file=sys.stderr, flush=True)
        self.lines.append(line)
        with connected(self._model.url) as connection:
            send(connection, "DELETE", "/practice/requests")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the session by each agent and print the table; returns the exit status."""
    parser = argparse.ArgumentParser(description="What is done with a session of 100 MB, and what it takes.")
    parser.add_argument("--results", type=int, default=9, help="tool results of 10 MB (default: %(default)s)")
    options = parser.parse_args(arguments)
    content = document(options.results)
    with tempfile.TemporaryDirectory(prefix="large-sessions-") as folder, ExitStack() as stack:
        sessions = LargeSessions(stack, Path(folder))
        for agent in ("Sent", "Window", "Stored"):
            sessions.measure(agent, content)
    print_table(NAMES, sessions.lines)
    print(f"\nA document of {len(content) / 1e6:,.0f} MB. Load of this machine {os.getloadavg()[0]:.1f}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
