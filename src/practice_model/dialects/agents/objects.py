"""Objects of the service as it shows them. Pure; field order and nulls as recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

from practice_model.dialects.responses.items import Json

EXPIRES_SECONDS = 600
"""A run that waits for its tools expires ten minutes after it was made."""

_OFTEN_NULL = ("started_at", "cancelled_at", "failed_at", "completed_at", "required_action", "last_error")


def agent(agent_id: str, body: Mapping[str, Any], now: int) -> Json:
    """Return an agent."""
    given = {name: body.get(name) for name in ("name", "description", "model", "instructions")}
    return {
        "id": agent_id,
        "object": "assistant",
        "created_at": now,
        **given,
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "temperature": body.get("temperature", 1.0),
        "tool_resources": body.get("tool_resources") or {},
        "metadata": body.get("metadata") or {},
        "response_format": body.get("response_format", "auto"),
    }


def thread(thread_id: str, body: Mapping[str, Any], now: int) -> Json:
    """Return a thread."""
    more: Json = {name: body.get(name) or {} for name in ("metadata", "tool_resources")}
    return {"id": thread_id, "object": "thread", "created_at": now, **more}


def message(message_id: str, thread_id: str, body: Mapping[str, Any], now: int) -> Json:
    """Return a message that was posted."""
    given = body.get("content")
    parts: Sequence[Json] = [{"type": "text", "text": given}] if isinstance(given, str) else (given or [])
    return {
        "id": message_id,
        "object": "thread.message",
        "created_at": now,
        "assistant_id": None,
        "thread_id": thread_id,
        "run_id": None,
        "role": body.get("role"),
        "content": [_shown_part(part) for part in parts],
        "attachments": body.get("attachments") or [],
        "metadata": body.get("metadata") or {},
    }


def _shown_part(part: Json) -> Json:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": {"value": part["text"], "annotations": []}}
    return part


def answer(message_id: str, run: Mapping[str, Any], content: Sequence[Json], now: int, status: str) -> Json:
    """Return a message of the agent in one of its states."""
    return {
        "id": message_id,
        "object": "thread.message",
        "created_at": now,
        "assistant_id": run["assistant_id"],
        "thread_id": run["thread_id"],
        "run_id": run["id"],
        "status": status,
        "incomplete_details": None,
        "incomplete_at": None,
        "completed_at": now if status == "completed" else None,
        "role": "assistant",
        "content": list(content),
        "attachments": [],
        "metadata": {},
    }


def run(run_id: str, thread_id: str, body: Mapping[str, Any], made_by: Mapping[str, Any], now: int) -> Json:
    """Return a run as it is made."""
    return {
        "id": run_id,
        "object": "thread.run",
        "created_at": now,
        "assistant_id": made_by["id"],
        "thread_id": thread_id,
        "status": "queued",
        "expires_at": now + EXPIRES_SECONDS,
        **dict.fromkeys(_OFTEN_NULL),
        "model": body.get("model") or made_by["model"],
        "instructions": body.get("instructions") or made_by["instructions"],
        "tools": body.get("tools") or made_by["tools"],
        "tool_resources": body.get("tool_resources") or {},
        "metadata": body.get("metadata") or {},
        "temperature": 1.0,
        "top_p": 1.0,
        "max_completion_tokens": None,
        "max_prompt_tokens": None,
        "truncation_strategy": {"type": "auto", "last_messages": None},
        "incomplete_details": None,
        "usage": None,
        "response_format": body.get("response_format", "auto"),
        "tool_choice": body.get("tool_choice", "auto"),
        "parallel_tool_calls": True,
    }


def step(step_id: str, made_by: Mapping[str, Any], details: Json, now: int, status: str) -> Json:
    """Return a step of a run in one of its states."""
    return {
        "id": step_id,
        "object": "thread.run.step",
        "created_at": now,
        "run_id": made_by["id"],
        "assistant_id": made_by["assistant_id"],
        "thread_id": made_by["thread_id"],
        "type": details["type"],
        "status": status,
        "cancelled_at": None,
        "completed_at": now if status == "completed" else None,
        "expires_at": made_by["expires_at"],
        "failed_at": None,
        "last_error": None,
        "step_details": details,
        "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30} if status == "completed" else None,
    }


def listing(found: Sequence[Json], *, has_more: bool = False) -> Json:
    """Return a page of a list."""
    ids = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {"first_id": None, "last_id": None}
    return {"object": "list", "data": list(found), **ids, "has_more": has_more}
