"""The id of a question to a person: the call's id, unless it could be confused with another question. Pure.

Call ids come from the model's service, and a person's answer is matched by the question's id. So two questions of a
turn never have the same id, whatever ids the calls have: otherwise the answer to a harmless call would approve another
one.
"""

import re
from typing import Final

from durable_agent_host.model.journal_entry import ToolKey

BUDGET_PREFIX: Final = "budget-"
"""Prefix of ids of budget questions; see `durable_agent_host.turn.budgeting.Crossing`."""

_LOOKS_MADE: Final = re.compile(rf"\A{BUDGET_PREFIX}|@[0-9]+\.[0-9]+\Z|:[0-9]+(?:\.[0-9]+)?\Z")


def question_id(key: ToolKey, number: int = 0, changes: int = 0, *, is_repeated: bool) -> str:
    """Return the id of a question. Guarantee: pure; two questions of a turn have different ids.

    Args:
        key: of the call.
        number: of the question about this call, from 0.
        changes: how often people have changed the arguments in their answers to this question.
        is_repeated: an earlier call of the turn has the same call id.

    Returns:
        The call's id; followed by its place when it is repeated or looks like an id made here; from the second question
        on, also followed by the number, and after a change by both numbers.
    """
    needs_place = is_repeated or _LOOKS_MADE.search(key.call_id) is not None
    place = f"@{key.position}.{key.occurrence}" if needs_place else ""
    suffix = f":{number}.{changes}" if changes else f":{number}" if number else ""
    return f"{key.call_id}{place}{suffix}"
