"""The exercise "a span around tool calls": this class is all that is written for it."""

import json
import time
from pathlib import Path

from durable_agent_host.agent.observer import Moment, ObservedTurn, ToolCallCompleted, ToolCallStarted


class ToolSpans:
    """Writes a line of JSON for each span of a tool call.

    Args:
        file: to append to.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._start_times: dict[tuple[str, str], float] = {}

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Measure tool calls."""
        match moment:
            case ToolCallStarted(call_id):
                self._start_times[turn.request.turn_id, call_id] = time.perf_counter()
            case ToolCallCompleted(call_id, name, outcome, is_replayed):
                started_at = self._start_times.pop((turn.request.turn_id, call_id))
                span = {"tool": name, "outcome": outcome, "replayed": is_replayed, "attempt": turn.attempt}
                with self._file.open("a") as file:
                    file.write(json.dumps(span | {"seconds": time.perf_counter() - started_at}) + "\n")
            case _:
                pass
