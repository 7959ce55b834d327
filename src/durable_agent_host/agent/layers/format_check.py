"""Answers that must fit a format: one that does not is marked, and the model is asked again.

The layer is within the journal, so the mark is durable with the response: every later run of the agent passes over the
response, and asks with what was wrong about it. The rejected response is not part of the conversation.
"""

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agent_framework import ChatResponse, Message

from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.agent.response_format_worker import validate_in_worker
from durable_agent_host.codec.journal_entry import REJECTED, decode_model_response
from durable_agent_host.errors import InvalidAnswerError
from durable_agent_host.model.ending import end_of_answer
from durable_agent_host.stream.response_messages import response_text


@dataclass(frozen=True)
class CheckResponseFormat:
    """Marks the answers of a turn's agent that do not fit the requested format.

    Attributes:
        response_format: of the turn's request.
    """

    response_format: Mapping[str, Any]

    async def __call__(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Pass a response on, marked if the model is to be asked again."""
        async with aclosing(call_next(call)) as items:
            async for item in items:
                if isinstance(item, CompletedResponse) and _is_answer(call, item.response):
                    try:
                        await validate_in_worker(response_text(item.response.messages), self.response_format)
                    except InvalidAnswerError as error:
                        properties = item.response.additional_properties or {}
                        item.response.additional_properties = {**properties, REJECTED: error.message}
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


def messages_after_rejection(recorded_response: Mapping[str, Any], reason: str) -> list[Message]:
    """Return the messages with which the model is asked again."""
    text = response_text(decode_model_response(recorded_response).messages)
    request = f"{reason}. Answer again, with JSON that fits and nothing else."
    return [*([Message("assistant", [text])] if text else []), Message("user", [request])]
