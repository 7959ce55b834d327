"""Questions that an MCP server asks within a tool call (elicitation).

Theory of operation. No connection stays open while a person thinks. A question without an answer gives the call up: it
waits, and the next attempt makes it again and answers the same question, which is known by its text and its schema. A
start of the tool asks at most one question, so the starts that were given up are as many as the recorded questions, and
not in doubt.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final

from durable_agent_host.agent.mcp_servers import ELICITATION
from durable_agent_host.agent.pending_calls import PendingCalls
from durable_agent_host.agent.tool_invocation import NextToolCall, ToolCallEnd, ToolInvocation, WaitingToolCall
from durable_agent_host.model.pending_call import PendingCall
from durable_agent_host.turn.waiting_status import question_id

_WAITING_CALL: Final = WaitingToolCall("waits for an answer")


@dataclass(frozen=True)
class AnswerElicitations:
    """Answers the questions of MCP servers, or leaves them to somebody outside.

    Attributes:
        pending_calls: of the run.
    """

    pending_calls: PendingCalls

    async def __call__(self, call: ToolInvocation, call_next: NextToolCall) -> ToolCallEnd:
        """Make a call; it waits when its server asks what nobody has answered."""
        earlier_questions = self.pending_calls.questions_within(call.path)
        open_questions = [
            question for question in earlier_questions if self.pending_calls.answer(question["call_id"]) is None
        ]
        if open_questions:
            for question in open_questions:
                await self.pending_calls.ask_again(question)
            return _WAITING_CALL
        questions = _Questions(call, self.pending_calls)
        token = ELICITATION.set(questions.answer)
        try:
            end = await call_next(replace(call, starts=call.starts - len(earlier_questions)))
        finally:
            ELICITATION.reset(token)
            questions.has_ended = True
        return _WAITING_CALL if questions.is_waiting else end


class _Questions:
    """The questions of a server within one start of a call."""

    def __init__(self, call: ToolInvocation, pending_calls: PendingCalls) -> None:
        self.is_waiting = False
        self.has_ended = False
        self._call = call
        self._pending_calls = pending_calls
        self._occurrences = Counter[str]()

    async def answer(self, text: str, schema: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return the answer to a question; None when the call is given up."""
        digest = sha256(json.dumps([text, schema], sort_keys=True).encode()).hexdigest()[:16]
        call_id = question_id(self._pending_calls.call_id(self._call.path), digest, self._occurrences[digest])
        self._occurrences[digest] += 1
        reply = self._pending_calls.answer(call_id)
        if reply is None and not (self.is_waiting or self.has_ended):
            self.is_waiting = True
            call = self._call
            await self._pending_calls.ask(
                PendingCall(
                    call_id,
                    "input",
                    call.name,
                    call.arguments,
                    str(call.path),
                    reason=text,
                    schema=schema,
                )
            )
        return reply
