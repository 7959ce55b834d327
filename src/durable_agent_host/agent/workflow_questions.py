"""Questions of a workflow that is an agent, as pending calls of its turn.

Theory of operation. A run of the workflow that ends with questions is a part of the turn. What it has streamed and the
workflow's checkpoint are journaled, then the questions are asked: their ids are in the checkpoint, and a run from the
turn's start would make new ones. The attempt with the answers streams the recorded parts again, restores the latest
checkpoint, and gives the workflow the answers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    ChatResponse,
    Content,
    Message,
    WorkflowEvent,
)

from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.pending_calls import read_arguments
from durable_agent_host.agent.workflow_agents import (
    HostedWorkflow,
    accepts_text,
    build_response,
    format_question,
    is_approval,
    response_schema,
)
from durable_agent_host.codec.journal_entry import decode_model_response, encode_answer
from durable_agent_host.codec.tool_result_text import value_text
from durable_agent_host.errors import RequestError, TurnError
from durable_agent_host.model.call_path import AGENT_RUN, CallPath
from durable_agent_host.model.journal_entry import DEFERRED, ToolCallCompletedEntry
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.model.session import WORKFLOW_STATE
from durable_agent_host.stream.fold import response_as_updates
from durable_agent_host.turn_log.journal import JournalState

_APPROVAL_REASON = "a tool of the workflow needs approval"


def part_path(recorded: JournalState) -> CallPath:
    """Return the path of the current part of a workflow's run; the one before any question is `AGENT_RUN`."""
    return CallPath().tool_call(AGENT_RUN.call_id, len(recorded.workflow_parts))


@dataclass
class WorkflowQuestions:
    """Asks the questions of a workflow in one run, and gives it the answers.

    Attributes:
        run: of the workflow.
        workflow: the run's agent.
    """

    run: CurrentRun
    workflow: HostedWorkflow
    _start: int = 0

    async def resume(self) -> None:
        """Stream the recorded parts of the run again, and give the workflow the answers, or ask again.

        Raises:
            TurnError: the workflow can no longer use its checkpoint.
        """
        parts = self.run.journal.recorded.workflow_parts
        if not parts:
            return
        if WORKFLOW_STATE not in self.run.session.state:
            raise TurnError("the workflow has changed while its turn waited for an answer: send the request again")
        with self.run.progress.replaying():
            for part in parts:
                self.run.session_state.restore(part.path)
                recorded_response = decode_model_response(part.result["response"])
                messages, usage = recorded_response.messages, recorded_response.usage_details
                for update in response_as_updates(AgentResponse(messages=messages, usage_details=usage)):
                    await self.run.collect(update)
        self._start = len(self.run.output)
        requests = self.workflow.read_requests(self.run.session)
        responses = await self._responses(requests)
        if self.run.pending_calls.pending:
            return
        self.workflow.responses = responses
        for content in responses:
            if content.type == "function_result":
                result_content = Content.from_function_result(
                    cast("str", content.call_id), result=_answer_text(content.result)
                )
                await self.run.collect(AgentResponseUpdate(role="tool", contents=[result_content]))

    async def ask(self) -> None:
        """Record that the workflow waits, and ask its questions, once its run has ended with some."""
        requests = self.workflow.requests
        if not any(self._reply(request_id, event)[1] is None for request_id, event in requests.items()):
            return
        response = self.run.output.response(self._start)
        recorded_response = ChatResponse(messages=response.messages, usage_details=response.usage_details)
        await self.run.journal.append(
            ToolCallCompletedEntry(
                part_path(self.run.journal.recorded),
                DEFERRED,
                {"checkpoint": self.run.session.state[WORKFLOW_STATE], "response": encode_answer(recorded_response)},
                self.run.session_state.changes(),
            )
        )
        await self._responses(requests)

    async def _responses(self, requests: Mapping[str, WorkflowEvent[Any]]) -> list[Content]:
        """Return the answers for the workflow, and ask what has none; a question answered by an error stays open."""
        responses: list[Content] = []
        for request_id, event in requests.items():
            call, response = self._reply(request_id, event)
            if isinstance(response, Content):
                responses.append(response)
            elif response is None:
                await self.run.pending_calls.ask(call)
        return responses

    def _reply(self, request_id: str, event: WorkflowEvent[Any]) -> tuple[PendingCall, Content | str | None]:
        """Return a question as it was asked last, and its answer: the response, or why there is none.

        An answer that the workflow cannot use is no answer: the question is asked again, with the reason.
        """
        path = AGENT_RUN.tool_call(request_id)
        number = 0
        reason = _APPROVAL_REASON if is_approval(event) else None
        while True:
            call = _pending_call(self.run.pending_calls.call_id(path, number), event, path, reason)
            reply = self.run.pending_calls.answer(call.call_id)
            if reply is None:
                return call, None
            if "error" in reply:
                return call, str(reply["error"])
            try:
                return call, build_response(request_id, event, reply.get("approved", reply.get("result")))
            except RequestError as error:
                reason = str(error)
                number += 1


def _answer_text(value: Any) -> str:
    """Return the answer to a question as the conversation has it: what the user has said, or JSON."""
    if isinstance(value, Message):
        return value.text
    if isinstance(value, list) and all(isinstance(item, Message) for item in cast("list[Any]", value)):
        return "\n".join(message.text for message in cast("list[Message]", value))
    return value_text(format_question(value))


def _pending_call(call_id: str, event: WorkflowEvent[Any], path: CallPath, reason: str | None) -> PendingCall:
    if is_approval(event):
        call: Any = event.data.function_call
        return PendingCall(
            call_id, "approval", call.name or "", read_arguments(call.arguments), str(path), reason=reason
        )
    arguments = {"question": format_question(event.data)}
    name = event.source_executor_id or ""
    return PendingCall(call_id, "input", name, arguments, str(path), reason=reason, schema=_schema(event))


def _schema(event: WorkflowEvent[Any]) -> Mapping[str, Any] | None:
    """Return the JSON schema of an answer; None where there is none for its type."""
    if accepts_text(event) and event.response_type not in {object, Any}:
        return {"type": "string"}
    return response_schema(event.response_type)
