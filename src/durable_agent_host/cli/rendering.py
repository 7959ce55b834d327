"""A turn as shown in a terminal: text as it arrives, a line for each tool, and what happens around it."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from durable_agent_host.agent_client import TurnEvent
from durable_agent_host.cli.content_formatting import printable
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.turn import turn_events

_SHORT: Final = 200


class Screen:
    """Standard output for lines and running text; styled only in a terminal."""

    def __init__(self) -> None:
        self.is_terminal = sys.stdout.isatty()
        has_styles = "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
        self._color = None if has_styles else False
        self._is_at_line_start = True

    def text(self, text: str, **style: Any) -> None:
        """Continue a line with text of a model; control characters are shown, not executed."""
        if not text:
            return
        click.secho(printable(text), nl=False, color=self._color, **style)
        self._is_at_line_start = text.endswith("\n")

    def line(self, text: str, **style: Any) -> None:
        """Write a separate line."""
        self.break_line()
        click.secho(printable(text), color=self._color, **style)

    def break_line(self) -> None:
        """End an unfinished line."""
        if not self._is_at_line_start:
            click.echo()
        self._is_at_line_start = True


class TurnView:
    """Shows the events of one turn.

    Args:
        screen: the output.

    Attributes:
        answer: the text of the answer so far.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pieces: list[tuple[int, str]] = []
        self._writing = ""
        self._rows: dict[str, Callable[[TurnEvent], None]] = {
            turn_events.MESSAGE_DELTA: self._message,
            turn_events.REASONING_DELTA: lambda event: self._run_on("reasoning", event.data["text"], dim=True),
            turn_events.TOOL_STARTED: lambda event: self._line(f"→ {named_call(event.data)}", bold=True),
            turn_events.TOOL_DELTA: lambda event: self._run_on("code", event.data["text"], dim=True),
            turn_events.TOOL_PROGRESS: lambda event: self._line(f"  {event.data['text']}", dim=True),
            turn_events.TOOL_COMPLETED: self._show_completed,
            turn_events.CALL_PENDING: self._show_pending_call,
            turn_events.TURN_RESTARTED: self._show_restart,
            turn_events.TURN_COMPLETED: lambda _: self._screen.break_line(),
            turn_events.TURN_FAILED: lambda event: self._line(failure(event), fg="red"),
            turn_events.TURN_CANCELLED: lambda _: self._line("[the turn was cancelled; its output is kept]", dim=True),
        }

    @property
    def answer(self) -> str:
        """The text of the answer so far."""
        return "".join(text for _, text in self._pieces)

    def show(self, event: TurnEvent) -> None:
        """Show one event; ignore unknown ones."""
        if row := self._rows.get(event.name):
            row(event)

    def show_remark(self, text: str) -> None:
        """Report an event around the turn, in a separate line."""
        self._line(f"[{text}]", dim=True)

    def _message(self, event: TurnEvent) -> None:
        self._pieces.append((event.id, event.data["text"]))
        self._run_on("message", event.data["text"])

    def _run_on(self, kind: str, text: str, **style: Any) -> None:
        if self._writing != kind:
            self._screen.break_line()
            self._writing = kind
        self._screen.text(text, **style)

    def _line(self, text: str, **style: Any) -> None:
        self._screen.line(text, **style)
        self._writing = ""

    def _show_completed(self, event: TurnEvent) -> None:
        if arguments := event.data.get("arguments"):  # of a call of the model's service, known only now
            self._line(f"  {_short(arguments if isinstance(arguments, str) else json.dumps(arguments))}", dim=True)
        result = _short(event.data.get("result") or "")
        self._line(f"← {event.data['outcome']}{f': {result}' if result else ''}", dim=True)

    def _show_pending_call(self, event: TurnEvent) -> None:
        self._line(f"? {named_call(event.data)} {wait_text(event.data)}", bold=True)

    def _show_restart(self, event: TurnEvent) -> None:
        remaining_pieces = [
            (event_id, text) for event_id, text in self._pieces if event_id < event.data["discard_from"]
        ]
        is_less = len(remaining_pieces) < len(self._pieces)
        self._pieces = remaining_pieces
        self.show_remark("the host was restarted: the following replaces what the model had begun to say")
        if is_less and remaining_pieces:
            self._run_on("message", self.answer)


def failure(event: TurnEvent) -> str:
    """Return why a turn has failed."""
    return f"The turn failed: {event.data.get('detail') or 'no reason was given'}"


def wait_text(call: Mapping[str, Any]) -> str:
    """Say what a pending call waits for."""
    wait = "waits for approval" if call["kind"] in DECISIONS else "waits for its result"
    return f"{wait}: {call['reason']}" if call.get("reason") else wait


def named_call(call: Mapping[str, Any]) -> str:
    """Format a call as code."""
    arguments = call.get("arguments")
    arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return f"{call.get('name')}({'' if arguments is None else _short(arguments_text)})"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHORT else f"{line[:_SHORT]} …"
