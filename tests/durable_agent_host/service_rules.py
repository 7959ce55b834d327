"""What services say to a request: OpenAI, Anthropic and Gemini by the rules of their stand-ins, others by reports.

The stand-ins of `STAND_INS` refuse in the words of the public reports that `providers.services` names.
"""

import json
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

from practice_model.dialects.responses.transcript import Transcript
from practice_model.rules import chat_requests, item_shapes, pairing
from tests.stand_ins.anthropic import rules as anthropic_rules
from tests.stand_ins.gemini import rules as gemini_rules


class _KnowsNothing:
    """A service that has issued nothing which a request could name."""

    def is_genuine_signature(self, value: str) -> bool:
        return bool(value)

    def find_thought(self, signature: str) -> str | None:
        del signature

    def find_thought_signatures(self, call_id: str) -> list[str]:
        del call_id
        return []

    def has_issued_type(self, kind: str) -> bool:
        del kind
        return False

    def container_error(self, container_id: str) -> str | None:
        del container_id


def find_violation(client: str, body: Any) -> Any:
    """Return the service's error for a request; None if it is accepted."""
    match client:
        case "Responses":
            items, transcript = body["input"], Transcript()
            pairing_error = pairing.check_calls(items, transcript, is_strict=True)
            schema_error = item_shapes.check_item_schema(items, is_strict=False)
            return schema_error or pairing_error or pairing.check_duplicates(items, transcript)
        case "Completions":
            return chat_requests.check_request(body)
        case "Claude":
            return anthropic_rules.check_request(body, _KnowsNothing())
        case _:
            return gemini_rules.check_request("m", body, bool, ())


Refusal = tuple[int, Any]
Json = dict[str, Any]


def _error(message: str, status: int = 400) -> Refusal:
    return status, {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


def _calls(body: Json) -> Iterator[tuple[int, Json]]:
    for index, message in enumerate(body["messages"]):
        for call in message.get("tool_calls") or ():
            yield index, call


def _forbid(path: list[Any]) -> Refusal:
    detail = [{"type": "extra_forbidden", "loc": ["body", *path], "msg": "Extra inputs are not permitted"}]
    return 422, {"object": "error", "message": {"detail": detail}, "type": "invalid_request_error", "code": None}


def _mistral(body: Json) -> Iterator[Refusal]:
    for index, message in enumerate(body["messages"]):
        for name in ("name", "reasoning_content", "refusal", "annotations"):
            if name in message:
                yield _forbid(["messages", index, message["role"], name])
        if message["role"] == "assistant" and not (message.get("content") or message.get("tool_calls")):
            yield _error("Assistant message must have either content or tool_calls, but not none.")
    yield from (_forbid([name]) for name in ("store", "max_completion_tokens") if name in body)
    for _, call in _calls(body):
        if not re.fullmatch("[a-zA-Z0-9]{9}", call["id"]):
            yield _error(f"Tool call id was {call['id']} but must be a-z, A-Z, 0-9, with a length of 9.")
    roles = [message["role"] for message in body["messages"]]
    if ("tool", "user") in pairwise(roles):
        yield _error("Unexpected role 'user' after role 'tool'")


def _groq(body: Json) -> Iterator[Refusal]:
    for index, message in enumerate(body["messages"]):
        for name in ("reasoning", "reasoning_content", "annotations"):
            if name in message:
                path = f"'messages.{index}'"
                rule = f"({path} : property '{name}' is unsupported)"
                yield _error(f"{path} : for 'role:{message['role']}' the following must be satisfied[{rule}]")


def _deepseek(body: Json) -> Iterator[Refusal]:
    ids = [call["id"] for _, call in _calls(body)]
    if len(ids) != len(set(ids)):
        yield _error("Duplicate value for 'tool_call_id' of in message[4]")
    if "image_url" in json.dumps(body["messages"]):
        yield _error("Failed to deserialize the JSON body: messages[4]: unknown variant `image_url`, expected `text`")
    for message in body["messages"]:
        if message.get("tool_calls") and "reasoning_content" not in message:
            yield _error("The `reasoning_content` in the thinking mode must be passed back to the API.")


def _xai(body: Json) -> Iterator[Refusal]:
    if any(message.get("content") is None for message in body["messages"]):
        text = "Invalid request content: Each message must have at least one content element."
        yield 400, {"code": "Client specified an invalid argument", "error": text}


def _arguments(body: Json, status: int) -> Iterator[Refusal]:
    for _, call in _calls(body):
        try:
            is_object = isinstance(json.loads(call["function"]["arguments"]), dict)
        except ValueError as error:
            yield _error(f"Failed to parse tool call arguments as JSON: {error}", status)
        else:
            if not is_object:
                yield _error("Can only get item pairs from a mapping.", status)


def _vllm(body: Json) -> Iterator[Refusal]:
    yield from _arguments(body, 400)
    if any(message["role"] == "system" for message in body["messages"][1:]):
        yield _error("System message must be at the beginning.")
    roles = [message["role"] for message in body["messages"] if message["role"] in {"user", "assistant"}]
    if any(role == next_role == "user" for role, next_role in pairwise(roles)):
        yield _error(
            "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
        )


def _ollama(body: Json) -> Iterator[Refusal]:
    if any(message.get("content") is None for message in body["messages"]):
        yield _error("invalid message content type: <nil>")


def _llama_cpp(body: Json) -> Iterator[Refusal]:
    yield from _arguments(body, 500)
    if any(message.get("content") is None for message in body["messages"]):
        yield _error("Expected 'content' to be a string or an array")


def _bedrock(body: Json) -> Iterator[Refusal]:
    for index, message in enumerate(body["messages"]):
        if message.get("content") == "":
            yield 400, {"message": f"The text field in the ContentBlock object at messages.{index}.content.0 is blank."}


STAND_INS: dict[str, Callable[[Json], Iterator[Refusal]]] = {
    "Mistral": _mistral,
    "Groq": _groq,
    "DeepSeek": _deepseek,
    "xAI": _xai,
    "vLLM": _vllm,
    "Ollama": _ollama,
    "llama.cpp": _llama_cpp,
    "Bedrock": _bedrock,
}
"""Name of a service → what it refuses in a request of Chat Completions."""
