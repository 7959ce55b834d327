"""The rules of threads and runs, with the service's own error messages.

Source: the service's documentation, and its responses as quoted in public issues of its SDK.
"""

from collections.abc import Mapping
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

ACTIVE = frozenset({"queued", "in_progress", "requires_action", "cancelling"})
"""Statuses in which a run locks its thread."""


def not_found_error(kind: str, object_id: str) -> HttpError:
    """Return the error for an unknown id."""
    return HttpError(404, f"No {kind} found with id '{object_id}'.")


def check_message(body: Any, thread_id: str, active_run_id: str | None) -> HttpError | None:
    """Check a posted message."""
    message = cast("Json", body) if isinstance(body, dict) else {}
    if message.get("role") not in {"user", "assistant"}:
        reason = f"Invalid value: '{message.get('role')}'. Supported values are: 'user' and 'assistant'."
        return HttpError(400, reason, "invalid_value", "role")
    if not message.get("content"):
        return HttpError(400, "Message content must be non-empty.", None, "content")
    if active_run_id:
        return HttpError(400, f"Can't add messages to {thread_id} while a run {active_run_id} is active.")
    return None


def check_new_run(body: Any, agents: Mapping[str, Json], thread_id: str, active_run_id: str | None) -> HttpError | None:
    """Check the request for a new run."""
    request = cast("Json", body) if isinstance(body, dict) else {}
    if not request.get("assistant_id"):
        return HttpError(400, "Missing required parameter: 'assistant_id'.", "missing_required_parameter")
    if request["assistant_id"] not in agents:
        return not_found_error("assistant", str(request["assistant_id"]))
    if active_run_id:
        return HttpError(400, f"Thread {thread_id} already has an active run {active_run_id}.")
    return None


def check_tool_outputs(body: Any, run: Mapping[str, Any]) -> HttpError | None:
    """Check tool outputs or approvals submitted to a run: exactly one for each of its open calls."""
    status = run["status"]
    if status != "requires_action":
        return HttpError(400, f'Runs in status "{status}" do not accept tool outputs.')
    action = run["required_action"]
    expected_ids = [call["id"] for call in action[action["type"]]["tool_calls"]]
    request = cast("Json", body) if isinstance(body, dict) else {}
    field_name = "tool_outputs" if action["type"] == "submit_tool_outputs" else "tool_approvals"
    actual_ids = [output.get("tool_call_id") for output in cast("list[Json]", request.get(field_name) or [])]
    if sorted(map(str, actual_ids)) != sorted(expected_ids):
        return HttpError(400, f"Expected tool outputs for call_ids {expected_ids}, got {actual_ids}")
    return None
