"""Figures of one attempt's work: the outcome carries them to the end of the turn, in whatever process."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from agent_framework import add_usage_details

from durable_agent_host.agent.observer import (
    InnerModelCallFinished,
    ModelCallFinished,
    Moment,
    RunBegan,
    ToolCallBegan,
    ToolCallFinished,
    WatchedTurn,
)
from durable_agent_host.turn.model_names import bounded_name

_UNKNOWN = "unknown"


class Work:
    """Counts the work of an attempt's latest run. The journal answers finished calls, so a run sees the whole turn.

    Args:
        attempt: its number, from 1.
        clean: redacts a text, for the names of models; without it, they are kept as they are.
    """

    def __init__(self, attempt: int, clean: Callable[[str], str] = str) -> None:
        self._attempt = attempt
        self._clean = clean
        self._began_at = datetime.now(UTC).isoformat()
        self._models: dict[str, Any] = {}
        self._new_usage: Any = {}
        self._counts: dict[str, int] = {}
        self._calls: dict[str, int] = {}

    async def observe(self, turn: WatchedTurn, moment: Moment, /) -> None:
        """Count a moment."""
        del turn
        match moment:
            case RunBegan():
                self._models, self._calls = {}, {}
            case ModelCallFinished(model=model, usage=usage, replayed=replayed):
                self._call("model_calls", replayed=replayed)
                self._add(model, usage, replayed=replayed)
            case InnerModelCallFinished(model=model, usage=usage, replayed=replayed):
                self._add(model, usage, replayed=replayed)
            case ToolCallFinished(outcome=outcome, replayed=replayed):
                self._call("tool_calls", replayed=replayed)
                if outcome == "unknown" and not replayed:
                    self._count("in_doubt")
            case ToolCallBegan(attempt=attempt, replayed=False) if attempt > 1:
                self._count("in_doubt")
            case _:
                pass

    def done(self) -> dict[str, Any]:
        """Return the figures as JSON, see `TurnOutcome`; the attempt ends now."""
        ended_at = datetime.now(UTC).isoformat()
        said = {"attempt": self._attempt, "began_at": self._began_at, "ended_at": ended_at}
        models = {name: _plain(usage) for name, usage in self._models.items()}
        return said | self._calls | self._counts | {"models": models, "new_usage": _plain(self._new_usage)}

    def _add(self, model: str | None, usage: Mapping[str, Any] | None, *, replayed: bool) -> None:
        name = bounded_name(self._clean(model)) if model else _UNKNOWN
        self._models[name] = add_usage_details(self._models.get(name), _as_usage(usage))
        if not replayed:
            self._new_usage = add_usage_details(self._new_usage, _as_usage(usage))

    def _call(self, what: str, *, replayed: bool) -> None:
        self._calls[what] = self._calls.get(what, 0) + 1
        if replayed:
            self._count(f"replayed_{what}")

    def _count(self, what: str) -> None:
        self._counts[what] = self._counts.get(what, 0) + 1


def _as_usage(usage: Mapping[str, Any] | None) -> Any:
    return dict(usage or {})


def _plain(usage: Mapping[str, Any]) -> dict[str, int]:
    """Keep the counts with the framework's own names; the services' own names repeat them."""
    return {name: count for name, count in usage.items() if name.endswith("_token_count") and count}
