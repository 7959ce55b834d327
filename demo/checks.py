"""The demo's checks: they compare the items that the model sent with stored and replayed ones. Pure functions."""

import json
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any, cast

Item = Mapping[str, Any]


def check_stored(session: Mapping[str, Any], turn: list[dict[str, Any]], *, has_own_ids: bool = False) -> list[str]:
    """Compare the last turn's stored messages with the items that the model sent.

    Args:
        session: the session as returned by the route.
        turn: requests of this turn, with the items of their responses.
        has_own_ids: whether the API has its own ids and signatures instead of those of the items.

    Returns:
        What was lost, one sentence each; may be empty.
    """
    turn_id = session["turns"][-1]["turn_id"]
    messages = [message for message in session["messages"] if message["turn_id"] == turn_id]
    contents = [content for message in messages if message["role"] == "assistant" for content in message["contents"]]
    output_items = [item for request in turn for item in parse_items(request["output"] or [])]
    code_calls = [item for item in output_items if item["type"] == "code_interpreter_call"]
    calls = [item for item in output_items if item["type"] == "function_call"]
    losses = [
        *_check_code(contents, code_calls),
        *_check_text(contents, [item for item in output_items if item["type"] == "message"], has_own_ids=has_own_ids),
        *_check_calls(contents, calls),
    ]
    if has_own_ids:
        return losses
    reasoning = [item for item in output_items if item["type"] == "reasoning"]
    return [*losses, *_check_ids(contents, code_calls, calls), *_check_reasoning(contents, reasoning)]


def parse_items(output: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items that a model has sent; convert parts of the Gemini API.

    Args:
        output: output of one request, from the practice model's log.
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
            text_part: Item = {"type": "output_text", "text": part["text"], "annotations": []}
            items.append({"type": "message", "content": [text_part]})
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
        code_parts = call.get("commands") or [part["text"] for part in call.get("inputs", [])]
        if item["code"] not in "".join(code_parts):
            losses.append(f"the script of {item['id']} differs from the one that ran")
        stored_texts = [
            text for part in results.get(call["call_id"], {}).get("outputs", []) for text in _get_texts(part)
        ]
        sent_outputs = [
            output.get("logs", output.get("url")) for output in cast("list[Item]", item.get("outputs") or [])
        ]
        if not all(any(str(sent_output) in text for text in stored_texts) for sent_output in sent_outputs):
            losses.append(f"the outputs of {item['id']} differ from its output: {stored_texts}")
    return losses


_CODE_CALLS = {"codeInterpreterToolCall", "shellToolCall"}
_CODE_RESULTS = {"codeInterpreterToolResult", "shellToolResult"}


def _get_texts(part: Mapping[str, Any]) -> list[str]:
    return [str(part[name]) for name in ("text", "uri", "stdout", "stderr", "message") if part.get(name)]


def _check_ids(contents: list[dict[str, Any]], code_items: Sequence[Item], calls: Sequence[Item]) -> list[str]:
    """Check the ids that the next request needs, for an API with the items' ids."""
    losses: list[str] = []
    stored_code_calls = [content["content"] for content in contents if content["$type"] == "codeInterpreterToolCall"]
    if [call["call_id"] for call in stored_code_calls] != [item["id"] for item in code_items]:
        losses.append("the ids of the code calls are not stored")
    for call, item in zip(stored_code_calls, code_items, strict=False):
        if call.get("additional_properties", {}).get("container_id") != item["container_id"]:
            losses.append(f"the container of {item['id']} is not stored")
    stored_ids = [
        (content["callId"], _get_host_fields(content).get("additional_properties", {}).get("fc_id"))
        for content in contents
        if content["$type"] == "functionCall"
    ]
    sent_ids = [(item["call_id"], item["id"]) for item in calls]
    if stored_ids != sent_ids:
        losses.append(f"the calls have the ids {sent_ids}, and {stored_ids} are stored")
    return losses


def _check_text(contents: list[dict[str, Any]], items: list[dict[str, Any]], *, has_own_ids: bool) -> list[str]:
    parts = [part for item in items for part in item["content"] if part["type"] == "output_text"]
    stored_contents = [content for content in contents if content["$type"] == "text"]
    losses: list[str] = []
    sent_text = "".join(part["text"] for part in parts)
    if "".join(content["text"] for content in stored_contents) != sent_text:
        losses.append("the stored text differs from the model's text")
    if has_own_ids:
        return losses
    sent_citations = [citation for part in parts for citation in part["annotations"]]
    stored_citations = [
        citation for content in stored_contents for citation in _get_host_fields(content).get("annotations", [])
    ]
    regions = [region for citation in stored_citations for region in citation.get("annotated_regions", [])]
    if [citation["file_id"] for citation in sent_citations if "file_id" in citation] != [
        citation["file_id"] for citation in stored_citations if "file_id" in citation
    ]:
        losses.append(f"the model cited {len(sent_citations)} times, and {len(stored_citations)} citations are stored")
    if [citation["start_index"] for citation in sent_citations if "start_index" in citation] != [
        region["start_index"] for region in regions
    ]:
        losses.append("the positions of the citations differ from those of the model")
    return losses


def _check_calls(contents: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[str]:
    stored_calls = [
        (content["name"], content["arguments"])
        for content in contents
        if content["$type"] == "functionCall" and not _get_host_fields(content).get("informational_only")
    ]
    sent_calls = [(item["name"], json.loads(item["arguments"])) for item in items]
    return [] if stored_calls == sent_calls else [f"the calls {sent_calls} were made, and {stored_calls} are stored"]


def _check_reasoning(contents: list[dict[str, Any]], items: list[dict[str, Any]]) -> list[str]:
    stored_reasoning = {
        _get_host_fields(content).get("protected_data") for content in contents if content["$type"] == "reasoning"
    }
    return [
        f"the encrypted reasoning of {item['id']} is not stored"
        for item in items
        if item.get("encrypted_content") and item["encrypted_content"] not in stored_reasoning
    ]


def _get_host_fields(content: Mapping[str, Any]) -> dict[str, Any]:
    return content.get("extensionData", {}).get("durableAgentHost", {})


def check_replayed(agent: str, earlier_requests: list[dict[str, Any]], turn: list[dict[str, Any]]) -> list[str]:
    """Compare a turn's first request with the last one before it: a new process replays what the previous one sent.

    Args:
        agent: name of the agent, for the messages.
        earlier_requests: requests of the session's earlier turns.
        turn: requests of this turn.

    Returns:
        What was lost, one sentence each; empty if the model's service stores the conversation.
    """
    if not turn or not _has_full_conversation(turn[0]["body"]):
        return []
    replayed_entries = get_conversation(turn[0]["body"])
    sent_conversations = [
        get_conversation(request["body"]) for request in earlier_requests if _has_full_conversation(request["body"])
    ]
    sent_entries = sent_conversations[-1] if sent_conversations else []
    return [
        f"{agent}: item {index} of the conversation was {sent_entry}, and is replayed as {replayed_entry}"
        for index, (sent_entry, replayed_entry) in enumerate(
            zip_longest(sent_entries, replayed_entries[: len(sent_entries)], fillvalue="nothing")
        )
        if sent_entry != replayed_entry
    ]


def get_conversation(body: Item | None) -> list[Any]:
    """Return the conversation in a request of any API; empty if the service stores it.

    Names of authors are removed: a message of Chat Completions gets its name only after its turn has ended.
    """
    fields: Item = body or {}
    conversation: Any = next((fields[name] for name in ("input", "messages", "contents") if name in fields), None)
    if conversation is None:
        return []
    return (
        [_remove_name(entry) for entry in cast("list[Any]", conversation)]
        if isinstance(conversation, list)
        else [conversation]
    )


def _remove_name(entry: Any) -> Any:
    if not isinstance(entry, dict) or "type" in entry:
        return cast("Any", entry)
    return {name: value for name, value in cast("dict[str, Any]", entry).items() if name != "name"}


def _has_full_conversation(body: Item | None) -> bool:
    """Return whether a request has the full conversation, not only the new items."""
    return body is not None and bool(get_conversation(body)) and ("input" not in body or body.get("store") is False)


def check_continued(agent: str, turn: list[dict[str, Any]], *, is_first: bool) -> list[str]:
    """Check that a turn continues the conversation, by replay or by the service's stored copy.

    Args:
        agent: name of the agent, for the messages.
        turn: requests of this turn.
        is_first: whether this is the session's first turn.

    Returns:
        What was lost, one sentence each; may be empty.
    """
    if is_first or not turn:
        return []
    body = cast("Item", turn[0]["body"] or {})
    is_thread = any("/threads/" in request["path"] for request in turn)
    if is_thread or body.get("previous_response_id") or len(get_conversation(body)) > 1:
        return []
    return [f"{agent}: the turn started without the earlier conversation"]
