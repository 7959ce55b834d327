"""The command ``durable-agent-host chat``: a conversation with an agent of a running host, in the terminal."""

import importlib
import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final, cast

import click

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.cli.content_formatting import printable
from durable_agent_host.cli.host_client import (
    INTERRUPTED,
    OK,
    PROBLEMS_FOUND,
    CommandError,
    HostRoutes,
    TurnEvents,
    host_command,
)
from durable_agent_host.cli.rendering import Screen, TurnView, failure, named_call, wait_text
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.turn import turn_events

_PAUSE_SECONDS: Final = 0.2
_PROMPT: Final = "> "
_QUESTION: Final = "Approve? [y]es, [n]o, [e]dit the arguments: "


@host_command("chat", epilog="Exit status: 0, 1 a turn failed, 2 the command could not be carried out, 130 Ctrl-C.")
@click.option("--session", default="", help="the session to continue or to begin (default: a new one)")
@click.argument("agent", required=False)
def chat(host: HostRoutes, session: str, agent: str | None) -> int:
    """Talk to an agent of a running host.

    AGENT may be left out when there is one. Answers stream; a tool that needs approval asks for it. Ctrl-C cancels the
    running turn, a second one leaves it running; Ctrl-D ends. When the host dies, the answer continues where it is
    back. Without a terminal, each line of standard input is a message, and answers are written when they are complete.
    """
    return _Chat(host, agent or host.only_agent(), session).hold()


class _LeftError(Exception):
    """The user quits."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Chat:
    """One run of the command."""

    def __init__(self, host: HostRoutes, agent: str, session: str) -> None:
        self._host = host
        self._agent = agent
        self._session = session
        self._asks = sys.stdin.isatty()
        self._screen = Screen()
        self._status = OK

    def hold(self) -> int:
        """Read messages until there are no more."""
        try:
            self._catch_up()
            for message in self._messages():
                turn = self._turn()
                turn.say(message)
                self._follow(turn)
        except _LeftError as left:
            self._status = left.status
        if self._session and self._screen.is_terminal:
            self._screen.line(f"[session {self._session}: {self._how_to_return()} continues it]")
        return self._status

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
            session = self._host.ask(f"{self._host.session_path(self._agent, self._session)}?limit=1")
        except CommandError as error:
            if not self._is_new(error):
                raise
            return
        if self._screen.is_terminal:
            self._screen.line(f"[session {self._session} with {session['message_count']} entries]")
        for turn_id in filter(None, (session["running_turn_id"], *session["queued_turn_ids"])):
            self._follow(self._turn(turn_id))

    def _is_new(self, error: CommandError) -> bool:
        return error.status == 404 and self._agent.casefold() in map(str.casefold, self._host.agents())  # noqa: PLR2004

    def _turn(self, turn_id: str = "") -> TurnEvents:
        return TurnEvents(
            self._host,
            self._agent,
            session_id=self._session,
            turn_id=turn_id,
            on_remark=self._print_remark,
        )

    def _print_remark(self, text: str) -> None:
        if self._screen.is_terminal:
            self._screen.line(f"[{text}]")
        else:
            print(printable(f"[{text}]"), file=sys.stderr)

    def _follow(self, turn: TurnEvents) -> None:
        """Show a turn until it ends; Ctrl-C cancels it."""
        view = TurnView(self._screen)
        wants_cancel = has_cancelled = False
        while True:
            try:
                for event in turn:
                    self._session = turn.session_id
                    self._show(view, event)
                    if event.is_last:
                        return
                    if wants_cancel and not has_cancelled:
                        has_cancelled = True
                        self._cancel(turn)
                    if event.name == turn_events.CALL_PENDING and not wants_cancel:
                        self._decide(turn, event)
            except KeyboardInterrupt:
                if wants_cancel:
                    self._print_remark(f"turn {turn.turn_id} continues")
                    raise _LeftError(INTERRUPTED) from None
                wants_cancel = True
                self._print_remark("cancelling the turn; Ctrl-C again leaves without waiting for its end")
                if turn.turn_id:
                    has_cancelled = True
                    self._cancel(turn)

    def _cancel(self, turn: TurnEvents) -> None:
        try:
            self._host.ask(f"{turn.path}/cancel", method="POST")
        except CommandError as error:
            self._print_remark(str(error))

    def _show(self, view: TurnView, event: TurnEvent) -> None:
        if event.name == turn_events.TURN_FAILED:
            self._status = PROBLEMS_FOUND
        if self._screen.is_terminal:
            view.show(event)
        elif event.name == turn_events.TURN_FAILED:
            print(printable(failure(event)), file=sys.stderr)
        elif event.is_last:
            self._screen.line(event.data["response"])
        if event.is_last and (refusal := event.data.get("refusal")):
            self._print_remark(f"refused: {refusal['message']}")

    def _decide(self, turn: TurnEvents, event: TurnEvent) -> None:
        """Ask the user for a decision on a call, and send it."""
        call_id = event.data["call_id"]
        if not self._is_pending(turn, call_id):
            return  # events followed from the beginning include calls decided long ago
        if "approved_by" in event.data and not self._may_answer(turn, call_id):
            reason = f"{named_call(event.data)} waits for the approval of somebody else"
            if not self._asks:
                raise CommandError(reason)
            self._print_remark(reason)
            return
        if not self._asks:
            raise CommandError(
                f"{named_call(event.data)} {wait_text(event.data)}, and there is no terminal to ask in: answer with "
                f"'{self._how_to_return()}', on the page of the inspector, or with POST /api{turn.path}/answers"
            )
        while True:
            try:
                answer = self._decision(call_id) if event.data["kind"] in DECISIONS else _result(call_id)
            except EOFError:
                self._print_remark(f"turn {turn.turn_id} waits for the answer")
                raise _LeftError(OK) from None
            if answer is not None:
                break
        try:
            self._host.ask(f"{turn.path}/answers", answer, method="POST")
        except CommandError as error:  # somebody else has decided, or only they may
            self._print_remark(str(error))

    def _is_pending(self, turn: TurnEvents, call_id: str) -> bool:
        steps = self._host.ask(turn.path)
        pending = cast("list[dict[str, Any]]", steps.get("pending_calls") or [])
        return steps["status"] == "running" or any(call["call_id"] == call_id for call in pending)

    def _may_answer(self, turn: TurnEvents, call_id: str) -> bool:
        while self._host.ask(turn.path)["status"] == "running":  # other calls end before it waits
            time.sleep(_PAUSE_SECONDS)
        return self._host.may_answer(turn.turn_id, call_id)

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
