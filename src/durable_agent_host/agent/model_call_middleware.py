"""Chat middleware around every model call of a turn: finished calls come from the journal, failed ones are retried.

It is the innermost chat middleware: it journals what the model returned, and the app's own middleware runs again on a
replay. A call that has streamed nothing is retried in place. When a stream breaks midway, the error propagates and the
agent is run again, because clients must discard what they have seen of the call and the agent's pipeline cannot retract
an update. An answer that the service produces in the background is fetched by its id, also after a crash, since a new
one would be paid for again.
"""

import asyncio
import copy
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, cast

from agent_framework import (
    ChatContext,
    ChatMiddleware,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    ResponseStream,
    add_usage_details,
)

from durable_agent_host.agent.agent_run import AgentRun, BrokenStream
from durable_agent_host.agent.observer import ModelCallCompleted, ModelCallFailed, ModelCallResponded, ModelCallStarted
from durable_agent_host.agent.response_limits import (
    OutputCounter,
    OutputSizeMeter,
    check_calls,
    check_model_call,
    count_output_characters,
    lacks_finish_reason,
    received_bytes,
    stream_with_timeout,
    until_its_end,
)
from durable_agent_host.agent.retry_classification import causes_of, classify_error
from durable_agent_host.agent.run_result import RunStoppedError, stop_of
from durable_agent_host.codec.journal_entry import decode_model_response, encode_answer, replayed_updates
from durable_agent_host.errors import DurableAgentHostError, LogError, ProviderError, log_reason
from durable_agent_host.model.budget import Reservation, is_measured, known_counts
from durable_agent_host.model.response_normalization import correct_contents, text_for

_MOST_CHARACTERS: Final = 300


@contextmanager
def response_parse_errors(client: Any, explain: Callable[[BaseException], ProviderError | None]) -> Generator[None]:
    """Turn an error of reading an answer into a sentence: one that nobody explains, after some of the answer has come.

    Raises:
        ProviderError: the answer cannot be read; with the client's name and the error's text.
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
        reason = f"{type(client).__name__}: {type(causes[-1]).__name__}: {causes[-1]}"[:_MOST_CHARACTERS]
        raise ProviderError(
            f"the model's service sent an answer that cannot be read: {reason}", retryable=False
        ) from error


CallNext = Callable[[], Awaitable[None]]


class ModelCallMiddleware(ChatMiddleware):
    """Journals the model calls of one run.

    Args:
        run: the calls' run.

    Attributes:
        run: the calls' run.
        is_watched: whether code of the app may change what is streamed, so that it gets copies.
    """

    def __init__(self, run: AgentRun) -> None:
        self.run = run
        self.is_watched = False

    async def process(self, context: ChatContext, call_next: CallNext) -> None:
        """Answer a call from the journal, or make it and journal its response.

        Raises:
            RunStoppedError: the run is no longer wanted.
        """
        answer = _ModelResponse(self.run, context, call_next)
        await answer.begin()
        if context.stream:
            updates = answer.stream()
            stream = _copies(updates) if self.is_watched else updates
            context.result = ResponseStream(stream, finalizer=lambda _: answer.response())
        else:
            async for _ in answer.stream():
                pass
            context.result = answer.response()


_TEXTS: Final = frozenset({"text", "text_reasoning"})
"""What middleware changes in place; the framework gives ids to the very calls that its client has streamed."""


async def _copies(updates: AsyncGenerator[ChatResponseUpdate]) -> AsyncGenerator[ChatResponseUpdate]:
    async with aclosing(updates):
        async for update in updates:
            update_copy = copy.copy(update)
            update_copy.contents = [
                copy.copy(content) if content.type in _TEXTS else content for content in update.contents
            ]
            yield update_copy


class _ModelResponse:
    """The agent's view of one model call: one call, or several when the model pauses in its answer."""

    def __init__(self, run: AgentRun, context: ChatContext, call_next: CallNext) -> None:
        self._run = run
        self._context = context
        self._call_next = call_next
        self._request_messages = [*context.messages]
        self._responses: list[ChatResponse[Any]] = []
        self._step: _Replay | _Call

    async def begin(self) -> None:
        """Prepare the next call."""
        run = self._run
        context = self._context
        run.check_waiting()
        position, entry = run.journal.next_model_call()
        received_bytes().calls = position + 1
        run.record_available_tools(context.options)
        context.messages = self._request_messages
        chosen = await run.choose_messages(run, context, position, entry is not None)
        if entry is not None:
            run.session_state.restore(position)
            self._step = _Replay(run, entry, position)
            return
        run.check()
        check_model_call(run.bounds, started_count=1)
        context.messages = [*run.prepare_messages(chosen)]
        self._step = _Call(run, context, self._call_next, position, await self._reserve())

    async def _reserve(self) -> Reservation | None:
        """Check the call against the budgets."""
        run = self._run
        context = self._context
        if run.budget_account is None:
            return None
        reservation = await run.budget_account.admit_model_call(
            run.ask_for_budget, context.messages, context.options or {}
        )
        run.check_waiting()
        return reservation

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the updates of all calls; each response is durable before the next call is made."""
        while True:
            async with aclosing(self._step.stream()) as updates:
                async for update in updates:
                    yield update
            self._responses.append(self._step.response)
            more = self._run.provider.continuation_messages(self._step.response)
            if more is None:
                return
            if len(self._responses) > _MOST_PAUSES:
                raise ProviderError(
                    f"the model has paused {len(self._responses)} times in one answer; ask for less at once",
                    retryable=False,
                )
            self._request_messages = [*self._request_messages, *more]
            await self.begin()

    def response(self) -> ChatResponse[Any]:
        """Return the response of all calls as one."""
        *paused_responses, last = self._responses
        if not paused_responses:
            return last
        merged_response = copy.copy(last)
        merged_response.messages = [message for response in self._responses for message in response.messages]
        for response in paused_responses:
            merged_response.usage_details = add_usage_details(merged_response.usage_details, response.usage_details)
        return merged_response


class _Replay:
    """A model call that the journal answers."""

    def __init__(self, run: AgentRun, entry: Mapping[str, Any], position: int) -> None:
        self._run = run
        self._entry = entry
        self._position = position
        self.response = decode_model_response(entry)
        if run.drop_continuations:
            self.response.conversation_id = None

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the response as updates."""
        await self._run.observers.notify(ModelCallStarted(self._position, replayed=True))
        self._run.record_invalid_calls(self.response, self._position)
        with self._run.replaying():
            for update in replayed_updates(decode_model_response(self._entry)):
                yield update
        await self._run.observers.notify(ModelCallResponded(self._position, replayed=True))
        await self._run.observers.notify(_build_completed(self.response, self._position, replayed=True))


def _build_completed(response: ChatResponse[Any], position: int, *, replayed: bool) -> ModelCallCompleted:
    usage = cast("Mapping[str, Any] | None", response.usage_details)
    return ModelCallCompleted(position, response.model, usage, response.finish_reason, replayed)


class _Call:
    """One model call, with its retries."""

    def __init__(
        self, run: AgentRun, context: ChatContext, call_next: CallNext, position: int, reservation: Reservation | None
    ) -> None:
        self._run = run
        self._reservation = reservation
        self._context = context
        self._call_next = call_next
        self._position = position
        self._updates: list[ChatResponseUpdate] = []
        self._is_continued = self._was_continued = False
        self.response: ChatResponse[Any] = ChatResponse()

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the updates of the first attempt that streams content; the response is durable when it ends."""
        run = self._run
        run.begin_call(self._position)
        await run.observers.notify(ModelCallStarted(self._position, replayed=False))
        retry = run.breaks.get(self._position, 0)
        while True:
            has_content = False
            buffered_updates: list[
                ChatResponseUpdate
            ] = []  # opening updates have no content, and a retry sends them again
            try:
                async with aclosing(stream_with_timeout(self._attempt(), run.bounds)) as updates:
                    async for update in updates:
                        if not has_content and not update.contents:
                            buffered_updates.append(update)
                            continue
                        has_content = True
                        for ready_update in (*buffered_updates, update):
                            yield ready_update
                        buffered_updates = []
                for ready_update in buffered_updates:
                    yield ready_update
                break
            except Exception as error:
                if not has_content and run.budget_account is not None:
                    await run.budget_account.release(self._position, None)
                if (seconds := await self._wait_before_retry(retry, error)) is None:
                    raise
                if has_content:
                    run.broke(BrokenStream(self._position, seconds, log_reason(error)))
                    raise
                retry += 1
                await asyncio.sleep(seconds)
                run.check()
        await self._journal()

    async def _wait_before_retry(self, retry: int, error: Exception) -> float | None:
        """Return after how many seconds the call is retried; None when it is not."""
        run = self._run
        was_missing = await self._gave_up_background(error)
        seconds = 0.0 if was_missing else run.wait_before_retry(retry, error)
        reason = run.provider.explain(error) or error
        await run.observers.notify(ModelCallFailed(self._position, reason, seconds))
        return seconds

    async def _journal(self) -> None:
        """Make the response durable; its tool calls run after that."""
        run = self._run
        await run.observers.notify(ModelCallResponded(self._position, replayed=False))
        folded_response = self._fold_response()
        check_calls((content for message in folded_response.messages for content in message.contents), run.bounds)
        if run.budget_account is not None and not is_measured(cast("Any", folded_response.usage_details)):
            run.budget_account.journal_output(self._position, None)
        response = encode_answer(folded_response)
        try:
            await run.journal.model_finished(self._position, response, run.session_state.changes())
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        if run.budget_account is not None:
            usage = cast("Mapping[str, Any] | None", self.response.usage_details)
            run.budget_account.commit(self._position, None, usage, self.response.model)
        run.finish_call(self._position, self.response)
        await run.observers.notify(_build_completed(self.response, self._position, replayed=False))

    def _fold_response(self) -> ChatResponse[Any]:
        """Return the response with the messages that the turn will store."""
        response = copy.copy(self.response)
        if self._updates:
            response.messages = self._run.output.fold_call(self._updates).response().messages
        return response

    async def _attempt(self) -> AsyncGenerator[ChatResponseUpdate]:
        run = self._run
        self._updates = []
        self._continue_background()
        if run.budget_account is not None and self._reservation is not None:
            await run.budget_account.reserve(self._position, None, self._reservation)
        with run.exchange_recorder.call(self._position, None):
            try:
                with response_parse_errors(self._context.client, run.provider.explain):
                    async with aclosing(self._send_once()) as updates:
                        async for update in updates:
                            yield update
            except BaseException:
                if run.budget_account is not None:
                    run.budget_account.broke_off(self._position, None)
                raise

    async def _send_once(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Make the call once."""
        await self._call_next()
        result: Any = self._context.result
        meter = OutputSizeMeter()
        counter = OutputCounter(self._run.provider)
        if isinstance(result, ResponseStream):
            async with cast("ResponseStream[ChatResponseUpdate, ChatResponse[Any]]", result) as updates:
                is_open = self._run.provider.is_truncated
                async for update in until_its_end(updates, lambda u: lacks_finish_reason(u) or is_open(u), None):
                    meter.add(update.contents)
                    _correct(update, update.contents)
                    if self._run.budget_account is not None:
                        counter.add(update)
                        self._count_output(counter.characters, update.model, is_open=True)
                    self._updates.append(update)
                    await self._record_background(update.continuation_token)
                    yield update
                    self._run.output.coalesce(self._updates, self._position)
                if self._run.provider.is_truncated(reversed(self._updates)):
                    raise _cut_off(self._updates)
                self.response = await result.get_final_response()
            _release(result)
        else:
            for message in result.messages:
                meter.add(message.contents)
                _correct(result, message.contents)
            result.usage_details = cast("Any", known_counts(result.usage_details)) or None
            self._count_output(count_output_characters(result), result.model, is_open=False)
            if self._run.provider.is_truncated([result]):
                raise _cut_off([])
            self.response = result

    def _count_output(self, characters: int, model: str | None, *, is_open: bool) -> None:
        """Tell the budgets what the call has said so far; an answer that still comes may cross one."""
        if (account := self._run.budget_account) is not None:
            account.add_output(self._position, None, characters, model, is_open=is_open)

    def _continue_background(self) -> None:
        """Resume the service's background answer, if there is one."""
        continuation = self._run.journal.recorded.continuations.get(self._position)
        options = dict(self._context.options or {})
        self._is_continued = continuation is not None
        if continuation is not None:
            options[_CONTINUATION] = dict(continuation)
        elif self._was_continued:
            options.pop(_CONTINUATION, None)
        self._was_continued = self._was_continued or self._is_continued
        self._context.options = options

    async def _record_background(self, continuation: Any) -> None:
        if not isinstance(continuation, Mapping) or not (self._context.options or {}).get("background"):
            return
        continuation_token = dict(cast("Mapping[str, Any]", continuation))
        if self._run.journal.recorded.continuations.get(self._position) != continuation_token:
            await self._journal_continuation(continuation_token)

    async def _gave_up_background(self, error: Exception) -> bool:
        """Forget a background answer that failed or is gone at the service; a broken connection means neither."""
        if self._run.journal.recorded.continuations.get(self._position) is None:
            return False
        decision = classify_error(error)
        was_missing = self._is_continued and decision is not None and decision.is_response_missing
        has_failed = any(
            isinstance(cause, ProviderError) and not isinstance(cause, _CutOffError) for cause in causes_of(error)
        )
        if was_missing or has_failed:
            await self._journal_continuation(None)
        return was_missing

    async def _journal_continuation(self, continuation: Mapping[str, Any] | None) -> None:
        try:
            await self._run.journal.record_background_call(self._position, continuation)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error


def _correct(update: Any, contents: Sequence[Content]) -> None:
    """Correct what an answer, or an update of it, has for texts and counts; in place."""
    correct_contents(contents)
    if update.finish_reason is not None:
        update.finish_reason = text_for(update.finish_reason, "finish_reason")


def _release(stream: Any) -> None:
    """Let go of what a stream that has ended was made from.

    The hook of the framework's telemetry refers to the stream that it belongs to, and to all messages of the call. They
    would stay until the next garbage collection, which visits all of them and blocks every thread for that time.
    """
    stream.__dict__.get("_cleanup_hooks", []).clear()


_MOST_PAUSES: Final = 50
"""Maximum pauses in one answer; the services pause after about ten calls of their own tools."""

_CONTINUATION: Final = "continuation_token"


class _CutOffError(ProviderError):
    """The answer ended before the provider marked it complete."""


def _cut_off(updates: list[ChatResponseUpdate]) -> ProviderError:
    if updates:
        return _CutOffError("the model's stream ended before the answer was complete; try again", retryable=True)
    return _CutOffError(
        "the model's endpoint gave no answer: its response contains nothing from the model; try again, "
        "and check the endpoint's address if that does not help",
        retryable=True,
    )
