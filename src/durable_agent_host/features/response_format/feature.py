"""Answers that must fit a format: one that does not is rejected, and the model is asked again.

The layer is within the journal, so the rejection is durable with the response: every later run of the agent passes over
the response, and asks with what was wrong about it.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, override

from agent_framework import AgentResponse, ChatResponse

from durable_agent_host.agent.feature import AgentFeature, AttemptFeature, AttemptStart, CurrentRun, RunPart
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.errors import InvalidAnswerError, RegistrationError
from durable_agent_host.features.response_format.worker import validate_in_worker
from durable_agent_host.model.ending import end_of_answer
from durable_agent_host.model.journal_entry import Rejection
from durable_agent_host.stream.response_messages import response_text


@dataclass(frozen=True)
class CheckResponseFormat:
    """Rejects the answers of a turn's agent that do not fit the requested format.

    Attributes:
        response_format: of the turn's request.
    """

    response_format: Mapping[str, Any]

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Pass a response on, rejected if the model is to be asked again."""
        async with aclosing(call_next(call)) as items:
            async for item in items:
                if isinstance(item, CompletedResponse) and _is_answer(call, item.response):
                    try:
                        await validate_in_worker(response_text(item.response.messages), self.response_format)
                    except InvalidAnswerError as error:
                        request = f"{error.message}. Answer again, with JSON that fits and nothing else."
                        yield replace(item, rejection=Rejection(error.message, request))
                        continue
                yield item


def _is_answer(call: ModelCall, response: ChatResponse[Any]) -> bool:
    """Return whether a response ends the turn with an answer, rather than with a call, a pause or a refusal."""
    contents = [content for message in response.messages for content in message.contents]
    return (
        not any(content.type in {"function_call", "function_approval_request"} for content in contents)
        and end_of_answer(response).status == "success"
        and call.provider.continuation_messages(response) is None
        and not call.provider.client_calls(response.messages)
    )


class ResponseFormats(AgentFeature):
    """Has an agent's answers fit the format that a request asks for.

    Args:
        retries: how often the model is asked again for an answer that does not fit.
    """

    def __init__(self, retries: int = 1) -> None:
        self._retries = retries

    @override
    def begin(self, start: AttemptStart) -> AttemptFeature | None:
        """Begin an attempt; None when the request asks for no format."""
        response_format = start.request.response_format
        return None if response_format is None else ResponseFormatOfAttempt(response_format, self._retries)


@dataclass(frozen=True)
class ResponseFormatOfAttempt:
    """The format of the answer of one turn.

    Attributes:
        response_format: of the turn's request.
        retries: how often the model is asked again.
    """

    response_format: Mapping[str, Any]
    retries: int

    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Check the answers of the turn's agent, until one that does not fit fails the turn."""
        may_reject = len(run.journal.recorded.rejections) < self.retries
        return RunPart(
            answer=CheckResponseFormat(self.response_format) if may_reject else None, check_answer=self.check_answer
        )

    async def check_answer(self, response: AgentResponse[Any]) -> None:
        """Refuse an answer that does not fit.

        Raises:
            InvalidAnswerError: it does not match the format.
        """
        if end_of_answer(response).status == "success":
            await validate_in_worker(response_text(response.messages), self.response_format)


def choose_response_retries(chosen: Any, default: Any) -> int:
    """Return how often an agent's model is asked again for an answer that does not fit.

    Raises:
        RegistrationError: it is no number of times.
    """
    value = default if chosen is None else chosen
    if type(value) is not int or value < 0:
        raise RegistrationError(f"response_retries is {value!r}: give a whole number, 0 for none")
    return value
