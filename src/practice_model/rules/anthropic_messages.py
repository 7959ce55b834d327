"""Rules for requests of the Messages API, with the live API's own error messages. Pure.

Source: recorded refusals and accepted requests, and messages that public projects quote. A block of an unknown type is
accepted when the service has issued it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from practice_model.dialects.anthropic.reading import blocks_of, messages_of
from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

_CACHED = frozenset({"cache_control"})
_RESULT = frozenset({"tool_use_id", "content", "caller"}) | _CACHED

FIELDS: dict[str, frozenset[str]] = {
    "text": frozenset({"text", "citations"}) | _CACHED,
    "image": frozenset({"source"}) | _CACHED,
    "document": frozenset({"source", "title", "context", "citations"}) | _CACHED,
    "search_result": frozenset({"source", "title", "content", "citations"}) | _CACHED,
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
    "tool_use": frozenset({"id", "name", "input", "caller"}) | _CACHED,
    "tool_result": frozenset({"tool_use_id", "content", "is_error"}) | _CACHED,
    "server_tool_use": frozenset({"id", "name", "input", "caller"}) | _CACHED,
    "mcp_tool_use": frozenset({"id", "name", "server_name", "input"}) | _CACHED,
    "mcp_tool_result": frozenset({"tool_use_id", "content", "is_error"}) | _CACHED,
    "web_search_tool_result": _RESULT,
    "web_fetch_tool_result": _RESULT,
    "advisor_tool_result": _RESULT,
    "tool_search_tool_result": _RESULT,
    "code_execution_tool_result": _RESULT,
    "bash_code_execution_tool_result": _RESULT,
    "text_editor_code_execution_tool_result": _RESULT,
    "container_upload": frozenset({"file_id"}) | _CACHED,
    "compaction": frozenset({"content", "encrypted_content"}) | _CACHED,
}
"""Type of block → the fields that it may have besides its type (anthropic 1.17, the ``Param`` types)."""

_CALLS = frozenset({"server_tool_use", "mcp_tool_use"})
_THOUGHTS = frozenset({"thinking", "redacted_thinking"})
_USER_ONLY = frozenset({"tool_result", "image", "document", "container_upload", "search_result"})
_PATTERNS = {
    "tool_use": {"id": r"^[a-zA-Z0-9_-]+$", "name": r"^[a-zA-Z0-9_-]{1,128}$"},
    "server_tool_use": {"id": r"^srvtoolu_[a-zA-Z0-9_]+$"},
    "mcp_tool_use": {"id": r"^[a-zA-Z0-9_-]+$"},
}
"""Type of block → the patterns of its fields."""


class Knowledge(Protocol):
    """The service's state from earlier requests."""

    def is_good_signature(self, value: str) -> bool:
        """Return whether a signature or sealed thoughts are genuine."""
        ...

    def thought_of(self, signature: str) -> str | None:
        """Return the thinking that was issued with a signature; None when it is not known."""
        ...

    def thoughts_before(self, call_id: str) -> Sequence[str]:
        """Return the signatures of the thoughts of the message that issued a call."""
        ...

    def issued_type(self, kind: str) -> bool:
        """Return whether a block of this type was issued."""
        ...

    def container_trouble(self, container_id: str, now: float) -> str | None:
        """Return why a container cannot be used, or None."""
        ...


def check_request(body: Any, known: Knowledge, *, now: float) -> HttpError | None:
    """Return the live API's error for this request; None if it is accepted.

    Guarantee: pure.

    Args:
        body: the parsed body, or None if it is not JSON.
        known: the service's state.
        now: seconds, on the clock of `known`'s containers.
    """
    if not isinstance(body, dict):
        return HttpError(400, "The request body is not valid JSON.")
    request = cast("Json", body)
    if str(request.get("model")).startswith("unknown"):
        return HttpError(404, f"model: {request['model']}")
    for told in _objections(request, known, now):
        return HttpError(400, told)
    return None


def _objections(body: Json, known: Knowledge, now: float) -> Iterator[str]:
    for name in ("model", "max_tokens", "messages"):
        if body.get(name) is None:
            yield f"{name}: Field required"
    yield from _shapes(cast("list[Json]", body["messages"]), known)
    messages = messages_of(body)
    if messages[0]["role"] != "user":
        yield 'messages: first message must use the "user" role'
    for place, message in enumerate(messages):
        if not message["content"] and not (place + 1 == len(messages) and message["role"] == "assistant"):
            yield (
                f"messages.{place}: all messages must have non-empty content except for the optional final assistant "
                "message"
            )
    yield from _client_tools(messages)
    yield from _hosted_tools(messages)
    yield from _thoughts(body, messages, known)
    yield from _container(body.get("container"), known, now)


def _container(given: Any, known: Knowledge, now: float) -> Iterator[str]:
    name = cast("Json", given).get("id") if isinstance(given, dict) else given
    if isinstance(name, str) and (trouble := known.container_trouble(name, now)):
        yield f"container: {trouble}"


def _shapes(given: Sequence[Json], known: Knowledge) -> Iterator[str]:
    if not given:
        yield "messages: at least one message is required"
    for place, message in enumerate(given):
        if message.get("role") not in {"user", "assistant"}:
            yield f"messages.{place}.role: Input should be 'user' or 'assistant'"
        for number, block in enumerate(blocks_of(message.get("content"))):
            yield from _shape(f"messages.{place}.content.{number}", block, str(message.get("role")), known)


def _shape(place: str, block: Json, role: str, known: Knowledge) -> Iterator[str]:
    kind = str(block.get("type"))
    fields = FIELDS.get(kind)
    if fields is None:
        if not known.issued_type(kind):
            expected = ", ".join(f"'{name}'" for name in FIELDS)
            yield f"{place}: Input tag '{kind}' found using 'type' does not match any of the expected tags: {expected}"
        return
    for name in block:
        if name != "type" and name not in fields:
            yield f"{place}.{kind}.{name}: Extra inputs are not permitted"
    for name in ("tool_use_id", "id", "signature", "data", "thinking", "text", "input"):
        if name in fields and block.get(name) is None:
            yield f"{place}.{kind}.{name}: Field required"
    if kind == "text":
        yield from _text(str(block["text"]))
    if "input" in fields and not isinstance(block["input"], dict):
        yield f"{place}.{kind}.input: Input should be a valid dictionary"
    yield from _patterns(place, kind, block)
    yield from _role(place, kind, role)


def _patterns(place: str, kind: str, block: Json) -> Iterator[str]:
    for name, pattern in _PATTERNS.get(kind, {}).items():
        given: Any = block.get(name)
        if not isinstance(given, str) or not re.fullmatch(pattern, given):
            yield f"{place}.{kind}.{name}: String should match pattern '{pattern}'"


def _text(text: str) -> Iterator[str]:
    if not text:
        yield "messages: text content blocks must be non-empty"
    if not text.strip():
        yield "messages: text content blocks must contain non-whitespace text"


def _role(place: str, kind: str, role: str) -> Iterator[str]:
    if role == "user" and kind in {"tool_use", *_CALLS, *_THOUGHTS}:
        yield f"{place}: `{kind}` blocks can only be in `assistant` messages"
    if role == "assistant" and kind in _USER_ONLY:
        yield f"{place}: `{kind}` blocks can only be in `user` messages"


def _client_tools(messages: Sequence[Json]) -> Iterator[str]:
    """Every call of the client's tools is answered at the start of the next message, and nothing else is."""
    seen: set[Any] = set()
    for place, message in enumerate(messages):
        calls = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        if seen & set(calls) or len(set(calls)) < len(calls):
            yield "messages: `tool_use` ids must be unique"
        seen |= set(calls)
        after = cast("list[Json]", messages[place + 1]["content"]) if place + 1 < len(messages) else []
        answered = _leading_results(after)
        if missing := [call for call in calls if call not in answered]:
            yield (
                f"messages.{place}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{', '.join(missing)}. Each `tool_use` block must have a corresponding `tool_result` block in the "
                "next message."
            )
        before = cast("list[Json]", messages[place - 1]["content"]) if place else []
        called = {block["id"] for block in before if block["type"] == "tool_use"}
        told: set[Any] = set()
        for number, block in enumerate(message["content"]):
            if block["type"] != "tool_result":
                continue
            name = block["tool_use_id"]
            if name not in called:
                yield (
                    f"messages.{place}.content.{number}: unexpected `tool_use_id` found in `tool_result` blocks: "
                    f"{name}. Each `tool_result` block must have a corresponding `tool_use` block in the previous "
                    "message."
                )
            if name in told:
                yield (
                    f"messages.{place}.content.{number}: each tool_use must have a single result. Found multiple "
                    f"`tool_result` blocks with id: {name}"
                )
            told.add(name)


def _leading_results(blocks: Sequence[Json]) -> list[Any]:
    found: list[Any] = []
    for block in blocks:
        if block["type"] != "tool_result":
            break
        found.append(block["tool_use_id"])
    return found


def _hosted_tools(messages: Sequence[Json]) -> Iterator[str]:
    """The result of the service's own tool stands behind its call; only an unfinished answer has calls without one."""
    asked = max((n for n, message in enumerate(messages) if _is_asked(message)), default=-1)
    open_calls: dict[Any, tuple[int, Json]] = {}
    for place, message in enumerate(messages):
        for number, block in enumerate(message["content"]):
            kind = str(block["type"])
            if kind in _CALLS:
                open_calls[block["id"]] = place, block
            elif kind.endswith("_tool_result") and open_calls.pop(block["tool_use_id"], None) is None:
                yield (
                    f"messages.{place}.content.{number}: unexpected `tool_use_id` found in `{kind}` blocks: "
                    f"{block['tool_use_id']}. Each `{kind}` block must have a corresponding `server_tool_use` block "
                    "before it."
                )
    for name, (place, block) in open_calls.items():
        if place < asked:
            yield (
                f"messages.{place}: `{block['name']}` tool use with id `{name}` was found without a corresponding "
                f"`{block['name']}_tool_result` block"
            )


def _is_asked(message: Json) -> bool:
    return message["role"] == "user" and any(block["type"] != "tool_result" for block in message["content"])


def _thoughts(body: Json, messages: Sequence[Json], known: Knowledge) -> Iterator[str]:
    """Thoughts are genuine and unchanged, and all there where a loop of the client's tools goes on."""
    for place, message in enumerate(messages):
        for number, block in enumerate(message["content"]):
            name = f"messages.{place}.content.{number}"
            sealed = block.get("signature") if block["type"] == "thinking" else block.get("data")
            if block["type"] in _THOUGHTS:
                field = "signature" if block["type"] == "thinking" else "data"
                if not known.is_good_signature(str(sealed)):
                    yield f"{name}: Invalid `{field}` in `{block['type']}` block"
                issued = known.thought_of(str(sealed))
                if block["type"] == "thinking" and issued is not None and issued != block["thinking"]:
                    yield _modified(name)
    latest = max((n for n, message in enumerate(messages) if message["role"] == "assistant"), default=None)
    if latest is None or cast("Json", body.get("thinking") or {}).get("type") == "disabled":
        return
    blocks = cast("list[Json]", messages[latest]["content"])
    sent = {block.get("signature") or block.get("data") for block in blocks if block["type"] in _THOUGHTS}
    for call in (block["id"] for block in blocks if block["type"] == "tool_use"):
        if not sent.issuperset(known.thoughts_before(call)):
            yield _modified(f"messages.{latest}.content.0")


def _modified(place: str) -> str:
    return (
        f"{place}: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified. These "
        "blocks must remain as they were in the original response."
    )


def missing_key(headers: Mapping[str, str]) -> HttpError | None:
    """Return the live API's error for a request without a key; None if it has one."""
    if headers.get("x-api-key") or headers.get("authorization"):
        return None
    return HttpError(401, "x-api-key header is required")
