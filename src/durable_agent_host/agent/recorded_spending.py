"""What a turn has spent, as its log says: in earlier runs, or in one that runs no more. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from durable_agent_host.codec.content import decode_usage
from durable_agent_host.model.budget import Budgets, Reservation, Spent
from durable_agent_host.turn.budgeting import spent_on_answer, spent_on_reservation
from durable_agent_host.turn_log.journal import Recorded


def spent_in(recorded: Recorded, budgets: Budgets) -> Spent | None:
    """Count what a turn has spent that runs no more.

    Guarantee: pure.

    Args:
        recorded: all that its log says.
        budgets: of the agent.

    Returns:
        The figures, or None when nothing counts them.
    """
    if not budgets.counts:
        return None
    spent = Spent(seconds=recorded.worked_seconds).plus(spent_on_the_rest(recorded))
    for usage, model in answers_in(recorded):
        spent = spent.plus(spent_on_answer(usage, model, budgets.prices))
    return spent


def answers_in(recorded: Recorded) -> Iterator[tuple[Mapping[str, Any] | None, str | None]]:
    """Give usage and model of all answered model calls. Guarantee: pure."""
    for call in recorded.inner_calls:
        yield call.usage, call.model
    for response in (*recorded.responses.values(), *recorded.side_calls.values()):
        usage = response.get("usage")
        yield (decode_usage(usage) if usage else None), response.get("model")


def spent_on_the_rest(recorded: Recorded) -> Spent:
    """Count the calls without an end or without token counts, and the starts of tools. Guarantee: pure."""
    spent = Spent(tool_calls=sum(tool.starts for key, tool in recorded.tools.items() if key.position >= 0))
    for reservations in recorded.reserved.values():
        for one in reservations:
            spent = spent.plus(spent_on_reservation(one))
    for one in recorded.unmeasured:
        spent = spent.plus(tokens_of(one))
    return spent


def tokens_of(reservation: Reservation) -> Spent:
    """Count the tokens of a call that is itself counted elsewhere. Guarantee: pure."""
    return replace(spent_on_reservation(reservation), model_calls=0)
