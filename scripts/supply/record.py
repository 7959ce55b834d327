"""Records the README's animation: a streamed answer whose host is killed, and which goes on.

Above, `durable-agent-host chat` runs in a terminal of its own; below is what starts and kills its host. All output is
that of the programs, with their times.
"""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

COLUMNS, CHAT_ROWS, ROWS = 88, 14, 24
MODEL = "http://127.0.0.1:8099"
APP = '''
from agent_framework import Agent
from durable_agent_host import DurableAgentApp, durable_tool
from durable_agent_host.providers.openai import chat_client_from_environment


@durable_tool(in_doubt="ask")
def book(room: str) -> str:
    """Book a room."""
    with open("bookings.txt", "a") as file:
        print("room", room, file=file)
    return f"Room {room} is booked."


app = DurableAgentApp(agents=[Agent(chat_client_from_environment(), "Run the hotel.", name="Desk", tools=[book])])
'''
ANSWER = (
    "Room 7 is booked, with a view of the harbour. The ferry leaves at nine from the pier behind the old "
    "lighthouse; breakfast is from seven, and the bakery next door is better than ours. Ask for the key at the desk."
)
STREAMED = {"text": ANSWER, "chunk_characters": 5, "delay_milliseconds": 150}
PLAN = {
    "when": {"user_text": "Book"},
    "steps": [{"calls": [{"name": "book", "arguments": {"room": "7"}}]}, STREAMED, STREAMED],
}


class Recording:
    """What a terminal shows, with times: an asciicast."""

    def __init__(self, chat_fd: int) -> None:
        """Begin with an empty terminal, whose upper part shows a chat."""
        self._chat_fd = chat_fd
        self._began_at = time.monotonic()
        self._row = CHAT_ROWS + 1
        self.events: list[tuple[float, str, str]] = []
        self.show("─" * COLUMNS, colour=90)

    def write(self, text: str) -> None:
        self.events.append((time.monotonic() - self._began_at, "o", text))

    def show(self, line: str, colour: int = 0) -> None:
        """Write a line below the chat."""
        self.write(f"\x1b7\x1b[{self._row};1H\x1b[{colour}m{line[:COLUMNS]}\x1b[0m\x1b8")
        self._row += 1

    def watch_chat(self, seconds: float, until: str = "") -> None:
        """Record what the chat prints for some seconds, or until it has printed a text."""
        end, seen = time.monotonic() + seconds, ""
        while time.monotonic() < end and not (until and until in seen):
            if select.select([self._chat_fd], [], [], 0.05)[0]:
                seen += (text := os.read(self._chat_fd, 65536).decode(errors="replace"))
                self.write(text)

    def type_message(self, message: str) -> None:
        for character in message:
            os.write(self._chat_fd, character.encode())
            self.watch_chat(0.06)
        os.write(self._chat_fd, b"\r")


def _start_host(folder: Path, recording: Recording | None = None) -> subprocess.Popen[str]:
    if recording:
        recording.show("$ durable-agent-host start")
    command = [sys.executable, "-m", "durable_agent_host", "start"]
    host = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    for line in host.stdout or ():
        if "ready" in line:
            if recording:
                recording.show(line.rstrip().partition(" (")[0], colour=32)
            return host
    sys.exit("The host did not start: is port 7071 free?")


def _chat(folder: Path, arguments: Sequence[str]) -> int:
    process, terminal = pty.fork()
    if not process:
        os.chdir(folder)
        os.environ |= {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS), "LINES": str(CHAT_ROWS)}
        os.execv(sys.executable, [sys.executable, "-m", "durable_agent_host", "chat", *arguments])
    return terminal


def record(cast: Path, folder: Path) -> None:
    """Play the story, and write it as an asciicast."""
    (folder / "function_app.py").write_text(APP)
    (folder / "host.json").write_text((Path(__file__).parents[2] / "host.json").read_text())
    os.environ |= {"OPENAI_BASE_URL": f"{MODEL}/v1", "OPENAI_API_KEY": "practice", "OPENAI_MODEL": "practice"}
    model = subprocess.Popen([sys.executable, "-m", "practice_model", "--port", MODEL[-4:]], stdout=subprocess.PIPE)
    assert model.stdout
    model.stdout.readline()
    host = _start_host(folder)
    try:
        urllib.request.urlopen(f"{MODEL}/practice/plans", json.dumps(PLAN).encode()).close()
        recording = Recording(_chat(folder, ["Desk"]))
        recording.show("$ durable-agent-host start")
        recording.show("Functions host ready: http://127.0.0.1:7071", colour=32)
        recording.write("$ durable-agent-host chat\r\n")
        recording.watch_chat(30, until="> ")
        recording.type_message("Book room 7, and say how I get to the islands.")
        recording.watch_chat(30, until="ferry")
        host.send_signal(signal.SIGKILL)
        recording.show(f"$ kill -9 {host.pid}", colour=31)
        recording.watch_chat(2)
        host = _start_host(folder, recording)
        recording.watch_chat(30, until="at the desk.")
        recording.watch_chat(1.5)
        recording.show("$ cat bookings.txt")
        recording.show((folder / "bookings.txt").read_text().strip(), colour=32)
        recording.watch_chat(4)
    finally:
        host.kill()
        model.kill()
    header = {"version": 2, "width": COLUMNS, "height": ROWS}
    cast.write_text("\n".join(map(json.dumps, (header, *recording.events))))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        record(Path(sys.argv[1]), Path(temporary))
