"""The response of a model's service: corrected, measured, and checked for its end. The innermost layer."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import ChatResponse, ChatResponseUpdate, Content, Message, ResponseStream

from durable_agent_host.agent.call_scope import CALL_SCOPE
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, TruncatedResponseError
from durable_agent_host.agent.provider import ModelProvider
from durable_agent_host.agent.response_limits import (
    lacks_finish_reason,
    turn_traffic,
    until_its_end,
)
from durable_agent_host.agent.retry_classification import causes_of, classify_error
from durable_agent_host.agent.run_output import EVERY, RunOutput, coalesce_updates
from durable_agent_host.errors import DurableAgentHostError, ProviderError
from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.ending import CALLS_NOT_RUN, end_of_answer
from durable_agent_host.model.response_normalization import correct_contents, text_for
from durable_agent_host.stream.fold import ItemReader

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadResponse:
    """Sends a call through its client, and reads the response.

    Tool calls wait for the end of the response: those of one that was cut off or refused are removed, and do not run.

    Attributes:
        output: what the run has streamed, which keeps the updates of an open call small.
    """

    output: RunOutput

    async def __call__(self, call: ModelCall) -> ModelStream:
        """Yield the response as it streams, then as a whole."""
        with _response_parse_errors(call.client, call.provider.explain):
            result: Any = await call.send(call.messages, call.options)
            if not isinstance(result, ResponseStream):
                response = _check_response(call, cast("ChatResponse[Any]", result))
                if _is_cut(response):
                    _remove_calls(response, (), call.provider)
                yield CompletedResponse(response, ())
                return
            calls = _CallBuffer(call.provider)
            traffic = turn_traffic()
            is_truncated = call.provider.is_truncated
            has_usage = False
            async with cast("ResponseStream[ChatResponseUpdate, ChatResponse[Any]]", result) as stream:
                async for update in until_its_end(stream, lambda u: lacks_finish_reason(u) or is_truncated(u), None):
                    traffic.count_contents(update.contents)
                    _correct(update, update.contents)
                    if has_usage:
                        update.contents = [content for content in update.contents if not _is_zero_usage(content)]
                    has_usage = has_usage or any(content.type == "usage" for content in update.contents)
                    for released_update in calls.add(update):
                        yield released_update
                    self.output.coalesce(calls.updates, call.position, call.provider)
                if is_truncated(reversed(calls.updates)):
                    raise _truncated(has_updates=bool(calls.updates))
                response = cast("ChatResponse[Any]", await cast("Any", result).get_final_response())
            _release(result)
            is_cut = _is_cut(response) and _remove_calls(response, calls.buffered_updates, call.provider)
            for update in calls.buffered_updates:
                yield update
            yield CompletedResponse(response, calls.updates, is_folded=is_cut)


class _CallBuffer:
    """Holds back a stream from its first tool call until its finish reason lets the calls run.

    Args:
        items: knows the items of the client that answers.

    Attributes:
        updates: all of the stream.
        buffered_updates: those held back, joined like others that nobody has read.
    """

    def __init__(self, items: ItemReader) -> None:
        self.updates: list[ChatResponseUpdate] = []
        self.buffered_updates: list[ChatResponseUpdate] = []
        self._items = items
        self._may_run = False

    def add(self, update: ChatResponseUpdate) -> list[ChatResponseUpdate]:
        """Add the next update, and return those that can be passed on."""
        self.updates.append(update)
        if self._may_run or not (self.buffered_updates or any(map(_is_call, update.contents))):
            return [update]
        self.buffered_updates.append(update)
        if update.finish_reason is None:
            if len(self.buffered_updates) % EVERY == 0:
                newest_updates = self.buffered_updates[-EVERY:]
                coalesce_updates(newest_updates, newest_updates, self._items)
            return []
        contents = [content for earlier in self.updates for content in earlier.contents]
        message = Message("assistant", contents)
        self._may_run = not _is_cut(ChatResponse(messages=message, finish_reason=cast("Any", update.finish_reason)))
        if not self._may_run:
            return []
        released_updates, self.buffered_updates = self.buffered_updates, []
        return released_updates


async def read_strategy_response(call: ModelCall) -> ModelStream:
    """Send a call of a compaction strategy, and read its response."""
    token = CALL_SCOPE.set(None)
    try:
        response: ChatResponse[Any] = await call.send(call.messages, call.options)
    finally:
        CALL_SCOPE.reset(token)
    yield CompletedResponse(_check_response(call, response), ())


def _check_response(call: ModelCall, response: ChatResponse[Any]) -> ChatResponse[Any]:
    traffic = turn_traffic()
    for message in response.messages:
        traffic.count_contents(message.contents)
        _correct(response, message.contents)
    response.usage_details = cast("Any", known_counts(cast("Any", response.usage_details))) or None
    if call.provider.is_truncated([response]):
        error = _truncated(has_updates=False)
        error.usage = cast("Any", response.usage_details)
        raise error
    return response


def _is_zero_usage(content: Content) -> bool:
    """Return whether a content has only zeros as token counts, which some services send after the real ones."""
    return content.type == "usage" and not any((content.usage_details or {}).values())


def _is_call(content: Content) -> bool:
    """Return whether a content calls a tool of the app, or asks for the approval of a call."""
    is_own_call = content.type == "function_call" and not (content.informational_only or content.hosted)
    return is_own_call or content.type == "function_approval_request"


def _is_cut(response: ChatResponse[Any]) -> bool:
    """Return whether a response was cut off or refused."""
    return end_of_answer(response).status != "success"


def _remove_calls(
    response: ChatResponse[Any], buffered_updates: Sequence[ChatResponseUpdate], provider: ModelProvider
) -> bool:
    """Remove the calls of a response and of its updates, and list them in its properties.

    Returns:
        Whether there were any.
    """
    client_call_ids = {client_call.call_id for client_call in provider.client_calls(response.messages)}
    calls_not_run: list[list[str]] = []
    for holder in (*response.messages, *buffered_updates):
        calls = [content for content in holder.contents if _is_call(content) or content.call_id in client_call_ids]
        holder.contents = [content for content in holder.contents if content not in calls]
        if isinstance(holder, Message):
            function_calls = ((content, content.function_call or content) for content in calls)
            calls_not_run += [
                [content.call_id or content.id or "", function_call.name or ""]
                for content, function_call in function_calls
            ]
    response.messages = [message for message in response.messages if message.contents]
    if calls_not_run:
        for holder in (response, *buffered_updates[-1:]):
            holder.additional_properties = {**(holder.additional_properties or {}), CALLS_NOT_RUN: calls_not_run}
    return bool(calls_not_run)


def _correct(update: Any, contents: Sequence[Content]) -> None:
    """Correct what an answer, or an update of it, has for texts and counts; in place."""
    correct_contents(contents)
    if update.finish_reason is not None:
        update.finish_reason = text_for(update.finish_reason, "finish_reason")
    if not isinstance(update.model, str | None):
        update.model = str(update.model)


def _release(stream: Any) -> None:
    """Let go of what a stream that has ended was made from.

    The hook of the framework's telemetry refers to the stream that it belongs to, and to all messages of the call. They
    would stay until the next garbage collection, which visits all of them and blocks every thread for that time.
    """
    stream.__dict__.get("_cleanup_hooks", []).clear()


@contextmanager
def _response_parse_errors(client: Any, explain: Callable[[BaseException], ProviderError | None]) -> Generator[None]:
    """Turn an error of reading an answer into a sentence: one that nobody explains, after some of the answer has come.

    Raises:
        ProviderError: the answer cannot be read; the log has the client's name and the error.
        Exception: any other, unchanged.
    """
    before = turn_traffic().response_count
    try:
        yield
    except Exception as error:
        causes = list(causes_of(error))
        is_host_error = any(isinstance(cause, DurableAgentHostError) for cause in causes)
        if (
            is_host_error
            or turn_traffic().response_count == before
            or explain(error) is not None
            or classify_error(error) is not None
        ):
            raise
        _LOGGER.warning("%s cannot read an answer of its service", type(client).__name__, exc_info=causes[-1])
        raise ProviderError(
            "the model's service sent an answer that cannot be read: check that the endpoint has the API of the "
            "agent's client; the app's log has the reason",
            retryable=False,
        ) from error


def _truncated(*, has_updates: bool) -> TruncatedResponseError:
    if has_updates:
        return TruncatedResponseError(
            "the model's stream ended before the answer was complete; try again", retryable=True
        )
    return TruncatedResponseError(
        "the model's endpoint gave no answer: its response contains nothing from the model; try again, "
        "and check the endpoint's address if that does not help",
        retryable=True,
    )
