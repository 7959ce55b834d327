"""Questions to people about the calls of a run, and their answers.

Tools that the model's provider runs, such as those of hosted MCP servers, ask in the model's answer, and the next
message of the turn has the decision. The framework ends a run at such a request. The turn waits for a person, as with
the app's own tools; once all requests are decided, the run continues with the decisions as its next message.
"""

import json
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, cast

from agent_framework import Content, Message

from durable_agent_host.agent.budget_accounting import APPROVAL_NAME
from durable_agent_host.agent.observer import ApprovalRequested, ObserverGroup
from durable_agent_host.agent.tool_invocation import (
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    WaitingToolCall,
)
from durable_agent_host.codec.strict_json import has_python_class
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.tool_calls import APPROVED_BY
from durable_agent_host.turn.pending_approvals import approval_request_id
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)
_CHANGED: Final = "an approver has changed the arguments, and somebody else must approve them"
_PROVIDER_REASON = "the tool runs at the model's provider and needs approval"
_UNCHANGEABLE = "the arguments of a tool that the model's provider runs cannot be changed"


class ApprovalRequests:
    """Asks people about the calls of one run.

    Args:
        turn_id: the run's turn.
        decisions: people's decisions, by the question's id.
        journal: of the run.
        observers: notified of each question.

    Attributes:
        pending: the calls that wait for a person.
    """

    def __init__(
        self, turn_id: str, decisions: Mapping[str, Mapping[str, Any]], journal: Journal, observers: ObserverGroup
    ) -> None:
        self.pending: list[dict[str, Any]] = []
        self._turn_id = turn_id
        self._decisions = decisions
        self._journal = journal
        self._observers = observers

    def decision(self, question: str) -> Mapping[str, Any] | None:
        """Return a person's decision; None when there is none yet."""
        return self._decisions.get(question)

    async def call_if_approved(
        self, call: ToolInvocation, call_next: NextToolCall, number: int, reason: str, deny: Callable[[str], ToolResult]
    ) -> ToolCallEnd:
        """Look up the answer to a question about a call, or ask it, and make the call if it is approved.

        Where the tool says who must approve, arguments that an approver has changed are asked about again.

        Args:
            call: with the arguments that are asked about.
            call_next: makes it, with the arguments that were approved.
            number: of the question among those about this call, from 0.
            reason: why a person must decide.
            deny: makes the result of a call that is not approved, with the person's reason as the end of its text.
        """
        approved_by = (call.tool.additional_properties or {}).get(APPROVED_BY)
        arguments = call.arguments
        changes = 0
        changed_by = None
        while True:
            question = self.question_id(call.path, number, changes)
            answer = self.decision(question)
            if answer is None:
                whom = {"approved_by": approved_by, "changed_by": changed_by}
                await self.ask(
                    question, call.path.call_id, call.name, arguments, _CHANGED if changes else reason, **whom
                )
                return WaitingToolCall("waits for a person")
            if answer.get("approved") is not True:
                return deny(f" Reason: {answer['reason']}" if answer.get("reason") else "")
            changed_arguments = answer.get("arguments")
            if changed_arguments is not None and not _is_same_value(changed_arguments, arguments):
                arguments = changed_arguments
                changes += 1
                changed_by = answer.get("by")
                if approved_by is not None:
                    continue
            is_changed = call.has_changed_arguments or changes > 0
            return await call_next(replace(call, arguments=arguments, has_changed_arguments=is_changed))

    def question_id(self, path: CallPath, number: int = 0, changes: int = 0) -> str:
        """Return the id of a question about a call; see `durable_agent_host.turn.pending_approvals`."""
        return approval_request_id(path, number, changes, is_repeated=self._journal.is_repeated(path))

    async def ask_for_budget(self, question: str, figures: Mapping[str, Any], sentence: str) -> None:
        """Ask a person whether a turn may spend more; the run stops before its next model call."""
        await self.ask(question, question, APPROVAL_NAME, figures, sentence)

    async def ask(
        self,
        question: str,
        call_id: str,
        name: str,
        arguments: Mapping[str, Any],
        reason: str,
        *,
        approved_by: str | None = None,
        changed_by: Mapping[str, Any] | None = None,
    ) -> None:
        """Leave a tool call to a person: the run finishes the other calls of the batch, then stops."""
        pending_call: dict[str, Any] = {
            "call_id": question,
            "name": name,
            "arguments": dict(arguments),
            "reason": reason,
        }
        pending_call |= {"approved_by": approved_by} if approved_by is not None else {}
        pending_call |= {"changed_by": changed_by} if changed_by else {}
        self.pending.append(pending_call)
        await self._observers.notify(
            ApprovalRequested(pending_call, replayed=question in self._journal.recorded.requested_approval_ids)
        )
        _LOGGER.info("turn %s: call %s of %s waits for a person", self._turn_id, call_id, name)


def _is_same_value(left: Any, right: Any) -> bool:
    """Compare JSON by value: ``1`` and ``1.0`` are the same number, ``true`` is none."""
    if isinstance(left, dict) and isinstance(right, dict):
        left_fields = cast("dict[str, Any]", left)
        right_fields = cast("dict[str, Any]", right)
        return left_fields.keys() == right_fields.keys() and all(
            _is_same_value(value, right_fields[name]) for name, value in left_fields.items()
        )
    if isinstance(left, list) and isinstance(right, list):
        left_items = cast("list[Any]", left)
        right_items = cast("list[Any]", right)
        return len(left_items) == len(right_items) and all(map(_is_same_value, left_items, right_items))
    return left == right and isinstance(left, bool) == isinstance(right, bool)


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
        await approvals.ask(question, path.call_id, call.name or "", _arguments(call.arguments), _PROVIDER_REASON)
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
