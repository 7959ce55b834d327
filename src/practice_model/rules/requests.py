"""Rules for requests, with the live API's own error messages.

Clock and server state are arguments. This module checks parameters and references to state (previous responses,
encrypted content, containers) and orders all checks; `item_shapes` checks the schema of input items, `pairing` the
rules between items.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError, missing_parameter_error, wrong_type_error
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import get_item_type, input_items
from practice_model.dialects.responses.transcript import Transcript
from practice_model.rules import item_shapes, pairing
from practice_model.store import Store

PARAMETERS = frozenset(
    {"access_programs", "background", "context_management", "conversation", "image", "include", "input", "instructions"}
    | {"max_output_tokens", "max_tool_calls", "metadata", "model", "moderation", "parallel_tool_calls"}
    | {"previous_response_id", "prompt", "prompt_cache_key", "prompt_cache_options", "prompt_cache_retention"}
    | {"reasoning", "safety_identifier", "service_tier", "store", "stream", "stream_options", "temperature", "text"}
    | {"tool_choice", "tools", "top_logprobs", "top_p", "truncation", "user"}
    | {"agent_reference", "agent_session_id"}
)
"""Parameters of `POST /responses` (openai-python 3.52), the last two of Foundry's (agent-framework-foundry 1.15)."""

UNKNOWN_MODELS = "unknown"
"""Prefix of the names of models that do not exist."""


@dataclass(frozen=True)
class Rules:
    """Rules not observed on the live API; observed rules are always enforced.

    Args:
        is_strict: enforce rules that are only inferred. Stored reasoning before its function call needs the call's item
            id. With `store=false`, reasoning with an id needs a follower, and a message that follows needs an id. A
            function call has one output. Text parts of an assistant need `annotations`.
    """

    is_strict: bool = False


def get_conversation_id(body: Mapping[str, Any]) -> str | None:
    """Return the id of the conversation that the request continues."""
    conversation: Any = body.get("conversation")
    return cast("Json", conversation).get("id") if isinstance(conversation, dict) else conversation


def check_request(body: Any, service_state: Store, rules: Rules, *, now: float) -> HttpError | None:
    """Return the live API's error for this request; None if it is accepted."""
    if not isinstance(body, dict):
        hint = "The API expects a JSON payload, but what was sent was not valid JSON."
        return HttpError(400, f"We could not parse the JSON body of your request. {hint}")
    for violation in _find_violations(cast("Json", body), service_state, rules, now):
        return violation
    return None


def _find_violations(body: Json, service_state: Store, rules: Rules, now: float) -> Iterator[HttpError]:
    yield from _find_type_violations(body)
    yield from _find_parameter_violations(body)
    yield from _find_tool_violations(body, service_state, now)
    items = input_items(body)
    schema_error = item_shapes.check_item_schema(items, is_strict=rules.is_strict)
    if schema_error:
        yield schema_error
    yield from _find_continuation_violations(body, service_state)
    yield from _find_item_violations(items, service_state, now)
    replayed_items = [resolve_reference(item, service_state) for item in items]
    previous_items = get_previous_items(body, service_state)
    is_stored = body.get("store") is not False
    for violation in (
        pairing.check_duplicates(replayed_items, previous_items),
        pairing.check_reasoning(
            replayed_items, previous_items, service_state, is_stored=is_stored, is_strict=rules.is_strict
        ),
        pairing.check_approvals(replayed_items, previous_items),
        pairing.check_calls(replayed_items, previous_items, is_strict=rules.is_strict),
    ):
        if violation:
            yield violation


_TYPES: dict[str, tuple[type, ...]] = {
    "background": (bool,),
    "conversation": (str, dict),
    "include": (list,),
    "input": (str, list),
    "instructions": (str, list),
    "model": (str,),
    "previous_response_id": (str,),
    "store": (bool,),
    "stream": (bool,),
    "tools": (list,),
}
"""The parameters that this server reads, with their allowed types."""


def _find_type_violations(body: Json) -> Iterator[HttpError]:
    for name, types in _TYPES.items():
        if body.get(name) is not None and not isinstance(body[name], types):
            yield wrong_type_error(name, types, body[name])
    for name in ("input", "tools"):
        values: Any = body.get(name)
        for index, value in enumerate(cast("list[Any]", values) if isinstance(values, list) else []):
            if not isinstance(value, dict):
                yield wrong_type_error(f"{name}[{index}]", (dict,), value)
    if isinstance(body.get("conversation"), dict) and not isinstance(body["conversation"].get("id"), str):
        yield missing_parameter_error("conversation.id")


def _find_parameter_violations(body: Json) -> Iterator[HttpError]:
    for name in body:
        if name not in PARAMETERS:
            yield HttpError(400, f"Unknown parameter: '{name}'.", "unknown_parameter", name)
    for name in ("model", "input"):
        if body.get(name) is None:
            yield missing_parameter_error(name)
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if isinstance(value, int | float) and value < 0:
            reason = f"Invalid '{name}': decimal below minimum value. Expected a value >= 0, but got {value} instead."
            yield HttpError(400, reason, "decimal_below_min_value", name)
    if str(body["model"]).startswith(UNKNOWN_MODELS):
        yield HttpError(400, f"The requested model '{body['model']}' does not exist.", "model_not_found", "model")


def _find_tool_violations(body: Json, service_state: Store, now: float) -> Iterator[HttpError]:
    for index, tool in enumerate(cast("list[Json]", body.get("tools") or [])):
        if tool.get("type") == "function" and not isinstance(tool.get("name"), str):
            yield missing_parameter_error(f"tools[{index}].name")
        if tool.get("type") != "code_interpreter":
            continue
        container = tool.get("container")
        if container is None:
            yield missing_parameter_error(f"tools[{index}].container")
        if isinstance(container, str) and service_state.is_container_expired(container, now):
            yield HttpError(400, "Container is expired.")


def _find_continuation_violations(body: Json, service_state: Store) -> Iterator[HttpError]:
    previous = body.get("previous_response_id")
    conversation = get_conversation_id(body)
    if previous and conversation:
        reason = (
            "Mutually exclusive parameters: ''. "
            "Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
        )
        yield HttpError(400, reason, "mutually_exclusive_parameters")
    if previous and previous not in service_state.responses:
        reason = f"Previous response with id '{previous}' not found."
        yield HttpError(400, reason, "previous_response_not_found", "previous_response_id")
    if conversation and conversation not in service_state.conversations:
        yield HttpError(404, f"Conversation with id '{conversation}' not found.")


def _find_item_violations(items: Sequence[Json], service_state: Store, now: float) -> Iterator[HttpError]:
    """Yield the violations of single items that depend on the service's state."""
    for item in items:
        item_type = get_item_type(item)
        encrypted_content = item.get("encrypted_content")
        if isinstance(encrypted_content, str) and not service_state.is_genuine_encrypted(encrypted_content):
            yield HttpError(400, _encrypted_message(item, encrypted_content), "invalid_encrypted_content")
        is_reference = item_type == "item_reference" or (item_type == "reasoning" and encrypted_content is None)
        if is_reference and not _is_stored(item["id"], service_state):
            yield HttpError(404, _not_persisted_message(item["id"]), param="input")
        if item_type == "code_interpreter_call" and service_state.is_container_expired(item["container_id"], now):
            yield HttpError(400, f"Expected container_id: {item['container_id']}", param="input")


def _encrypted_message(item: Json, value: str) -> str:
    if not item.get("id"):
        return f"The encrypted content {value[:4]}...{value[-4:]} could not be verified."
    return (
        f"The encrypted content for item {item['id']} could not be verified. "
        "Reason: Encrypted content could not be decrypted or parsed."
    )


def _not_persisted_message(item_id: str) -> str:
    return (
        f"Item with id '{item_id}' not found. Items are not persisted when `store` is set to false. "
        "Try again with `store` set to true, or remove this item from your input."
    )


def _is_stored(item_id: str, service_state: Store) -> bool:
    issued_item = service_state.issued_items.get(item_id)
    return issued_item is not None and issued_item.is_stored


def resolve_reference(item: Json, service_state: Store) -> Json:
    """Return the stored item of a reference, any other item unchanged."""
    issued_item = service_state.issued_items.get(item["id"]) if get_item_type(item) == "item_reference" else None
    return issued_item.item if issued_item else item


def get_previous_items(body: Json, service_state: Store) -> Transcript:
    """Return the items that the service prepends to the input."""
    if body.get("previous_response_id"):
        return service_state.responses[body["previous_response_id"]].transcript
    conversation = get_conversation_id(body)
    return service_state.conversations[conversation] if conversation else Transcript()
