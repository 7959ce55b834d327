"""Objects of the service as it returns them; field order and nulls as recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

from practice_model.dialects.responses.items import Json

EXPIRES_SECONDS = 600
"""A run that waits for its tools expires ten minutes after its creation."""

_INITIALLY_NULL = ("started_at", "cancelled_at", "failed_at", "completed_at", "required_action", "last_error")


def build_agent(agent_id: str, body: Mapping[str, Any], now: int) -> Json:
    """Return an agent."""
    agent_fields = {name: body.get(name) for name in ("name", "description", "model", "instructions")}
    return {
        "id": agent_id,
        "object": "assistant",
        "created_at": now,
        **agent_fields,
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p", 1.0),
        "temperature": body.get("temperature", 1.0),
        "tool_resources": body.get("tool_resources") or {},
        "metadata": body.get("metadata") or {},
        "response_format": body.get("response_format", "auto"),
    }


def build_thread(thread_id: str, body: Mapping[str, Any], now: int) -> Json:
    """Return a thread."""
    optional_fields: Json = {name: body.get(name) or {} for name in ("metadata", "tool_resources")}
    return {"id": thread_id, "object": "thread", "created_at": now, **optional_fields}


def build_message(message_id: str, thread_id: str, body: Mapping[str, Any], now: int) -> Json:
    """Return a posted message."""
    content = body.get("content")
    parts: Sequence[Json] = [{"type": "text", "text": content}] if isinstance(content, str) else (content or [])
    return {
        "id": message_id,
        "object": "thread.message",
        "created_at": now,
        "assistant_id": None,
        "thread_id": thread_id,
        "run_id": None,
        "role": body.get("role"),
        "content": [_build_part(part) for part in parts],
        "attachments": body.get("attachments") or [],
        "metadata": body.get("metadata") or {},
    }


def _build_part(part: Json) -> Json:
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": {"value": part["text"], "annotations": []}}
    return part


def build_response_message(
    message_id: str, run_object: Mapping[str, Any], content: Sequence[Json], now: int, status: str
) -> Json:
    """Return a message of the agent in one of its states."""
    return {
        "id": message_id,
        "object": "thread.message",
        "created_at": now,
        "assistant_id": run_object["assistant_id"],
        "thread_id": run_object["thread_id"],
        "run_id": run_object["id"],
        "status": status,
        "incomplete_details": None,
        "incomplete_at": None,
        "completed_at": now if status == "completed" else None,
        "role": "assistant",
        "content": list(content),
        "attachments": [],
        "metadata": {},
    }


def build_run(run_id: str, thread_id: str, body: Mapping[str, Any], agent_object: Mapping[str, Any], now: int) -> Json:
    """Return a new run."""
    return {
        "id": run_id,
        "object": "thread.run",
        "created_at": now,
        "assistant_id": agent_object["id"],
        "thread_id": thread_id,
        "status": "queued",
        "expires_at": now + EXPIRES_SECONDS,
        **dict.fromkeys(_INITIALLY_NULL),
        "model": body.get("model") or agent_object["model"],
        "instructions": body.get("instructions") or agent_object["instructions"],
        "tools": body.get("tools") or agent_object["tools"],
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


def build_step(step_id: str, run_object: Mapping[str, Any], details: Json, now: int, status: str) -> Json:
    """Return a step of a run in one of its states."""
    return {
        "id": step_id,
        "object": "thread.run.step",
        "created_at": now,
        "run_id": run_object["id"],
        "assistant_id": run_object["assistant_id"],
        "thread_id": run_object["thread_id"],
        "type": details["type"],
        "status": status,
        "cancelled_at": None,
        "completed_at": now if status == "completed" else None,
        "expires_at": run_object["expires_at"],
        "failed_at": None,
        "last_error": None,
        "step_details": details,
        "usage": {"prompt_tokens": 20, "completion_tokens": 10, "total_tokens": 30} if status == "completed" else None,
    }


def build_page(items: Sequence[Json], *, has_more: bool = False) -> Json:
    """Return a page of a list."""
    ids = {"first_id": items[0]["id"], "last_id": items[-1]["id"]} if items else {"first_id": None, "last_id": None}
    return {"object": "list", "data": list(items), **ids, "has_more": has_more}
