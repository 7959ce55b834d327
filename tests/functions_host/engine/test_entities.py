"""Entity batches: the pure core with the real SDK."""

import json
from typing import Any

import pytest

from functions_host.engine.entities import format_entity_id, parse_entity_id, reject_batch
from functions_host.engine.events import Caller, Operation

CALLER = Caller("flow-1", "exec-1", 4, "request-4")


def till(context: Any) -> None:
    total = context.get_state(lambda: 0)
    if context.operation_name == "deposit":
        context.set_state(total + context.get_input())
        context.set_result(total + context.get_input())
    elif context.operation_name == "spoil":
        context.set_state(total + 100)
        raise ValueError("spoiled")
    elif context.operation_name == "close":
        context.destruct_on_exit()


def test_rejected_batches_respond_to_every_caller():
    """Callers get the message, signals are dropped."""
    replies = reject_batch([Operation("a", None), Operation("b", None, CALLER)], "no such entity")
    assert [(reply.event.has_failed, json.loads(reply.event.result_json)) for reply in replies] == [
        (True, "no such entity")
    ]


def test_entity_ids():
    """Names lose their case, keys keep it and may hold an ``@``."""
    assert parse_entity_id("@Till@No@rth") == ("till", "No@rth")
    assert format_entity_id("Till", "North") == "@till@North"
    for bad in ("till", "@till", "@@x"):
        with pytest.raises(ValueError, match="not an entity id"):
            parse_entity_id(bad)
