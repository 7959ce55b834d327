"""What clients of MCP see of a turn: its progress, its result, and the calls that wait for a person. Pure."""

from collections.abc import Container, Mapping
from typing import Any, Final

from durable_agent_host.agent_client import Answer, TurnResult
from durable_agent_host.codec.log_entry import encode_compact
from durable_agent_host.codec.strict_json import object_at, read_json
from durable_agent_host.model.pending_call import DECISIONS
from durable_agent_host.protocols.mcp.messages import Wire
from durable_agent_host.protocols.mcp.tool_call import join_parts

_DECISION: Final = {
    "type": "object",
    "properties": {"approved": {"type": "boolean"}, "reason": {"type": "string"}},
    "required": ["approved"],
}


def tool_result(data: Mapping[str, Any]) -> Wire:
    """Make the result of a call from a turn that has ended, or from its last event."""
    status = data["status"]
    failure = data.get("detail") or object_at(data, "error").get("message") or object_at(data, "refusal").get("message")
    if status == "cancelled":
        failure = "the turn was cancelled"
    response = data.get("response") or ""
    texts = [text for text in (response, failure) if text] or [""]
    files = [
        {"type": "resource_link", "uri": file["file_url"], "name": file["name"] or file["id"]}
        for message in data.get("messages") or ()
        for file in message["files"]
        if "://" in file.get("file_url", "")
    ]
    session_id = data["session_id"]
    structured = {"response": response, "sessionId": session_id, "turnId": data["turn_id"], "status": status}
    result = {
        "content": [*map(_text, texts), _text(f"(sessionId of this conversation: {session_id})"), *files],
        "structuredContent": structured,
    }
    return result | ({"isError": True} if failure else {})


def failed_result(text: str) -> Wire:
    """Make the result of a call that has no answer."""
    return {"content": [_text(text)], "isError": True}


def _text(text: str) -> Wire:
    return {"type": "text", "text": text}


def task_of(turn: TurnResult) -> Wire:
    """Show a turn as a task."""
    data = turn.data
    task: Wire = {
        "taskId": join_parts(turn.agent, turn.session_id, turn.turn_id),
        "createdAt": data.get("created_at"),
        "lastUpdatedAt": data.get("ended_at", data.get("created_at")),
        "ttlMs": None,
        "pollIntervalMs": 1000,
    }
    if questions := questions_of(turn, data):
        return task | {"status": "input_required", "inputRequests": questions}
    if "ended_at" not in data or turn.status == "cancelled":
        return task | {"status": "cancelled" if "ended_at" in data else "working"}
    return task | {"status": "completed", "result": tool_result(data)}


def questions_of(turn: TurnResult, state: Mapping[str, Any], replied_names: Container[str] = ()) -> Wire:
    """Return what a person is asked, as forms, by a name with which `reply_to` finds the call.

    Args:
        turn: its current state, which knows what has an answer.
        state: the turn or the event that says which calls wait, also of the turn before it.
        replied_names: the names of those that the client has just answered.
    """
    turn_id = state.get("running_turn_id", turn.turn_id)
    replied_ids = {answer["call_id"] for answer in turn.data.get("answers", ())}
    questions: Wire = {}
    for call in () if "ended_at" in turn.data else state.get("pending_calls", ()):
        name = join_parts(turn.agent, turn.session_id, turn_id, call["kind"], call["call_id"])
        if call["kind"] == "callback" or call["call_id"] in replied_ids or name in replied_names:
            continue
        form = _DECISION if call["kind"] in DECISIONS else _result_form(call.get("schema"))
        question = f"{call['name']} {encode_compact(call['arguments'])}: {call.get('reason') or 'your answer?'}"
        params = {"mode": "form", "message": question, "requestedSchema": form}
        questions[name] = {"method": "elicitation/create", "params": params}
    return questions


def _result_form(schema: Any) -> Wire:
    field = {"type": "string", "description": f"a text, or JSON of {schema}"}
    return {"type": "object", "properties": {"result": field}, "required": ["result"]}


def reply_to(kind: str, call_id: str, response: Any) -> Answer:
    """Translate the answer of a person; a form that is closed denies."""
    content = object_at(response, "content")
    if (action := object_at(response).get("action")) != "accept":
        reason = f"the user's answer is {action!r}"
        content = {"approved": False, "reason": reason} if kind in DECISIONS else {"error": reason}
    elif (result := read_json(content.get("result"))) is not None:
        content = {"result": result}
    return {"call_id": call_id, **content}
