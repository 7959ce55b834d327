"""What the author of a tool can say of it."""

from typing import Any

import pytest

from durable_agent_host import durable_tool


@pytest.mark.parametrize("said", ["aks", "", "Retry", True, ["ask"]])
def test_a_policy_that_is_none_is_refused(said: Any):
    """A misspelt policy would count as another one."""
    with pytest.raises(ValueError, match="say 'retry', 'fail' or 'ask'"):
        durable_tool(in_doubt=said)


@pytest.mark.parametrize(
    "said", ["", "anoter", "Another", "role:", "role: ", "role: finance", "roles:x", 5, ["another"]]
)
def test_an_approver_who_is_none_is_refused(said: Any):
    """Nobody could approve such a call, or the wrong one."""
    with pytest.raises(ValueError, match="say 'another' or 'role:NAME'"):
        durable_tool(approved_by=said)
