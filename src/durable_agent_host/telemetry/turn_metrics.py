"""Metrics of turns: counted at their ends from their reports, and during their attempts."""

import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from opentelemetry import metrics

from durable_agent_host.agent.observer import (
    AttemptEnded,
    ModelCallCompleted,
    Moment,
    ObservedTurn,
    ToolCallCompleted,
    ToolCallStarted,
    UpdateReceived,
)
from durable_agent_host.turn.turn_report import QUEUED, TurnReport, bounded_name, seconds_since

SCOPE: Final = "durable_agent_host"
"""The name of our meter and tracer."""
PREFIX: Final = SCOPE + "."

AGENT: Final = "gen_ai.agent.name"
MODEL: Final = "gen_ai.response.model"

_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""The upper bounds of histograms of durations."""
_METER: Final = metrics.get_meter(SCOPE)


def _counter(name: str, description: str, unit: str = "1") -> metrics.Counter:
    return _METER.create_counter(PREFIX + name, unit, description)


def _histogram(name: str, description: str) -> metrics.Histogram:
    return _METER.create_histogram(PREFIX + name, "s", description, explicit_bucket_boundaries_advisory=_SECONDS)


TURNS: Final = _counter("turns", "Turns that have ended, by status.")
TURN_SECONDS: Final = _histogram("turn.duration", "From the arrival of a turn's request to its end.")
FIRST_TOKEN: Final = _histogram("turn.first_token", "From the arrival of a request to the first text of its answer.")
QUEUE: Final = _histogram("queue.wait", "How long turns waited behind others of their session.")
TOKENS: Final = _counter("tokens", "Tokens of turns that have ended, by model; those of a replayed call count once.")
PARTS: Final = _counter("tokens.part", "Of these, tokens read from or written to a cache, and of reasoning.")
TOOLS: Final = _histogram("tool.duration", "Runs of tools, by outcome.")
REPLAYS: Final = _counter("journal.replays", "Finished steps that the journal answered.")
IN_DOUBT: Final = _counter("calls.in_doubt", "Tool calls that were running when their process ended.")
LOST: Final = _counter("attempts.lost", "Attempts of turns whose process ended.")
STORED: Final = _counter("stored", "Bytes of the entries that turns added to conversations.", "By")


_KINDS: Final = {"input_token_count": "input", "output_token_count": "output"}
_PARTS: Final = {
    "cache_read_input_token_count": "cache_read",
    "cache_creation_input_token_count": "cache_creation",
    "reasoning_output_token_count": "reasoning",
}


def count_turn(report: TurnReport) -> None:
    """Count a turn that has ended."""
    outcome = report.outcome
    agent = {AGENT: report.request.agent}
    status = agent | {"status": str(outcome["status"])}
    TURNS.add(1, status)
    TURN_SECONDS.record(report.seconds, status)
    if QUEUED in report.seconds_by_kind:
        QUEUE.record(report.seconds_by_kind[QUEUED], agent)
    models: Mapping[str, Mapping[str, int]] = report.metrics.get("models", {})
    for model_name, usage in models.items():
        model = bounded_name(model_name)
        for instrument, label, kinds in ((TOKENS, "gen_ai.token.type", _KINDS), (PARTS, "part", _PARTS)):
            for name, kind in kinds.items():
                if count := usage.get(name, 0):
                    instrument.add(count, agent | {MODEL: model, label: kind})
    if report.calls_in_doubt:
        IN_DOUBT.add(report.calls_in_doubt, agent)
    if report.lost_attempts:
        LOST.add(report.lost_attempts, agent)
    stats: Mapping[str, Any] = outcome.get("stats") or {}
    if stored_bytes := stats.get("bytes_stored", 0):
        STORED.add(stored_bytes, agent)


class TurnMeasurements:
    """Measures during attempts what their ends do not show: the first text, tools, replays."""

    def __init__(self) -> None:
        self._tools: dict[tuple[str, str, int], dict[str, float]] = {}
        self._answering: set[tuple[str, str, int]] = set()

    async def observe(self, turn: ObservedTurn, moment: Moment, /) -> None:
        """Measure a moment."""
        request = turn.request
        agent = {AGENT: request.agent}
        attempt = (request.session_id, request.turn_id, turn.attempt)
        match moment:
            case UpdateReceived(update, replayed=False) if turn.attempt == 1 and attempt not in self._answering:
                if update.text:
                    self._answering.add(attempt)
                    FIRST_TOKEN.record(seconds_since(request.created_at, datetime.now(UTC)), agent)
            case ModelCallCompleted(replayed=True):
                REPLAYS.add(1, agent | {"step": "model_call"})
            case ToolCallCompleted(replayed=True):
                REPLAYS.add(1, agent | {"step": "tool_call"})
            case ToolCallStarted(call_id, replayed=False):
                self._tools.setdefault(attempt, {})[call_id] = time.perf_counter()
            case ToolCallCompleted(call_id, name, outcome):
                started_at = self._tools.get(attempt, {}).pop(call_id, None)
                if started_at is not None and name:
                    labels = agent | {"gen_ai.tool.name": name, "outcome": outcome}
                    TOOLS.record(time.perf_counter() - started_at, labels)
            case AttemptEnded():
                self._answering.discard(attempt)
                self._tools.pop(attempt, None)
            case _:
                pass
