"""Journal entries as they are stored."""

import pytest

from durable_agent_host.codec.journal_entry import decode_journal_entry, encode_journal_entry
from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.model.budget import Reservation
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import (
    BudgetReservedEntry,
    MessageReceivedEntry,
    ModelCallCompletedEntry,
    ModelCallStartedEntry,
    NestedCallCompletedEntry,
    ToolCallCompletedEntry,
    ToolCallStartedEntry,
)
from durable_agent_host.model.log_entry import EVENT, OUTCOME, LogEntry

TOOL_CALL = CallPath().model_call(1).tool_call("call_a")
MODEL_CALL = CallPath().model_call(2)
NESTED_CALL = TOOL_CALL.model_call(3)
CALL = '"position":1,"call_id":"call_a","occurrence":0'


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (
            ModelCallStartedEntry(CallPath().model_call(0), {"token": "t"}),
            '{"kind":"model_begun","data":{"position":0,"continuation":{"token":"t"}}}',
        ),
        (
            ModelCallStartedEntry(CallPath().model_call(0), None),
            '{"kind":"model_begun","data":{"position":0,"continuation":null}}',
        ),
        (
            ModelCallCompletedEntry(MODEL_CALL, {"messages": []}),
            '{"kind":"model_finished","data":{"position":2,"response":{"messages":[]}}}',
        ),
        (
            ModelCallCompletedEntry(MODEL_CALL, {}, {"set": {"n": 1}}),
            '{"kind":"model_finished","data":{"position":2,"response":{},"state":{"set":{"n":1}}}}',
        ),
        (
            ToolCallStartedEntry(TOOL_CALL, "add", {"n": 1}),
            f'{{"kind":"tool_started","data":{{{CALL},"name":"add","arguments":{{"n":1}}}}}}',
        ),
        (
            ToolCallCompletedEntry(TOOL_CALL, "success", {"items": []}),
            f'{{"kind":"tool_finished","data":{{{CALL},"outcome":"success","result":{{"items":[]}}}}}}',
        ),
        (
            ToolCallCompletedEntry(TOOL_CALL, "error", {}, {"removed": ["n"]}),
            f'{{"kind":"tool_finished","data":{{{CALL},"outcome":"error","result":{{}},"state":{{"removed":["n"]}}}}}}',
        ),
        (
            BudgetReservedEntry(NESTED_CALL, Reservation(5, None), 1.5),
            '{"kind":"call_reserved","data":{"position":-1,"path":"m1/t:call_a/m3","tokens":5,"seconds":1.5}}',
        ),
        (
            MessageReceivedEntry(MODEL_CALL, {"turn_id": "t"}),
            '{"kind":"message_received","data":{"position":2,"request":{"turn_id":"t"}}}',
        ),
        (
            NestedCallCompletedEntry(NESTED_CALL, None, "gpt-5"),
            '{"kind":"inner_call_finished","data":{"path":"m1/t:call_a/m3","model":"gpt-5"}}',
        ),
    ],
)
def test_steps_are_stored_in_this_form(step, line):
    """Each step has one form, byte for byte, and is read back from it."""
    assert encode_log_entry(encode_journal_entry(step)) == line
    assert decode_journal_entry(decode_log_entry(line)) == step


def test_a_state_without_a_change_is_not_stored():
    """An empty change leaves no key."""
    assert "state" not in encode_journal_entry(ModelCallCompletedEntry(MODEL_CALL, {}, {})).data


@pytest.mark.parametrize("kind", [EVENT, OUTCOME, "of a newer program"])
def test_other_entries_are_no_steps(kind):
    """What is not a step of the journal is left to whoever knows it."""
    assert decode_journal_entry(LogEntry(kind, {})) is None
