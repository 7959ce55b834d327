"""Answers that must fit a format: one that does not is rejected, and the model is asked again.

The format is that of the model call: of the request, of the agent's own options, or of the app's middleware. The layer
is within the journal, so the rejection is durable with the response: every later run of the agent passes over the
response, and asks with what was wrong about it.
"""

import json
from collections.abc import Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import Any, cast, override

from agent_framework import AgentResponse, ChatContext, ChatResponse, SupportsAgentRun
from pydantic import BaseModel, ValidationError

from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, NextModelCall
from durable_agent_host.errors import InvalidAnswerError, RegistrationError, RequestError
from durable_agent_host.features.response_format.worker import validate_in_worker
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.ending import STRUCTURED, end_of_answer
from durable_agent_host.model.journal_entry import Rejection
from durable_agent_host.stream.response_messages import response_text
from durable_agent_host.turn.response_format import parse_answer


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
    """Has an agent's answers fit the format that a request or the agent itself asks for.

    Args:
        agent: with a format in its own options, or with middleware that may choose one, or without both.
        retries: how often the model is asked again for an answer that does not fit.
    """

    def __init__(self, agent: SupportsAgentRun, retries: int) -> None:
        options = cast("Mapping[str, Any]", getattr(agent, "default_options", {}))
        middleware: Any = getattr(agent, "middleware", None)
        client: Any = getattr(agent, "client", None)
        self._may_have_format = bool(
            options.get("response_format") or middleware or getattr(client, "chat_middleware", None)
        )
        self._retries = retries

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Check the answers of the agent if anybody has a format, until one that does not fit fails the turn."""
        is_requested = run.start.request.response_format is not None
        if not (is_requested or self._may_have_format):
            return RunPart()
        may_reject = len(run.journal.recorded.rejections) < self._retries
        answers = ResponseFormatOfRun(is_requested=is_requested)
        return RunPart(
            answer=answers.reject if may_reject else None,
            add_messages=answers.read_format,
            check_answer=answers.check_answer,
        )


@dataclass
class ResponseFormatOfRun:
    """The format of the answer in one run.

    Attributes:
        is_requested: whether the request has a format, which replaces the agent's own.
        response_format: of the latest model call: a class of pydantic, a JSON schema, or None.
    """

    is_requested: bool
    response_format: Any = None

    async def read_format(self, context: ChatContext, path: CallPath, /, *, is_replayed: bool) -> None:
        """Read the format of the next model call, which no middleware changes any more."""
        del path, is_replayed
        self.response_format = (context.options or {}).get("response_format")

    async def reject(self, call: ModelCall, call_next: NextModelCall) -> ModelStream:
        """Pass a response on, rejected if the model is to be asked again; a layer of its call."""
        async with aclosing(call_next(call)) as items:
            async for item in items:
                if isinstance(item, CompletedResponse) and _is_answer(call, item.response):
                    try:
                        await self._check(response_text(item.response.messages))
                    except InvalidAnswerError as error:
                        request = f"{error.message}. Answer again, with JSON that fits and nothing else."
                        yield replace(item, rejection=Rejection(error.message, request))
                        continue
                yield item

    async def check_answer(self, response: AgentResponse[Any]) -> None:
        """Refuse an answer that does not fit.

        Raises:
            InvalidAnswerError: it does not match the format.
        """
        if self.response_format is not None and end_of_answer(response).status == "success":
            await self._check(response_text(response.messages))
            if not self.is_requested:
                response.additional_properties = {**(response.additional_properties or {}), STRUCTURED: True}

    async def _check(self, text: str) -> None:
        model = self.response_format if isinstance(self.response_format, type) else None
        schema = {"type": "json_object"} if model is not None else _find_schema(self.response_format)
        if schema is None:
            return
        with suppress(*(() if self.is_requested else (RequestError,))):  # a service takes more than JSON schemas
            await validate_in_worker(text, schema)
        if model is None:
            return
        try:
            cast("type[BaseModel]", model).model_validate_json(json.dumps(parse_answer(text)))
        except ValidationError as error:
            reason = error.errors()[0]
            path = ".".join(map(str, ("$", *reason["loc"])))
            raise InvalidAnswerError(
                f"the model's answer does not fit response_format: {reason['msg']} at {path}"
            ) from None


def _find_schema(response_format: Any) -> Mapping[str, Any] | None:
    """Return the schema of a format that may be written as in a request to the service; None for free text."""
    if not response_format:
        return None
    inner = response_format.get("format")
    schema = cast("Mapping[str, Any]", inner if isinstance(inner, Mapping) else response_format)
    return None if schema.get("type") == "text" else schema


def choose_response_retries(chosen: Any, default: Any) -> int:
    """Return how often an agent's model is asked again for an answer that does not fit.

    Raises:
        RegistrationError: it is no number of times.
    """
    value = default if chosen is None else chosen
    if type(value) is not int or value < 0:
        raise RegistrationError(f"response_retries is {value!r}: give a whole number, 0 for none")
    return value
