"""The command ``durable-agent-host chat``: a conversation with an agent of a running host, in the terminal."""

import base64
import importlib
import json
import mimetypes
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import click
from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown
from rich.text import Text

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.cli.host_command import (
    INTERRUPTED,
    OK,
    PROBLEMS_FOUND,
    CommandError,
    RunningHost,
    host_command,
    printable,
)
from durable_agent_host.errors import AgentClientError
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.turn import turn_events

_PROMPT: Final = "> "
_QUESTION: Final = "Approve? [y]es, [n]o, [e]dit the arguments: "
_SHORT: Final = 200
_HELP: Final = """/new         begins a new session
/fork        continues in a copy of the session, which stays as it is
/file PATH   sends a file with the next message
Ctrl-C       cancels the running turn
Ctrl-D       ends the command"""


@host_command("chat", epilog="Exit status: 0, 1 a turn failed, 2 the command could not be carried out, 130 Ctrl-C.")
@click.option("--session", default="", help="the session to continue or to begin (default: a new one)")
@click.argument("agent", required=False)
def chat(host: RunningHost, session: str, agent: str | None) -> int:
    """Talk to an agent of a running host.

    AGENT may be left out when there is one. Answers stream; a tool that needs approval asks for it. /help lists the
    commands. Ctrl-C cancels the running turn, a second one leaves it running; Ctrl-D ends. When the host dies, the
    answer continues where it is back. Without a terminal, each line of standard input is a message, and answers are
    written when they are complete.
    """
    return _Chat(host, agent or _only_agent(host), session).hold()


def _only_agent(host: RunningHost) -> str:
    names = host.run(host.client.agents())
    if len(names) != 1:
        raise CommandError(f"name one of the host's agents: {', '.join(names)}" if names else "the host has no agent")
    return names[0]


class _LeftError(Exception):
    """The user quits."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Chat:
    """One run of the command."""

    def __init__(self, host: RunningHost, agent: str, session: str) -> None:
        self._host = host
        self._agent = agent
        self._session = session
        self._asks = sys.stdin.isatty()
        self._screen = _Screen()
        self._files: list[Mapping[str, Any]] = []
        self._status = OK

    def hold(self) -> int:
        """Read messages until there are no more."""
        try:
            self._catch_up()
            for text in self._messages():
                if self._asks and text.startswith("/"):
                    self._obey(text)
                    continue
                message = [{"type": "text", "text": text}, *self._files] if self._files else text
                self._files = []
                session_id = self._session or None
                turn = self._host.run(self._host.client.run(self._agent, message, session_id=session_id, wait=False))
                self._session = turn.session_id
                self._follow(turn.turn_id)
        except _LeftError as left:
            self._status = left.status
        if self._session and self._screen.is_terminal:
            self._screen.line(f"[session {self._session}: {self._how_to_return()} continues it]")
        return self._status

    def _obey(self, text: str) -> None:
        """Carry out a command of the user's."""
        name, _, argument = text.partition(" ")
        match name:
            case "/help":
                self._screen.line(_HELP)
            case "/new":
                self._session = ""
                self._print_remark("the next message begins a new session")
            case "/fork" if self._session:
                try:
                    answer = self._host.run(self._host.client.fork(self._agent, self._session))
                except AgentClientError as error:
                    self._print_remark(str(error))
                    return
                self._session = answer["session_id"]
                self._print_remark(f"this is session {self._session} now, with {answer['message_count']} entries")
            case "/file" if argument:
                self._add_file(Path(argument.strip()).expanduser())
            case _:
                self._print_remark(f"{text} is no command, or lacks something: /help lists the commands")

    def _add_file(self, path: Path) -> None:
        try:
            data = base64.b64encode(path.read_bytes()).decode()
        except OSError as error:
            self._print_remark(f"{path} cannot be read: {error.strerror}")
            return
        media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        kind = media_type.partition("/")[0] if media_type.startswith(("image/", "audio/")) else "file"
        self._files.append({"type": kind, "data": data, "media_type": media_type, "name": path.name})
        self._print_remark(f"{path.name} ({media_type}) is sent with the next message")

    def _how_to_return(self) -> str:
        return f"durable-agent-host chat {self._agent} --session {self._session}{self._host.options}"

    def _messages(self) -> Iterator[str]:
        if not self._asks:
            yield from (line for line in map(str.strip, sys.stdin) if line)
            return
        with suppress(ImportError):
            importlib.import_module("readline")  # for line editing and history, where available
        while True:
            self._screen.break_line()
            try:
                message = input(_PROMPT).strip()
            except EOFError:
                self._screen.line("")
                return
            except KeyboardInterrupt:
                self._screen.line("")
                raise _LeftError(INTERRUPTED) from None
            if message:
                yield message

    def _catch_up(self) -> None:
        """Follow a turn of the session that has not ended: this command may have been killed during it."""
        if not self._session:
            return
        try:
            session = self._host.run(self._host.client.session(self._agent, self._session, limit=1))
        except AgentClientError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return
        if self._screen.is_terminal:
            self._screen.line(f"[session {self._session} with {session['message_count']} entries]")
        for turn_id in filter(None, (session["running_turn_id"], *session["queued_turn_ids"])):
            self._follow(turn_id)

    def _print_remark(self, text: str) -> None:
        if self._screen.is_terminal:
            self._screen.line(f"[{text}]")
        else:
            print(printable(f"[{text}]"), file=sys.stderr)

    def _follow(self, turn_id: str) -> None:
        """Show a turn until it ends; Ctrl-C cancels it."""
        last_id: int | None = None
        wants_cancel = False
        while True:
            events = self._host.client.follow(self._agent, self._session, turn_id, after=last_id)
            try:
                for event in self._host.each(events):
                    last_id = event.id
                    self._show(event)
                    if event.name == turn_events.CALL_PENDING and not wants_cancel:
                        self._decide(turn_id, event.data)
                break
            except KeyboardInterrupt:
                if wants_cancel:
                    self._print_remark(f"turn {turn_id} continues")
                    raise _LeftError(INTERRUPTED) from None
                wants_cancel = True
                self._print_remark("cancelling the turn; Ctrl-C again leaves without waiting for its end")
                self._send(self._host.client.cancel(self._agent, self._session, turn_id))

    def _send(self, request: Any) -> None:
        """Send a request about a turn, and show why it is refused, if it is: somebody else may have been faster."""
        try:
            self._host.run(request)
        except AgentClientError as error:
            self._print_remark(str(error))

    def _show(self, event: TurnEvent) -> None:
        if event.name == turn_events.TURN_FAILED:
            self._status = PROBLEMS_FOUND
        if self._screen.is_terminal:
            self._screen.show(event)
        elif event.name == turn_events.TURN_FAILED:
            print(printable(_failure(event)), file=sys.stderr)
        elif event.is_last:
            self._screen.line(event.data["response"])
        if event.is_last and (refusal := event.data.get("refusal")):
            self._print_remark(f"refused: {refusal['message']}")

    def _decide(self, turn_id: str, call: Mapping[str, Any]) -> None:
        """Ask the user for a decision on a call, and send it."""
        call_id = call["call_id"]
        turn = self._host.run(self._host.client.turn(self._agent, self._session, turn_id))
        if turn.status != "running" and all(pending_call.call_id != call_id for pending_call in turn.pending_calls):
            return  # events followed from the beginning include calls decided long ago
        if not self._asks:
            path = f"/agents/{self._agent}/sessions/{self._session}/turns/{turn_id}/answers"
            raise CommandError(
                f"{_named_call(call)} {_wait_text(call)}, and there is no terminal to ask in: answer with "
                f"'{self._how_to_return()}', on the page of the inspector, or with POST /api{path}"
            )
        answer = None
        while answer is None:
            try:
                answer = self._decision(call_id) if call["kind"] in DECISIONS else _result(call_id)
            except EOFError:
                self._print_remark(f"turn {turn_id} waits for the answer")
                raise _LeftError(OK) from None
        self._send(self._host.client.answer(self._agent, self._session, turn_id, answer))

    def _decision(self, call_id: str) -> dict[str, Any] | None:
        reply = input(_QUESTION).strip().lower()
        if reply in {"y", "yes"}:
            return {"call_id": call_id, "approved": True}
        if reply in {"n", "no"}:
            reason = input("Reason, for the model (may be empty): ").strip()
            return {"call_id": call_id, "approved": False} | ({"reason": reason} if reason else {})
        if reply in {"e", "edit"}:
            try:
                arguments: Any = json.loads(input("Arguments, as a JSON object: "))
            except ValueError as error:
                self._print_remark(f"that is no JSON: {error}")
                return None
            return {"call_id": call_id, "approved": True, "arguments": arguments}
        return None


def _result(call_id: str) -> dict[str, Any] | None:
    """Ask the user for the result of a call: JSON, or else a text; None for an empty line."""
    text = input("Result, as JSON or text: ").strip()
    if not text:
        return None
    try:
        return {"call_id": call_id, "result": json.loads(text)}
    except ValueError:
        return {"call_id": call_id, "result": text}


class _Screen:
    """Standard output: the model's text as Markdown, as it arrives, and lines about what happens around it."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        self._console = Console(highlight=False)
        self._live: Live | None = None
        self._block = ""
        self._is_at_line_start = True
        self._text_kind = ""

    def show(self, event: TurnEvent) -> None:
        """Show one event of a turn; ignore unknown ones."""
        match event.name:
            case turn_events.MESSAGE_DELTA:
                self._continue_answer(event.data["text"])
            case turn_events.REASONING_DELTA | turn_events.TOOL_DELTA:
                self._continue_text(event.name, event.data["text"])
            case turn_events.TOOL_STARTED:
                self.line(f"→ {_named_call(event.data)}", "bold")
            case turn_events.TOOL_PROGRESS:
                self.line(f"  {event.data['text']}", "dim")
            case turn_events.TOOL_COMPLETED:
                result = _short(event.data.get("result") or "")
                self.line(f"← {event.data['outcome']}{f': {result}' if result else ''}", "dim")
            case turn_events.CALL_PENDING:
                self.line(f"? {_named_call(event.data)} {_wait_text(event.data)}", "bold")
            case turn_events.TURN_RESTARTED:
                restart = "the host was restarted: the following replaces what the model had begun to say"
                self.line(f"[{restart}]", "dim")
            case turn_events.TURN_FAILED:
                self.line(_failure(event), "red")
            case turn_events.TURN_CANCELLED:
                self.line("[the turn was cancelled; its output is kept]", "dim")
            case _:
                pass

    def _continue_answer(self, text: str) -> None:
        """Continue the answer: what follows its last complete paragraph or block of code is drawn anew."""
        if self._live is None:
            self.break_line()
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        self._block += printable(text)
        complete, separator, unfinished = self._block.rpartition("\n\n")
        if separator and complete.count("```") % 2 == 0:
            self._block = complete
            self.break_line()
            self._console.print()
            self._continue_answer(unfinished)
        elif self._block.strip():
            self._live.update(Markdown(self._block, hyperlinks=False), refresh=True)

    def _continue_text(self, kind: str, text: str) -> None:
        """Continue a line of reasoning, or of a tool; control characters are shown, not executed."""
        if self._text_kind != kind:
            self.break_line()
            self._text_kind = kind
        if text:
            self._console.print(Text(printable(text), "dim"), end="", soft_wrap=True)
            self._is_at_line_start = text.endswith("\n")

    def line(self, text: str, style: str = "") -> None:
        """Write a separate line."""
        if not self.is_terminal:
            print(printable(text))
            return
        self.break_line()
        self._text_kind = ""
        self._console.print(Text(printable(text), style), soft_wrap=True)

    def break_line(self) -> None:
        """End an unfinished line or answer."""
        if self._live is not None:
            self._live.update(Markdown(self._block, hyperlinks=False), refresh=True)
            self._live.stop()
            self._live = None
            self._block = ""
        if not self._is_at_line_start:
            self._console.print()
        self._is_at_line_start = True


def _failure(event: TurnEvent) -> str:
    return f"The turn failed: {event.data.get('detail') or 'no reason was given'}"


def _wait_text(call: Mapping[str, Any]) -> str:
    """Say what a pending call waits for."""
    wait = "waits for approval" if call["kind"] in DECISIONS else "waits for its result"
    return f"{wait}: {call['reason']}" if call.get("reason") else wait


def _named_call(call: Mapping[str, Any]) -> str:
    """Format a call as code."""
    arguments = call.get("arguments")
    arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{call.get('name')}({'' if arguments is None else _short(arguments_text)})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]} …"
