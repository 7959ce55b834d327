"""The demo's checks: what the model sent, compared with what was stored and replayed. Pure."""

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

Item = Mapping[str, Any]


def check_stored(session: Mapping[str, Any], turn: list[dict[str, Any]], *, has_own_ids: bool = False) -> list[str]:
    """Compare the last turn's stored messages with the items that the model sent.

    Args:
        session: as the route returns it.
        turn: requests of this turn, with the items of their responses.
        has_own_ids: whether the wire has ids and seals of its own in the place of the items'.

    Returns:
        What was lost, one sentence each; may be empty.
    """
    turn_id = session["turns"][-1]["turn_id"]
    messages = [message for message in session["messages"] if message["turn_id"] == turn_id]
    contents = [content for message in messages if message["role"] == "assistant" for content in message["contents"]]
    output = [item for request in turn for item in items_of(request["output"] or [])]
    code = [item for item in output if item["type"] == "code_interpreter_call"]
    calls = [item for item in output if item["type"] == "function_call"]
    losses = [
        *_check_code(contents, code),
        *_check_text(contents, [item for item in output if item["type"] == "message"], has_own_ids=has_own_ids),
        *_check_calls(contents, calls),
    ]
    if has_own_ids:
        return losses
    reasoning = [item for item in output if item["type"] == "reasoning"]
    return [*losses, *_check_ids(contents, code, calls), *_check_reasoning(contents, reasoning)]


def items_of(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Give what a model has sent as items, also where the practice model tells of it in the parts of its wire.

    Args:
        output: of one request, as the practice model's log has it.
    """
    items: list[dict[str, Any]] = []
    for part in output:
        if "type" in part:
            items.append(part)
        elif "functionCall" in part:
            call = part["functionCall"]
            items.append({"type": "function_call", "name": call["name"], "arguments": json.dumps(call["args"])})
        elif "executableCode" in part:
            items.append(
                {"type": "code_interpreter_call", "id": "the code run", "code": part["executableCode"]["code"]}
            )
        elif "codeExecutionResult" in part:
            items[-1]["outputs"] = [{"logs": part["codeExecutionResult"]["output"]}]
        elif part.get("text") and not part.get("thought"):
            said: Item = {"type": "output_text", "text": part["text"], "annotations": []}
            items.append({"type": "message", "content": [said]})
    return items


def _check_code(contents: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[str]:
    calls = [content["content"] for content in contents if content["$type"] in _CODE_CALLS]
    results = {
        content["content"]["call_id"]: content["content"] for content in contents if content["$type"] in _CODE_RESULTS
    }
    losses: list[str] = []
    if len(calls) != len(items):
        losses.append(f"{len(items)} code calls were made, and {len(calls)} contents are stored")
    for call, item in zip(calls, items, strict=False):
        parts = call.get("commands") or [part["text"] for part in call.get("inputs", [])]
        if item["code"] not in "".join(parts):
            losses.append(f"the script of {item['id']} is not the one that ran")
        stored = [text for part in results.get(call["call_id"], {}).get("outputs", []) for text in _said(part)]
        given = [output.get("logs", output.get("url")) for output in cast("list[Item]", item.get("outputs") or [])]
        if not all(any(str(one) in text for text in stored) for one in given):
            losses.append(f"the outputs of {item['id']} are not what it printed: {stored}")
    return losses


_CODE_CALLS = {"codeInterpreterToolCall", "shellToolCall"}
_CODE_RESULTS = {"codeInterpreterToolResult", "shellToolResult"}


def _said(part: Mapping[str, Any]) -> list[str]:
    return [str(part[name]) for name in ("text", "uri", "stdout", "stderr", "message") if part.get(name)]


def _check_ids(contents: list[dict[str, Any]], code: Sequence[Item], calls: Sequence[Item]) -> list[str]:
    """Check the ids that the next request needs, where the wire has the items' own."""
    losses: list[str] = []
    stored = [content["content"] for content in contents if content["$type"] == "codeInterpreterToolCall"]
    if [call["call_id"] for call in stored] != [item["id"] for item in code]:
        losses.append("the ids of the code calls are not stored")
    for call, item in zip(stored, code, strict=False):
        if call.get("additional_properties", {}).get("container_id") != item["container_id"]:
            losses.append(f"the container of {item['id']} is not stored")
    kept = [
        (content["callId"], _ours(content).get("additional_properties", {}).get("fc_id"))
        for content in contents
        if content["$type"] == "functionCall"
    ]
    given = [(item["call_id"], item["id"]) for item in calls]
    return losses if kept == given else [*losses, f"the calls have the ids {given}, and {kept} are stored"]


def _check_text(contents: list[dict[str, Any]], items: list[dict[str, Any]], *, has_own_ids: bool) -> list[str]:
    parts = [part for item in items for part in item["content"] if part["type"] == "output_text"]
    stored = [content for content in contents if content["$type"] == "text"]
    losses: list[str] = []
    said = "".join(part["text"] for part in parts)
    if "".join(content["text"] for content in stored) != said:
        losses.append("the stored text is not what the model said")
    if has_own_ids:
        return losses
    given = [citation for part in parts for citation in part["annotations"]]
    kept = [citation for content in stored for citation in _ours(content).get("annotations", [])]
    regions = [region for citation in kept for region in citation.get("annotated_regions", [])]
    if [citation["file_id"] for citation in given if "file_id" in citation] != [
        citation["file_id"] for citation in kept if "file_id" in citation
    ]:
        losses.append(f"the model cited {len(given)} times, and {len(kept)} citations are stored")
    if [c["start_index"] for c in given if "start_index" in c] != [region["start_index"] for region in regions]:
        losses.append("the places of the citations are not what the model said")
    return losses


def _check_calls(contents: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[str]:
    stored = [
        (content["name"], content["arguments"])
        for content in contents
        if content["$type"] == "functionCall" and not _ours(content).get("informational_only")
    ]
    given = [(item["name"], json.loads(item["arguments"])) for item in items]
    return [] if stored == given else [f"the calls {given} were made, and {stored} are stored"]


def _check_reasoning(contents: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[str]:
    stored = {_ours(content).get("protected_data") for content in contents if content["$type"] == "reasoning"}
    return [
        f"the encrypted reasoning of {item['id']} is not stored"
        for item in items
        if item.get("encrypted_content") and item["encrypted_content"] not in stored
    ]


def _ours(content: Mapping[str, Any]) -> dict[str, Any]:
    return content.get("extensionData", {}).get("durableAgentHost", {})


def check_replayed(agent: str, before: list[dict[str, Any]], turn: list[dict[str, Any]]) -> list[str]:
    """Compare a turn's first request with the last one before it: a cold process replays what a live one sent.

    Args:
        agent: name for the sentences.
        before: requests of the session's earlier turns.
        turn: requests of this turn.

    Returns:
        What was lost, one sentence each; empty when the model's service keeps the conversation.
    """
    if not turn or not _is_whole(turn[0]["body"]):
        return []
    replayed = conversation_of(turn[0]["body"])
    earlier = [conversation_of(request["body"]) for request in before if _is_whole(request["body"])]
    sent = earlier[-1] if earlier else []
    return [
        f"{agent}: item {n} of the conversation was {old}, and is replayed as {new}"
        for n, (old, new) in enumerate(zip_longest(sent, replayed[: len(sent)], fillvalue="nothing"))
        if old != new
    ]


def conversation_of(body: Item | None) -> list[Any]:
    """Give the conversation in a request, as each of the wires names it; empty where the service keeps it.

    Messages of Chat Completions come without their authors' names: a message gets its name when its turn has ended.
    """
    given: Item = body or {}
    said: Any = next((given[name] for name in ("input", "messages", "contents") if name in given), None)
    if said is None:
        return []
    return [_unnamed(one) for one in cast("list[Any]", said)] if isinstance(said, list) else [said]


def _unnamed(entry: Any) -> Any:
    if not isinstance(entry, dict) or "type" in entry:
        return cast("Any", entry)
    return {name: value for name, value in cast("dict[str, Any]", entry).items() if name != "name"}


def _is_whole(body: Item | None) -> bool:
    """Tell whether a request has the whole conversation, and not only what is new."""
    return body is not None and bool(conversation_of(body)) and ("input" not in body or body.get("store") is False)


def check_continued(agent: str, turn: list[dict[str, Any]], *, is_first: bool) -> list[str]:
    """Check that a turn continues the conversation, by replay or by the service's own copy.

    Args:
        agent: name for the sentences.
        turn: requests of this turn.
        is_first: whether this is the session's first turn.

    Returns:
        What was lost, one sentence each; may be empty.
    """
    if is_first or not turn:
        return []
    body = cast("Item", turn[0]["body"] or {})
    is_thread = any("/threads/" in request["path"] for request in turn)
    if is_thread or body.get("previous_response_id") or len(conversation_of(body)) > 1:
        return []
    return [f"{agent}: the turn began without the conversation before it"]
