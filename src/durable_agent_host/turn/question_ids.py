"""Under which id a person is asked: the id of the call, as long as nobody can take it for another question. Pure.

Ids of calls are what the model's service says, and a person's answer is found by the id of the question. So two
questions of a turn never have the same id, whatever ids the calls have: otherwise the answer to a harmless call would
let another one run.
"""

import re
from typing import Final

from durable_agent_host.model.journal_entry import ToolKey

BUDGET_PREFIX: Final = "budget-"
"""What ids of questions for a budget begin with; see `durable_agent_host.turn.budgeting.Crossing`."""

_LOOKS_MADE: Final = re.compile(rf"\A{BUDGET_PREFIX}|@[0-9]+\.[0-9]+(?::[0-9]+)?\Z|:[0-9]+\Z")


def question_id(key: ToolKey, number: int = 0, *, is_repeated: bool) -> str:
    """Name a question. Guarantee: pure; two questions of a turn have different names.

    Args:
        key: of the call.
        number: of the question about this call, from 0.
        is_repeated: an earlier call of the turn has the same call id.

    Returns:
        The call's id; with its place behind it when it is repeated, or looks like a name that is made here; with the
        number behind that from the second question on.
    """
    needs_place = is_repeated or _LOOKS_MADE.search(key.call_id) is not None
    place = f"@{key.position}.{key.occurrence}" if needs_place else ""
    return f"{key.call_id}{place}" + (f":{number}" if number else "")
