"""Journal entries as they are stored."""

import pytest

from durable_agent_host.codec.journal_entry import decode_journal_entry, encode_journal_entry
from durable_agent_host.codec.log_entry import decode_log_entry, encode_log_entry
from durable_agent_host.model.journal_entry import (
    ModelCallCompletedEntry,
    ModelCallStartedEntry,
    ToolCallCompletedEntry,
    ToolCallStartedEntry,
    ToolKey,
)
from durable_agent_host.model.log_entry import EVENT, OUTCOME, LogEntry

KEY = ToolKey(1, "call_a", 0)
CALL = '"position":1,"call_id":"call_a","occurrence":0'


@pytest.mark.parametrize(
    ("step", "line"),
    [
        (
            ModelCallStartedEntry(0, {"token": "t"}),
            '{"kind":"model_begun","data":{"position":0,"continuation":{"token":"t"}}}',
        ),
        (ModelCallStartedEntry(0, None), '{"kind":"model_begun","data":{"position":0,"continuation":null}}'),
        (
            ModelCallCompletedEntry(2, {"messages": []}),
            '{"kind":"model_finished","data":{"position":2,"response":{"messages":[]}}}',
        ),
        (
            ModelCallCompletedEntry(2, {}, {"set": {"n": 1}}),
            '{"kind":"model_finished","data":{"position":2,"response":{},"state":{"set":{"n":1}}}}',
        ),
        (
            ToolCallStartedEntry(KEY, "add", {"n": 1}),
            f'{{"kind":"tool_started","data":{{{CALL},"name":"add","arguments":{{"n":1}}}}}}',
        ),
        (
            ToolCallCompletedEntry(KEY, "success", {"items": []}),
            f'{{"kind":"tool_finished","data":{{{CALL},"outcome":"success","result":{{"items":[]}}}}}}',
        ),
        (
            ToolCallCompletedEntry(KEY, "error", {}, {"removed": ["n"]}),
            f'{{"kind":"tool_finished","data":{{{CALL},"outcome":"error","result":{{}},"state":{{"removed":["n"]}}}}}}',
        ),
    ],
)
def test_steps_are_stored_in_this_form(step, line):
    """Each step has one form, byte for byte, and is read back from it."""
    assert encode_log_entry(encode_journal_entry(step)) == line
    assert decode_journal_entry(decode_log_entry(line)) == step


def test_a_state_without_a_change_is_not_stored():
    """An empty change leaves no key."""
    assert "state" not in encode_journal_entry(ModelCallCompletedEntry(0, {}, {})).data


@pytest.mark.parametrize("kind", [EVENT, OUTCOME, "of a newer program"])
def test_other_entries_are_no_steps(kind):
    """What is not a step of the journal is left to whoever knows it."""
    assert decode_journal_entry(LogEntry(kind, {})) is None
