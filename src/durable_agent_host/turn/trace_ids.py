"""The ids of a turn's trace. They derive from the turn, so every process involved computes the same."""

from dataclasses import dataclass
from typing import Final

from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.turn import TurnRequest

_SPAN_DIGITS: Final = 16
"""Hexadecimal digits of the id of a span."""


@dataclass(frozen=True)
class TurnTrace:
    """The trace that a turn belongs to.

    Attributes:
        trace_id: the caller's, or one derived from the turn.
        parent_id: the caller's span; without one, an id that derives from the turn.
        flags: the caller's trace flags, or None when nobody has decided on sampling.
        turn: identifies the turn, and when it was requested: a rejected one may be requested again under the same id.
    """

    trace_id: int
    parent_id: int
    flags: int | None
    turn: str

    @property
    def name(self) -> str:
        """The trace id in its text form: 32 hexadecimal digits."""
        return f"{self.trace_id:032x}"


def trace_of(request: TurnRequest) -> TurnTrace:
    """Return the trace of a turn.

    Source: W3C Trace Context, section 3.2.
    """
    log_id = request.log_id
    turn = f"{log_id} {request.created_at}"
    if request.traceparent is None:
        parent_id = int(derived_id("span", turn, "turn")[:_SPAN_DIGITS], 16) or 1
        return TurnTrace(int(derived_id("trace", log_id), 16) or 1, parent_id, None, turn)
    _, trace, span, flags, *_ = request.traceparent.split("-")
    return TurnTrace(int(trace, 16), int(span, 16), int(flags, 16), turn)


def traceparent_in(header: str | None, trace_id: int, flags: int) -> str:
    """Build the ``traceparent`` of a turn whose request has its own span.

    That span is lost when the process dies before it answers, so it is not the turn's parent: the caller's span is, or
    an id that derives from the trace. The request's sampling decision applies to the turn.
    """
    trace = f"{trace_id:032x}"
    caller = header.split("-") if header is not None else ["00", trace, _no_parent(trace)]
    if caller[1] != trace:  # another propagator than W3C's: the caller's header applies
        return header or ""
    return f"00-{trace}-{caller[2]}-{flags & 0xFF:02x}"


def _no_parent(trace: str) -> str:
    return derived_id("no-parent", trace)[:_SPAN_DIGITS]
