"""The response of a model's service: corrected, measured, and checked for its end. The innermost layer."""

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, cast

from agent_framework import ChatResponse, ChatResponseUpdate, Content, ResponseStream

from durable_agent_host.agent.call_scope import CALL_SCOPE
from durable_agent_host.agent.model_call import CompletedResponse, ModelCall, ModelStream, TruncatedResponseError
from durable_agent_host.agent.response_limits import (
    OutputSizeMeter,
    lacks_finish_reason,
    received_bytes,
    until_its_end,
)
from durable_agent_host.agent.retry_classification import causes_of, classify_error
from durable_agent_host.agent.run_output import RunOutput
from durable_agent_host.errors import DurableAgentHostError, ProviderError
from durable_agent_host.model.budget import known_counts
from durable_agent_host.model.response_normalization import correct_contents, text_for

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class ReadResponse:
    """Sends a call through its client, and reads the response.

    Attributes:
        output: what the run has streamed, which keeps the updates of an open call small.
    """

    output: RunOutput

    async def __call__(self, call: ModelCall) -> ModelStream:
        """Yield the response as it streams, then as a whole."""
        with _response_parse_errors(call.client, call.provider.explain):
            result: Any = await call.send(call.messages, call.options)
            if not isinstance(result, ResponseStream):
                yield CompletedResponse(_check_response(call, cast("ChatResponse[Any]", result)), ())
                return
            updates: list[ChatResponseUpdate] = []
            meter = OutputSizeMeter()
            is_truncated = call.provider.is_truncated
            async with cast("ResponseStream[ChatResponseUpdate, ChatResponse[Any]]", result) as stream:
                async for update in until_its_end(stream, lambda u: lacks_finish_reason(u) or is_truncated(u), None):
                    meter.add(update.contents)
                    _correct(update, update.contents)
                    updates.append(update)
                    yield update
                    self.output.coalesce(updates, call.position, call.provider)
                if is_truncated(reversed(updates)):
                    raise _truncated(has_updates=bool(updates))
                response = cast("ChatResponse[Any]", await cast("Any", result).get_final_response())
            _release(result)
            yield CompletedResponse(response, updates)


async def read_unmetered(call: ModelCall) -> ModelStream:
    """Send a call of a compaction strategy, whose client measures the response, and count it no second time."""
    token = CALL_SCOPE.set(None)
    try:
        response: ChatResponse[Any] = await call.send(call.messages, call.options)
    finally:
        CALL_SCOPE.reset(token)
    response.usage_details = cast("Any", known_counts(cast("Any", response.usage_details))) or None
    yield CompletedResponse(response, ())


def _check_response(call: ModelCall, response: ChatResponse[Any]) -> ChatResponse[Any]:
    meter = OutputSizeMeter()
    for message in response.messages:
        meter.add(message.contents)
        _correct(response, message.contents)
    response.usage_details = cast("Any", known_counts(cast("Any", response.usage_details))) or None
    if call.provider.is_truncated([response]):
        error = _truncated(has_updates=False)
        error.usage = cast("Any", response.usage_details)
        raise error
    return response


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
    before = received_bytes().bytes
    try:
        yield
    except Exception as error:
        causes = list(causes_of(error))
        is_host_error = any(isinstance(cause, DurableAgentHostError) for cause in causes)
        if (
            is_host_error
            or received_bytes().bytes == before
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
