"""``durable-agent-host chat``, as a person at a terminal and a script meet them."""

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.durable_agent_host.cli.terminal import COMMAND, CTRL_C, CTRL_D, Terminal, run_piped
from tests.durable_agent_host.conftest import Reborn
from tests.durable_agent_host.test_scenarios_approvals import plan_payments
from tests.kit import AgentHost, PracticeModel, clean_environment
from tests.processes import wait_until

SLOW = {"chunk_characters": 4, "delay_milliseconds": 60}


def test_a_conversation_in_a_terminal_streams_and_continues(lab: AgentHost, model: PracticeModel, ledger):
    """Text is there before the answer is whole, a tool has its lines, and the session's id says how to come back."""
    model.plan(
        {"calls": [{"name": "charge", "arguments": {"amount": 5}}]}, {"text": "Charged, and no more. " * 3, **SLOW}
    )
    session = f"chat-{uuid4().hex[:8]}"
    with Terminal("chat", "--url", lab.url, "Ledger", "--session", session) as chat:
        chat.sees("> ")
        chat.type("Charge five\n")
        chat.sees('→ charge({"amount": 5.0})')
        chat.sees("← success: charged 5.0")
        chat.sees("Charged,")
        assert "> " not in chat.text.partition("Charged,")[2], "the prompt comes back when the answer is whole"
        chat.sees("> ", times=2)
        model.plan({"text": "Yes."})
        chat.type("Was that all?\n")
        chat.sees("Yes.")
        chat.sees("> ", times=3)
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
        assert f"chat Ledger --session {session} --url {lab.url} continues it" in chat.text.replace("\n", "")
    assert ledger.read_text() == "5.0\n"
    assert lab.session("Ledger", session)["message_count"] == 4


def test_commands_and_markdown_in_a_terminal(lab: AgentHost, model: PracticeModel, tmp_path: Path):
    """An answer is rendered; a file goes with the next message; a copy and a new session are sessions of their own."""
    model.plan({"text": "# Result\n\nIt is **seven**.\n\n- a\n- b"}, {"text": "Again."}, {"text": "Anew."})
    (tmp_path / "report.txt").write_text("a report")
    session = f"chat-{uuid4().hex[:8]}"
    with Terminal("chat", "--url", lab.url, "Kept", "--session", session) as chat:
        chat.sees("> ")
        chat.type("/help\n")
        chat.sees("/file PATH")
        chat.type("/nothing\n")
        chat.sees("/nothing is no command")
        chat.type(f"/file {tmp_path}/report.txt\n")
        chat.sees("report.txt (text/plain) is sent with the next message")
        chat.type("Read\n")
        chat.sees(" • b")
        assert "It is seven." in chat.text
        chat.type("/fork\n")
        fork = chat.sees("with 2 entries").rpartition("this is session ")[2].split()[0]
        chat.type("And now?\n")
        chat.sees("Again.")
        chat.type("/new\n")
        chat.sees("begins a new session")
        chat.type("Hello\n")
        chat.sees("Anew.")
        wait_until(lambda: chat.text.endswith("> "))
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
    assert [lab.session("Kept", name)["message_count"] for name in (session, fork)] == [2, 4]
    assert lab.get(f"/agents/Kept/sessions/{session}/files").json()["files"][0]["name"] == "report.txt"


def test_a_closed_pipe_stops_a_command_quietly(lab: AgentHost, model: PracticeModel):
    """As with ``sessions list | head``: no traceback, and the status of a closed pipe, whatever the command."""
    model.plan({"text": "Hello. " * 2_000}, {"text": "Hello. " * 2_000})
    session = f"pipe-{uuid4().hex[:8]}"
    assert lab.run("Ledger", {"message": "hi", "session_id": session}).ok
    commands = (
        ["sessions", "list", "Ledger"],
        ["sessions", "show", "Ledger", session],
        ["sessions", "export", "Ledger", session],
        ["chat", "Ledger"],
    )
    reader, writer = os.pipe()
    os.close(reader)

    def run_command(command: list[str]) -> tuple[int, bytes]:
        options: dict[str, Any] = {"input": b"Hi\n", "stdout": writer, "stderr": subprocess.PIPE, "timeout": 120}
        ran = subprocess.run([*COMMAND, *command, "--url", lab.url], env=clean_environment(), check=False, **options)
        return ran.returncode, ran.stderr

    try:
        with ThreadPoolExecutor(len(commands)) as threads:
            assert list(threads.map(run_command, commands)) == [(141, b"")] * len(commands)
    finally:
        os.close(writer)


def test_ctrl_c_cancels_the_turn_and_not_the_conversation(lab: AgentHost, model: PracticeModel):
    """The turn ends as cancelled with what was said; the next message is answered; Ctrl-C at the prompt leaves."""
    model.plan({"text": "A long answer. " * 40, **SLOW}, {"text": "Here again."})
    session = f"chat-{uuid4().hex[:8]}"
    with Terminal("chat", "--url", lab.url, "Ledger", "--session", session) as chat:
        chat.sees("> ")
        chat.type("Tell me\n")
        chat.sees("A long")
        chat.type(CTRL_C)
        chat.sees("the turn was cancelled")
        chat.sees("> ", times=2)
        chat.type("Still there?\n")
        chat.sees("Here again.")
        chat.sees("> ", times=3)
        chat.type(CTRL_C)
        assert chat.wait_for_exit() == 130
    assert [turn["status"] for turn in lab.session("Ledger", session)["turns"]] == ["cancelled", "completed"]


def test_a_response_continues_after_a_kill_of_the_host(model: PracticeModel, tmp_path):
    """The screen says what happened, and the text after the restart is the whole stored answer."""
    answer = " ".join(f"word{number}" for number in range(60))
    model.plan({"text": answer, **SLOW}, {"text": answer, **SLOW})
    host = Reborn(tmp_path / "data", model, LEDGER=str(tmp_path / "ledger"))
    try:
        with Terminal("chat", "--url", host.url, "Kept", "--session", "killed") as chat:
            chat.sees("> ")
            chat.type("Count\n")
            chat.sees("word5 ")
            host.crash()
            chat.sees("the connection to the host is lost")
            chat.sees("the host is back", seconds=60)
            chat.sees("word59", seconds=60)
            chat.sees("> ", times=2)
            screen = chat.text.rpartition("had begun to say]\n")[2]
            assert answer in " ".join(screen.split()), screen
            chat.type(CTRL_D)
            assert chat.wait_for_exit() == 0
    finally:
        host.host.stop()


def test_a_call_is_approved_denied_and_edited_at_the_prompt(people: AgentHost, model: PracticeModel, book):
    """The person's words decide what runs, and with which arguments."""
    model.plan(
        plan_payments(1),
        {"text": "First."},
        plan_payments(2),
        {"text": "Second."},
        plan_payments(3),
        {"text": "Third."},
    )
    with Terminal("chat", "--url", people.url, "Payer") as chat:
        chat.sees("> ")
        chat.type("pay one\n")
        chat.sees('pay({"amount": 1.0})')
        chat.sees("Approve?")
        chat.type("maybe\n")
        chat.sees("Approve?", times=2)
        chat.type("y\n")
        chat.sees("First.")
        chat.type("pay two\n")
        chat.sees("Approve?", times=3)
        chat.type("n\n")
        chat.sees("Reason")
        chat.type("too much\n")
        chat.sees("denied")
        chat.sees("Second.")
        chat.type("pay three\n")
        chat.sees("Approve?", times=4)
        chat.type("e\n")
        chat.type('{"amount": 33}\n')
        chat.sees("Third.")
        chat.sees("> ", times=4)
        chat.type(CTRL_D)
        assert chat.wait_for_exit() == 0
    assert book.read_text().splitlines() == ["paid 1.0", "paid 33.0"]


def test_a_script_gets_complete_responses_and_an_exit_status(lab: AgentHost):
    """A line is a message and an answer a line; a failed turn is told on stderr and in the status."""
    session = f"chat-{uuid4().hex[:8]}"
    result = run_piped(["chat", "--url", lab.url, "Instant", "--session", session], "one\n\ntwo\n")
    assert (result.returncode, result.stdout, result.stderr) == (0, "1: one\n3: two\n", "")
    failed_result = run_piped(["chat", "--url", lab.url, "Raising"], "break\nwork\n")
    assert (failed_result.returncode, failed_result.stdout.splitlines()) == (1, ["worked, 1 seen"])
    assert "The turn failed" in failed_result.stderr
    assert "cannot do break" in failed_result.stderr


def test_questions_that_a_script_cannot_answer_are_reported(people: AgentHost, model: PracticeModel, book):
    """A call that waits for a person ends a script with status 2 and the way to decide; the turn waits on."""
    model.plan(plan_payments(8), {"text": "Paid."})
    session = f"chat-{uuid4().hex[:8]}"
    command = ["chat", "--url", people.url, "--header", "x-who: ada", "Payer", "--session", session]
    result = run_piped(command, "pay\n")
    assert (result.returncode, result.stdout) == (2, "")
    assert f" --url {people.url} --header 'x-who: ada'" in result.stderr
    assert f"durable-agent-host chat Payer --session {session}" in result.stderr
    path = result.stderr.partition("POST /api")[2].strip().removesuffix("/answers")
    assert people.get(path).json()["status"] == "waiting"
    assert people.post(f"{path}/cancel", b"").status_code == 202


def test_escape_sequences_of_a_model_are_printed_as_text(lab: AgentHost, model: PracticeModel):
    """A terminal is not written to by what a model or a tool says: no colours, no titles, no cleared screens."""
    model.plan({"text": "\x1b[2Jgone\x07 \x9b31m \u202eevil"})
    session = f"chat-{uuid4().hex[:8]}"
    with Terminal("chat", "--url", lab.url, "Kept", "--session", session) as chat:
        chat.sees("> ")
        chat.type("hello\n")
        chat.sees("gone")
        chat.sees("> ", times=2)
        chat.type(CTRL_D)
        chat.wait_for_exit()
        assert b"\x1b[2J" not in chat.raw
        assert "␛[2Jgone␇" in chat.text
        assert "\u202e" not in chat.text
    result = run_piped(["sessions", "show", "--url", lab.url, "Kept", session])
    assert "\\u001b[2Jgone\\u0007" in result.stdout


def test_the_agent_has_to_be_named_where_there_are_several(lab: AgentHost):
    """The error lists them; an unknown one and a host that is not there are a sentence, too."""
    result = run_piped(["chat", "--url", lab.url], "hello\n")
    assert result.returncode == 2
    assert "name one of the host's agents: Instant, Kept" in result.stderr
    unknown = run_piped(["chat", "--url", lab.url, "Nobody"], "hello\n")
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "Nobody" in unknown.stderr
    away = run_piped(["chat", "--url", "http://127.0.0.1:9", "Kept"], "hello\n")
    assert away.returncode == 2
    assert "no host answers" in away.stderr
