"""Rules for requests, with the live API's own error messages.

Pure: clock and server state come as arguments. This module checks parameters and references to state (previous
responses, encrypted content, containers) and orders all checks; `item_shapes` checks the shape of input items,
`pairing` the rules between items.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json
from practice_model.dialects.responses.reading import input_items, kind_of
from practice_model.dialects.responses.transcript import Transcript
from practice_model.rules import item_shapes, pairing
from practice_model.rules.pairing import Issued, ReasoningRules

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
"""A model whose name begins so does not exist."""


@dataclass(frozen=True)
class Rules:
    """Rules inferred, but not observed on the live API; observed rules are always enforced.

    Args:
        dropped_hosted_call: refuse stored reasoning whose hosted call (code, search, MCP, image) was left out. On by
            default, since the same is recorded for messages.
        call_needs_id: refuse stored reasoning before its function call when the call comes without its item id.
        unstored_needs_follower: refuse reasoning without a follower also with `store=false`.
        unstored_message_needs_id: with `store=false`, refuse reasoning with an id before a message without one.
        one_output_per_call: refuse a second output for the same function call.
        annotations_required: refuse assistant text parts without `annotations`, as some strict servers do.
    """

    dropped_hosted_call: bool = True
    call_needs_id: bool = False
    unstored_needs_follower: bool = False
    unstored_message_needs_id: bool = False
    one_output_per_call: bool = False
    annotations_required: bool = False

    @classmethod
    def strict(cls) -> "Rules":
        """Return the rules, all enabled."""
        return cls(**{field.name: True for field in fields(cls)})

    @property
    def reasoning(self) -> ReasoningRules:
        """The rules about reasoning items."""
        return ReasoningRules(
            self.dropped_hosted_call, self.call_needs_id, self.unstored_needs_follower, self.unstored_message_needs_id
        )


class Knowledge(Protocol):
    """The service's state from earlier requests."""

    def transcript_of(self, response_id: str) -> Transcript | None:
        """Return the items up to and with a stored response; None if it is not stored."""
        ...

    def conversation(self, conversation_id: str) -> Transcript | None:
        """Return the items of a conversation; None if it is unknown."""
        ...

    def issued_item(self, item_id: str) -> Issued | None:
        """Return the item issued under this id."""
        ...

    def is_good_encrypted(self, value: str) -> bool:
        """Return whether an encrypted value is genuine."""
        ...

    def container_is_expired(self, container_id: str, now: float) -> bool:
        """Return whether a container is known and has expired."""
        ...


def conversation_id(body: Mapping[str, Any]) -> str | None:
    """Return the id of the conversation that the request continues."""
    given: Any = body.get("conversation")
    return cast("Json", given).get("id") if isinstance(given, dict) else given


def check_request(body: Any, known: Knowledge, rules: Rules, *, now: float) -> HttpError | None:
    """Return the live API's error for this request; None if it is accepted.

    Guarantee: pure.

    Args:
        body: the parsed body, or None if it is not JSON.
        known: the service's state.
        rules: enabled inferred rules.
        now: seconds, on the clock of `known`'s containers.
    """
    if not isinstance(body, dict):
        hint = "The API expects a JSON payload, but what was sent was not valid JSON."
        return HttpError(400, f"We could not parse the JSON body of your request. {hint}")
    for objection in _objections(cast("Json", body), known, rules, now):
        return objection
    return None


def _objections(body: Json, known: Knowledge, rules: Rules, now: float) -> Iterator[HttpError]:
    yield from _type_objections(body)
    yield from _parameter_objections(body)
    yield from _tool_objections(body, known, now)
    sent = input_items(body)
    shape = item_shapes.check_shape(sent, annotations_required=rules.annotations_required)
    if shape:
        yield shape
    yield from _continuation_objections(body, known)
    yield from _item_objections(sent, known, now)
    replayed, kept = [resolve(item, known) for item in sent], kept_items(body, known)
    stored = body.get("store") is not False
    for objection in (
        pairing.check_duplicates(replayed, kept),
        pairing.check_reasoning(replayed, kept, known, rules.reasoning, stored=stored),
        pairing.check_approvals(replayed, kept),
        pairing.check_calls(replayed, kept, one_output_per_call=rules.one_output_per_call),
    ):
        if objection:
            yield objection


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
"""The parameters that this server itself reads, with the types that they may have."""


def _type_objections(body: Json) -> Iterator[HttpError]:
    for name, types in _TYPES.items():
        if body.get(name) is not None and not isinstance(body[name], types):
            yield item_shapes.wrong_type(name, types, body[name])
    for name in ("input", "tools"):
        given: Any = body.get(name)
        for number, one in enumerate(cast("list[Any]", given) if isinstance(given, list) else []):
            if not isinstance(one, dict):
                yield item_shapes.wrong_type(f"{name}[{number}]", (dict,), one)
    if isinstance(body.get("conversation"), dict) and not isinstance(body["conversation"].get("id"), str):
        yield item_shapes.missing("conversation.id")


def _parameter_objections(body: Json) -> Iterator[HttpError]:
    for name in body:
        if name not in PARAMETERS:
            yield HttpError(400, f"Unknown parameter: '{name}'.", "unknown_parameter", name)
    for name in ("model", "input"):
        if body.get(name) is None:
            yield item_shapes.missing(name)
    for name in ("temperature", "top_p"):
        value = body.get(name)
        if isinstance(value, int | float) and value < 0:
            shown = f"Invalid '{name}': decimal below minimum value. Expected a value >= 0, but got {value} instead."
            yield HttpError(400, shown, "decimal_below_min_value", name)
    if str(body["model"]).startswith(UNKNOWN_MODELS):
        yield HttpError(400, f"The requested model '{body['model']}' does not exist.", "model_not_found", "model")


def _tool_objections(body: Json, known: Knowledge, now: float) -> Iterator[HttpError]:
    for number, tool in enumerate(cast("list[Json]", body.get("tools") or [])):
        if tool.get("type") == "function" and not isinstance(tool.get("name"), str):
            yield item_shapes.missing(f"tools[{number}].name")
        if tool.get("type") != "code_interpreter":
            continue
        container = tool.get("container")
        if container is None:
            yield item_shapes.missing(f"tools[{number}].container")
        if isinstance(container, str) and known.container_is_expired(container, now):
            yield HttpError(400, "Container is expired.")


def _continuation_objections(body: Json, known: Knowledge) -> Iterator[HttpError]:
    previous, conversation = body.get("previous_response_id"), conversation_id(body)
    if previous and conversation:
        shown = (
            "Mutually exclusive parameters: ''. "
            "Ensure you are only providing one of: 'previous_response_id' or 'conversation'."
        )
        yield HttpError(400, shown, "mutually_exclusive_parameters")
    if previous and known.transcript_of(previous) is None:
        shown = f"Previous response with id '{previous}' not found."
        yield HttpError(400, shown, "previous_response_not_found", "previous_response_id")
    if conversation and known.conversation(conversation) is None:
        yield HttpError(404, f"Conversation with id '{conversation}' not found.")


def _item_objections(sent: Sequence[Json], known: Knowledge, now: float) -> Iterator[HttpError]:
    """Yield the objections to single items that depend on the service's state."""
    for item in sent:
        kind, encrypted = kind_of(item), item.get("encrypted_content")
        if isinstance(encrypted, str) and not known.is_good_encrypted(encrypted):
            yield HttpError(400, _encrypted_message(item, encrypted), "invalid_encrypted_content")
        refers = kind == "item_reference" or (kind == "reasoning" and encrypted is None)
        if refers and not _is_stored(item["id"], known):
            yield HttpError(404, _not_persisted_message(item["id"]), param="input")
        if kind == "code_interpreter_call" and known.container_is_expired(item["container_id"], now):
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


def _is_stored(item_id: str, known: Knowledge) -> bool:
    issued = known.issued_item(item_id)
    return issued is not None and issued.stored


def resolve(item: Json, known: Knowledge) -> Json:
    """Return the stored item of a reference, any other item unchanged."""
    issued = known.issued_item(item["id"]) if kind_of(item) == "item_reference" else None
    return issued.item if issued else item


def kept_items(body: Json, known: Knowledge) -> Transcript:
    """Return the items that the service prepends to the input."""
    if body.get("previous_response_id"):
        return known.transcript_of(body["previous_response_id"]) or Transcript()
    conversation = conversation_id(body)
    return (known.conversation(conversation) if conversation else None) or Transcript()
