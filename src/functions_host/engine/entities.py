"""Decide what an entity's answer changes: its state, and the replies to its callers.

Guarantee: pure.
Source: ``TaskEntityShim.cs`` of azure-functions-durable-extension 2.13.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from functions_host.engine.events import Caller, EntityResponded, EntityResult, Operation
from functions_host.engine.sdk_wire import encode_text


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to the calling orchestration."""

    caller: Caller
    event: EntityResponded


@dataclass(frozen=True, slots=True)
class EntityChange:
    """New state and replies of one batch, committed together."""

    exists: bool
    state_json: str | None
    replies: tuple[Reply, ...]


def parse_entity_id(entity_id: str) -> tuple[str, str]:
    """Split ``@name@key`` into the lower-case name and the key; the first ``@`` after the name ends it.

    Raises:
        ValueError: the text is not an entity id.
    """
    name, separator, key = entity_id[1:].partition("@")
    if not entity_id.startswith("@") or not name or not separator:
        raise ValueError(f"{entity_id!r} is not an entity id of the form '@name@key'")
    return name.lower(), key


def format_entity_id(name: str, key: str) -> str:
    """Write an entity id; names ignore case, keys do not."""
    return f"@{name.lower()}@{key}"


def decide_batch(operations: Sequence[Operation], answer: EntityResult) -> EntityChange:
    """Turn the answer to a batch into changes.

    A failed operation rolls no state back: so does the extension for out-of-process functions.
    """
    replies = tuple(
        Reply(caller, EntityResponded(caller.task_id, caller.request_id, result.result_json, result.has_failed))
        for operation, result in zip(operations, answer.results, strict=False)
        if (caller := operation.caller) is not None
    )
    return EntityChange(answer.exists, answer.state_json if answer.exists else None, replies)


def reject_batch(operations: Sequence[Operation], message: str) -> tuple[Reply, ...]:
    """Answer every caller of a batch with an error; signals are discarded."""
    return tuple(
        Reply(caller, EntityResponded(caller.task_id, caller.request_id, encode_text(message), has_failed=True))
        for operation in operations
        if (caller := operation.caller) is not None
    )
