"""Under which id a person is asked: never under that of another question."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from durable_agent_host.model.journal_entry import ToolKey
from durable_agent_host.turn.budget_checks import LimitExceeded
from durable_agent_host.turn.pending_approvals import approval_request_id

IDS = st.lists(st.sampled_from(["a", "@", ".", ":", "0", "1", "budget-", "turn-cost"]), min_size=1, max_size=7)
CALLS = st.lists(st.tuples(st.integers(0, 2), IDS.map("".join)), max_size=8)


@pytest.mark.parametrize(
    ("call_id", "expected"),
    [
        ("call_1", "call_1"),
        ("call_1@1.0", "call_1@1.0@2.0"),
        ("call_1@1.0:3", "call_1@1.0:3@2.0"),
        ("functions.pay:0", "functions.pay:0@2.0"),
        ("call_1:0.1", "call_1:0.1@2.0"),
        ("budget-turn-cost", "budget-turn-cost@2.0"),
        ("a@b", "a@b"),
    ],
)
def test_an_id_that_looks_made_gets_its_place(call_id, expected):
    """What the host itself makes of ids cannot come from a model."""
    assert approval_request_id(ToolKey(2, call_id, 0), is_repeated=False) == expected


@given(CALLS)
def test_two_questions_never_have_one_id(calls):
    """Whatever ids a model chooses for its calls, questions about them and about budgets have names of their own."""
    names = [LimitExceeded("turn", "cost", 1, 0, 0, "ask").question(number) for number in range(3)]
    seen: dict[tuple[int, str], int] = {}
    for position, call_id in sorted(calls, key=lambda call: call[0]):
        occurrence = seen.get((position, call_id), 0)
        is_repeated = any(one == call_id for _, one in seen)
        seen[position, call_id] = occurrence + 1
        key = ToolKey(position, call_id, occurrence)
        names += [
            approval_request_id(key, n, changes, is_repeated=is_repeated) for n in range(3) for changes in range(2)
        ]
    assert len(set(names)) == len(names), names
