"""The rules of threads and runs, in the service's words. Pure.

Source: the service's documentation and its answers as its SDK's public issues quote them.
"""

from collections.abc import Mapping
from typing import Any, cast

from practice_model.dialects.responses.errors import HttpError
from practice_model.dialects.responses.items import Json

ACTIVE = frozenset({"queued", "in_progress", "requires_action", "cancelling"})
"""Statuses in which a run keeps its thread."""


def no_such(kind: str, given: str) -> HttpError:
    """Refuse an unknown id."""
    return HttpError(404, f"No {kind} found with id '{given}'.")


def check_message(body: Any, thread_id: str, active: str | None) -> HttpError | None:
    """Check a message that is posted.

    Args:
        body: of the request.
        thread_id: of the thread.
        active: id of the run that keeps it, or None.
    """
    given = cast("Json", body) if isinstance(body, dict) else {}
    if given.get("role") not in {"user", "assistant"}:
        why = f"Invalid value: '{given.get('role')}'. Supported values are: 'user' and 'assistant'."
        return HttpError(400, why, "invalid_value", "role")
    if not given.get("content"):
        return HttpError(400, "Message content must be non-empty.", None, "content")
    if active:
        return HttpError(400, f"Can't add messages to {thread_id} while a run {active} is active.")
    return None


def check_new_run(body: Any, agents: Mapping[str, Json], thread_id: str, active: str | None) -> HttpError | None:
    """Check a run that is to be made.

    Args:
        body: of the request.
        agents: by id.
        thread_id: of the thread.
        active: id of the run that keeps it, or None.
    """
    given = cast("Json", body) if isinstance(body, dict) else {}
    if not given.get("assistant_id"):
        return HttpError(400, "Missing required parameter: 'assistant_id'.", "missing_required_parameter")
    if given["assistant_id"] not in agents:
        return no_such("assistant", str(given["assistant_id"]))
    if active:
        return HttpError(400, f"Thread {thread_id} already has an active run {active}.")
    return None


def check_answers(body: Any, run: Mapping[str, Any]) -> HttpError | None:
    """Check what is submitted to a run: all of its calls at once, and no others.

    Args:
        body: of the request.
        run: as it is.
    """
    status = run["status"]
    if status != "requires_action":
        return HttpError(400, f'Runs in status "{status}" do not accept tool outputs.')
    action = run["required_action"]
    asked = [call["id"] for call in action[action["type"]]["tool_calls"]]
    given = cast("Json", body) if isinstance(body, dict) else {}
    field = "tool_outputs" if action["type"] == "submit_tool_outputs" else "tool_approvals"
    got = [one.get("tool_call_id") for one in cast("list[Json]", given.get(field) or [])]
    if sorted(map(str, got)) != sorted(asked):
        return HttpError(400, f"Expected tool outputs for call_ids {asked}, got {got}")
    return None
