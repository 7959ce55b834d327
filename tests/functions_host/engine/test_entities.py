"""Entity batches: the pure core with the real SDK."""

import json
from types import SimpleNamespace
from typing import Any

import pytest
from azure.durable_functions import Entity

from functions_host.engine.entities import decide_batch, format_entity_id, parse_entity_id, reject_batch
from functions_host.engine.events import Caller, Operation
from functions_host.engine.sdk_wire import decode_entity_answer, encode_entity_batch

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


def run(operations: list[Operation], state_json: str | None) -> Any:
    batch = encode_entity_batch(
        "till", "N", exists=state_json is not None, state_json=state_json, operations=operations
    )
    return decide_batch(operations, decode_entity_answer(Entity.create(till)(SimpleNamespace(body=batch))))


def test_a_batch_changes_the_state_and_answers_callers():
    """Signals change the state, only calls are answered."""
    change = run([Operation("deposit", '"5"'), Operation("deposit", '"7"', CALLER)], "10")
    assert (change.exists, change.state_json) == (True, "22")
    assert [(reply.caller, reply.event.result_json, reply.event.has_failed) for reply in change.replies] == [
        (CALLER, "22", False)
    ]


def test_a_failing_operation_answers_with_its_message_and_keeps_its_state():
    """State changed before the exception stays, as with the extension; later operations run."""
    change = run([Operation("spoil", None, CALLER), Operation("deposit", '"1"')], "10")
    assert change.state_json == "111"
    assert (change.replies[0].event.has_failed, json.loads(change.replies[0].event.result_json)) == (True, "spoiled")


def test_a_destructed_entity_is_gone():
    """It does not exist and has no state; an operation after it starts anew."""
    change = run([Operation("close", None)], "10")
    assert (change.exists, change.state_json) == (False, None)
    assert run([Operation("close", None), Operation("deposit", '"2"')], "10").state_json == "2"


def test_a_new_entity_starts_without_state():
    """The first operation sees no state."""
    assert run([Operation("deposit", '"3"')], None).state_json == "3"


def test_refused_batches_answer_every_caller():
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
