"""What ``durable-agent-host dev`` shows of each turn: short lines, with colours in a terminal.

Lines are log records, so that secrets are masked and control characters escaped as in any other; the formatter that
`shorten_log` gives to the handlers of the process shows them, and the other records, in few columns.
"""

import logging
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from durable_agent_host.agent.observer import (
    AttemptStarted,
    CallPending,
    ModelCallFailed,
    Moment,
    NestedMoment,
    ObservedTurn,
    RunRestarted,
    ToolCallCompleted,
    ToolCallStarted,
)
from durable_agent_host.errors import is_app_file
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.turn.turn_report import TurnReport

_LOGGER = logging.getLogger(__name__)
_MAX_CHARACTERS: Final = 100
_SESSION_CHARACTERS: Final = 8
_LONG_ID: Final = re.compile(r"\b([0-9a-f]{8})[0-9a-f]{16,24}\b")
_STYLES: Final[Mapping[str, str]] = {
    "→": "cyan",
    "←": "cyan",
    "?": "bold yellow",
    "↻": "yellow",
    "✓": "green",
    "✗": "red",
}


def shorten_log() -> None:
    """Show warnings, the app's own records and the lines of turns, each in few columns."""
    for handler in logging.getLogger().handlers:
        handler.setFormatter(_ShortFormatter())
        handler.addFilter(_filter_record)


def _filter_record(record: logging.LogRecord) -> bool:
    if record.name == "agent_framework" and record.module == "_tools":
        return False  # that a tool has failed, which our own record says with the app's frames
    return record.levelno >= logging.WARNING or record.name == __name__ or is_app_file(record.pathname)


class _ShortFormatter(logging.Formatter):
    def __init__(self) -> None:
        super().__init__()
        self._console = Console(stderr=True, soft_wrap=True)

    def format(self, record: logging.LogRecord) -> str:
        message = _LONG_ID.sub(r"\1", record.getMessage())
        line = Text().append(time.strftime("%H:%M:%S ", time.localtime(record.created)), "dim")
        if record.name == __name__:
            agent, session, text = message.split("\t", 2)
            line.append(f"{agent} ", "bold").append(f"{session} ", "dim").append(text, _STYLES.get(text[0], ""))
        else:
            style = "yellow" if record.levelno >= logging.WARNING else "dim"
            line.append(f"{record.levelname.lower()}: ", style).append(message)
            if record.exc_info:
                line.append(f"\n{record.exc_text or self.formatException(record.exc_info)}", "red")
        with self._console.capture() as capture:
            self._console.print(line, end="")
        return capture.get()


class DevLines:
    """Logs what happens in turns, a line each."""

    def __init__(self) -> None:
        self._started_at: dict[tuple[str, str], float] = {}

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Log a moment that is not replayed."""
        request = turn.request
        if isinstance(moment, NestedMoment):
            moment = moment.moment
        match moment:
            case AttemptStarted(replayed=False):
                _log(request, f"“{_short(request.message)}”")
            case AttemptStarted():
                _log(request, f"↻ attempt {turn.attempt} continues the turn")
            case ToolCallStarted(call_id, name, arguments, replayed=False):
                self._started_at[request.turn_id, call_id] = time.perf_counter()
                parts = ", ".join(f"{key}={value!r}" for key, value in arguments.items())
                _log(request, f"→ {name}({_short(parts)})")
            case ToolCallCompleted(call_id, name, outcome, replayed=False, result=result):
                started_at = self._started_at.pop((request.turn_id, call_id), time.perf_counter())
                mark = "←" if outcome == "success" else "✗"
                _log(
                    request,
                    f"{mark} {name}: {outcome} in {_duration(time.perf_counter() - started_at)}: {_short(result)}",
                )
            case CallPending(call, replayed=False):
                _log(request, f"? {call['name']} waits: answer in the inspector or in chat")
            case ModelCallFailed(_, error, wait_seconds):
                again = "" if wait_seconds is None else f", again in {_duration(wait_seconds)}"
                _log(request, f"↻ model call failed{again}: {_short(str(error))}")
            case RunRestarted(reason):
                _log(request, f"↻ the agent runs again: {reason}")
            case _:
                pass

    def log_end(self, report: TurnReport) -> None:
        """Log the end of a turn."""
        outcome = report.outcome
        usage = report.usage
        error: Mapping[str, Any] = outcome.get("error") or {}
        tokens = f"{usage.get('input_token_count', 0)} tokens in, {usage.get('output_token_count', 0)} out"
        mark = "✓" if outcome["status"] == "completed" else "✗"
        reason = f": {_short(error['message'])}" if error.get("message") else ""
        _log(report.request, f"{mark} {outcome['status']} in {_duration(report.seconds)}, {tokens}{reason}")


def _log(request: TurnRequest, text: str) -> None:
    _LOGGER.info("%s\t%s\t%s", request.agent, request.session_id[:_SESSION_CHARACTERS], text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_CHARACTERS else f"{line[:_MAX_CHARACTERS]} …"


def _duration(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
