"""The calls of a run that wait for an answer from outside, and the answers.

Tools that the model's provider runs, such as those of hosted MCP servers, ask in the model's answer, and the next
message of the turn has the decision; of the provider's own tools that the client runs, it has the results. The run ends
there. The turn waits, as with the app's own tools; once there are all answers, the run continues with them.
"""

import json
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final, cast

from agent_framework import Content, FunctionTool, Message

from durable_agent_host.agent.declarations import RemovedTool, find_parameters, in_doubt_policy, needs_approval
from durable_agent_host.agent.observer import CallPending, ObserverGroup, RunObservers, ToolCallCompleted
from durable_agent_host.agent.provider import ClientCall, ModelProvider
from durable_agent_host.agent.tool_invocation import (
    DID_NOT_RUN,
    NextToolCall,
    ToolCallEnd,
    ToolInvocation,
    ToolResult,
    WaitingToolCall,
    text_result,
)
from durable_agent_host.codec.strict_json import has_python_class, read_json
from durable_agent_host.errors import RequestError
from durable_agent_host.model.call_path import CallPath, parse_call_path
from durable_agent_host.model.journal_entry import ToolCallCompletedEntry
from durable_agent_host.model.pending_call import PendingCall, PendingKind
from durable_agent_host.tool_calls import APPROVED_BY
from durable_agent_host.turn.client_tools import check_fit, tool_result_of
from durable_agent_host.turn.response_format import STEPS_AT_ONCE, is_same_json
from durable_agent_host.turn.waiting_status import CALLBACK_SUFFIX, pending_call_id
from durable_agent_host.turn_log.journal import Journal

_LOGGER = logging.getLogger(__name__)
_CHANGED: Final = "an approver has changed the arguments, and somebody else must approve them"
_PROVIDER_REASON = "the tool runs at the model's provider and needs approval"
_UNCHANGEABLE = "the arguments of a tool that the model's provider runs cannot be changed"


class PendingCalls:
    """The calls of one run that wait for an answer from outside, and the answers that there are.

    Args:
        turn_id: the run's turn.
        replies: by the pending call's id.
        journal: of the run.
        observers: notified of each call that waits.
        answer_seconds: how long a call waits.

    Attributes:
        pending: the calls that wait, as JSON.
    """

    def __init__(
        self,
        turn_id: str,
        replies: Mapping[str, Mapping[str, Any]],
        journal: Journal,
        observers: ObserverGroup,
        *,
        answer_seconds: float,
    ) -> None:
        self.pending: list[Mapping[str, Any]] = []
        self._turn_id = turn_id
        self._replies = replies
        self._journal = journal
        self._observers = observers
        self._answer_seconds = answer_seconds

    def answer(self, call_id: str) -> Mapping[str, Any] | None:
        """Return the answer to a pending call; None when there is none yet."""
        return self._replies.get(call_id)

    async def answer_or_ask(self, call: PendingCall, *, is_first: bool = False) -> Mapping[str, Any] | None:
        """Return the answer to a call; without one, leave the call to somebody outside, and return None."""
        answer = self.answer(call.call_id)
        if answer is None:
            await self.ask(call, is_first=is_first)
        return answer

    async def call_if_approved(
        self,
        call: ToolInvocation,
        call_next: NextToolCall,
        deny: Callable[[str], ToolResult],
        *,
        kind: PendingKind,
        reason: str,
        number: int = 0,
    ) -> ToolCallEnd:
        """Look up a person's decision about a call, or ask for it, and make the call if it is approved.

        Where the tool says who must approve, arguments that an approver has changed are asked about again.

        Args:
            call: with the arguments that are asked about.
            call_next: makes it, with the arguments that were approved.
            deny: makes the result of a call that is not approved, with the person's reason as the end of its text.
            kind: an approval, or a call in doubt.
            reason: why a person must decide.
            number: of the question among those about the same call, from 0.
        """
        approved_by = (call.tool.additional_properties or {}).get(APPROVED_BY)
        arguments = call.arguments
        changes = 0
        changed_by = None
        while True:
            answer = await self.answer_or_ask(
                PendingCall(
                    self.call_id(call.path, number, changes),
                    kind,
                    call.name,
                    arguments,
                    str(call.path),
                    reason=_CHANGED if changes else reason,
                    approved_by=approved_by,
                    changed_by=changed_by,
                ),
                is_first=kind == "approval" and not changes,
            )
            if answer is None:
                return WaitingToolCall("waits for a person")
            if answer.get("approved") is not True:
                return deny(f" Reason: {answer['reason']}" if answer.get("reason") else "")
            changed_arguments = answer.get("arguments")
            if changed_arguments is not None and not is_same_json(changed_arguments, arguments):
                arguments = changed_arguments
                changes += 1
                changed_by = answer.get("by")
                if approved_by is not None:
                    continue
            is_changed = call.has_changed_arguments or changes > 0
            if changes:
                try:
                    check_fit(
                        arguments,
                        find_parameters(call.tool),
                        max_bytes=sys.maxsize,
                        max_steps=STEPS_AT_ONCE,
                        field="arguments",
                    )
                except RequestError as error:
                    return text_result("invalid_arguments", f"{DID_NOT_RUN}{error}")
            return await call_next(replace(call, arguments=arguments, has_changed_arguments=is_changed))

    def call_id(self, path: CallPath, number: int = 0, changes: int = 0) -> str:
        """Return the id of a pending call; see `durable_agent_host.turn.waiting_status`."""
        return pending_call_id(path, number, changes, is_repeated=self._journal.is_repeated(path))

    def needs_approval(self, call: ToolInvocation) -> bool:
        """Return whether a person decides about a call: its tool says so, or has said so when the call was made."""
        path = str(call.path)
        return needs_approval(call.tool) or any(
            c["kind"] == "approval" and c["path"] == path for c in self._journal.recorded.pending_calls.values()
        )

    def removed_tools(self, run_path: CallPath, tools: Iterable[Any]) -> list[RemovedTool]:
        """Return what stands for the tools of a run's earlier calls that are not among its tools any more."""
        records = self._journal.recorded
        kinds = {call.start.name: "" for path, call in records.tools.items() if path.run == run_path and call.start}
        for call in records.pending_calls.values():
            is_of_tool = call["kind"] in {"approval", "client_tool"} and call.get("reason") != _PROVIDER_REASON
            if is_of_tool and parse_call_path(call["path"]).run == run_path:
                kinds[call["name"]] = call["kind"]
        for tool in tools:
            kinds.pop(getattr(tool, "name", ""), None)
        return [RemovedTool(name, runs_at_client=kind == "client_tool") for name, kind in kinds.items()]

    def callback_id(self, call: ToolInvocation) -> str:
        """Return the id under which a call waits for its callback: the same however often its tool has started."""
        may_ask = self.needs_approval(call) or in_doubt_policy(call.tool) == "ask"
        return f"{self.call_id(call.path)}{CALLBACK_SUFFIX if may_ask else ''}"

    async def ask(self, call: PendingCall, *, is_first: bool = False) -> None:
        """Leave a call to somebody outside: the run finishes the other calls of the batch, then stops.

        Args:
            call: without times, which an earlier attempt may have given it; with ``expires_at`` when it has its own.
            is_first: see `CallPending`.
        """
        recorded_call = self._journal.recorded.pending_calls.get(call.call_id)
        if recorded_call:
            call = replace(call, created_at=recorded_call["created_at"], expires_at=recorded_call["expires_at"])
        else:
            now = datetime.now(UTC)
            expires_at = call.expires_at or (now + timedelta(seconds=self._answer_seconds)).isoformat()
            call = replace(call, created_at=now.isoformat(), expires_at=expires_at)
        self.pending.append(call.to_json())
        await self._observers.notify(CallPending(call.to_json(), recorded_call is not None, is_first))
        _LOGGER.info("turn %s: call %s of %s waits (%s)", self._turn_id, call.call_id, call.name, call.kind)


async def answer_requests(
    pending_calls: PendingCalls,
    journal: Journal,
    observers: RunObservers,
    provider: ModelProvider,
    messages: Sequence[Message],
) -> list[Message]:
    """Answer what the provider's tools ask at the end of a model's answer: for approval, or for the client's result.

    A call that is denied ends here: its service says nothing of it.

    Returns:
        The messages with the answers; none when nothing was asked, or something has no answer yet.
    """
    requests = [content for message in messages for content in message.contents if is_provider_request(content)]
    numbered_requests = [(content, _next_path(journal, cast("str", content.id))) for content in requests]
    responses = [await _answer(pending_calls, content, path) for content, path in numbered_requests]
    results = [
        await _result(pending_calls, call, _next_path(journal, call.call_id))
        for call in provider.client_calls(messages)
    ]
    if None in responses or None in results:
        return []
    denials: list[str] = []
    for (request, path), response in zip(numbered_requests, cast("list[Content]", responses), strict=True):
        if not response.approved:
            reason = _denial(pending_calls, request, path)
            denials += [reason] if reason else []
            if journal.recorded.tools.get(path) is None:
                call = cast("Content", request.function_call)
                text = reason or f"The call of {call.name} was denied."
                details = {"arguments": read_arguments(call.arguments), "approval_request_id": path.call_id}
                await observers.notify(ToolCallCompleted(path.call_id, call.name or "", "denied", False, text, details))
                await journal.append(ToolCallCompletedEntry(path, "denied", text_result("denied", text).wire))
    result_contents = [content for result in cast("list[Sequence[Content]]", results) for content in result]
    user_contents = [*cast("list[Content]", responses), *map(Content.from_text, denials)]
    user_contents += [content for content in result_contents if content.type == "text"]
    tool_contents = [content for content in result_contents if content.type != "text"]
    contents_by_role = {"tool": tool_contents, "user": user_contents}
    return [Message(role, contents) for role, contents in contents_by_role.items() if contents]


def is_provider_request(content: Content) -> bool:
    """Return whether a content asks for the approval of a tool that the model's provider runs."""
    return (
        content.type == "function_approval_request"
        and content.id is not None
        and content.function_call is not None
        and bool(content.function_call.hosted)
    )


def _next_path(journal: Journal, call_id: str) -> CallPath:
    """Count a request among the turn's calls: the service chooses its id, as for the app's own calls."""
    path, _ = journal.next_tool_call(call_id)
    return path


async def _result(pending_calls: PendingCalls, call: ClientCall, path: CallPath) -> Sequence[Content] | None:
    arguments = read_arguments(dict(call.arguments))
    reply = await pending_calls.answer_or_ask(
        PendingCall(pending_calls.call_id(path), "client_tool", call.name, arguments, str(path))
    )
    if reply is None:
        return None
    return call.build_result(FunctionTool.parse_result(tool_result_of(reply)), reply.get("error"))


async def _answer(pending_calls: PendingCalls, request: Content, path: CallPath) -> Content | None:
    call = cast("Content", request.function_call)
    arguments = read_arguments(call.arguments)
    call_id = pending_calls.call_id(path)
    answer = await pending_calls.answer_or_ask(
        PendingCall(call_id, "approval", call.name or "", arguments, str(path), reason=_PROVIDER_REASON)
    )
    if answer is None:
        return None
    changed_arguments = answer.get("arguments")
    is_unchanged = changed_arguments is None or is_same_json(changed_arguments, arguments)
    response = request.to_function_approval_response(approved=answer.get("approved") is True and is_unchanged)
    response.additional_properties = {}  # the stamp there belongs to the request's item
    return response


def _denial(pending_calls: PendingCalls, request: Content, path: CallPath) -> str | None:
    """Return why a call was denied; the provider's answer format has no field for it."""
    call = cast("Content", request.function_call)
    answer = pending_calls.answer(pending_calls.call_id(path)) or {}
    reason = _UNCHANGEABLE if answer.get("approved") is True else answer.get("reason")
    return f"The call of {call.name} was denied: {reason}" if reason else None


def read_arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call of the framework as a JSON object."""
    parsed_arguments = read_json(arguments) if isinstance(arguments, str) else arguments
    if not isinstance(parsed_arguments, dict):
        return {} if arguments in (None, "null") else {"arguments": arguments}
    return (
        {"arguments": json.dumps(parsed_arguments)}
        if has_python_class(parsed_arguments)
        else cast("dict[str, Any]", parsed_arguments)
    )
