"""Approvals of tools run by the model's provider, such as those of hosted MCP servers.

The model's answer contains the request, and the next message of the turn the decision. The framework ends a run at such
a request. The turn waits for a person, as with the app's own tools; once all requests are decided, the run continues
with the decisions as its next message.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from agent_framework import Content, Message

from durable_agent_host.agent.run_gate import ApprovalRequests
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.turn_log.journal import Journal

REASON = "the tool runs at the model's provider and needs approval"
_UNCHANGEABLE = "the arguments of a tool that the model's provider runs cannot be changed"


async def answer_requests(approvals: ApprovalRequests, journal: Journal, messages: Iterable[Message]) -> Message | None:
    """Answer the provider's requests for approval at the end of a model's answer.

    Returns:
        The message with the answers, or None when there was no request, or one has no answer yet.
    """
    requests = [content for message in messages for content in message.contents if _is_provider_request(content)]
    numbered_requests = [(content, _next_path(journal, content)) for content in requests]
    responses = [await _answer(approvals, content, path) for content, path in numbered_requests]
    if not responses or None in responses:
        return None
    denials = [reason for content, path in numbered_requests if (reason := _denial(approvals, content, path))]
    return Message("user", [*cast("list[Content]", responses), *map(Content.from_text, denials)])


def _is_provider_request(content: Content) -> bool:
    return (
        content.type == "function_approval_request"
        and content.id is not None
        and content.function_call is not None
        and bool(content.function_call.hosted)
    )


def _next_path(journal: Journal, request: Content) -> CallPath:
    """Count a request among the turn's calls: the service chooses its id, as for the app's own calls."""
    path, _ = journal.next_tool_call(cast("str", request.id))
    return path


async def _answer(approvals: ApprovalRequests, request: Content, path: CallPath) -> Content | None:
    question = approvals.question_id(path)
    call = cast("Content", request.function_call)
    answer = approvals.decision(question)
    if answer is None:
        await approvals.ask(question, path.call_id, call.name or "", _arguments(call.arguments), REASON)
        return None
    response = request.to_function_approval_response(approved=_is_approved(answer, call))
    response.additional_properties = {}  # the stamp there belongs to the request's item
    return response


def _is_approved(answer: Mapping[str, Any], call: Content) -> bool:
    return answer.get("approved") is True and not _is_changed(answer, call)


def _is_changed(answer: Mapping[str, Any], call: Content) -> bool:
    return answer.get("arguments") not in (None, _arguments(call.arguments))


def _denial(approvals: ApprovalRequests, request: Content, path: CallPath) -> str | None:
    """Return why a call was denied; the provider's answer format has no field for it."""
    call = cast("Content", request.function_call)
    answer = approvals.decision(approvals.question_id(path)) or {}
    if _is_approved(answer, call):
        return None
    reason = _UNCHANGEABLE if answer.get("approved") is True else answer.get("reason")
    return f"The call of {call.name} was denied: {reason}" if reason else None


def _arguments(arguments: Any) -> dict[str, Any]:
    try:
        parsed_arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        parsed_arguments = None
    if not isinstance(parsed_arguments, dict):
        return {"arguments": arguments}
    return (
        {"arguments": json.dumps(parsed_arguments)}
        if has_python_class(parsed_arguments)
        else cast("dict[str, Any]", parsed_arguments)
    )
