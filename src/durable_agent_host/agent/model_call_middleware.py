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
from functools import partial
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
from durable_agent_host.agent.history_placeholder import CallMessages
from durable_agent_host.agent.observer import ModelCallAnswered, ModelCallBegan, ModelCallFailed, ModelCallFinished
from durable_agent_host.agent.response_limits import (
    Heard,
    WordMeter,
    characters_of_answer,
    check_calls,
    check_model_call,
    in_time,
    lacks_finish_reason,
    received,
    until_its_end,
)
from durable_agent_host.agent.retry_classification import advice_of, causes_of
from durable_agent_host.agent.run_result import RunStoppedError, stop_of
from durable_agent_host.codec.journal_entry import decode_model_response, encode_answer, replayed_updates
from durable_agent_host.errors import DurableAgentHostError, LogError, ProviderError, log_reason
from durable_agent_host.model.budget import Reservation, is_measured, known_counts
from durable_agent_host.model.response_normalization import correct_contents, text_for

_MOST_CHARACTERS: Final = 300


@contextmanager
def reading(client: Any, explain: Callable[[BaseException], ProviderError | None]) -> Generator[None]:
    """Turn an error of reading an answer into a sentence: one that nobody explains, after some of the answer has come.

    Args:
        client: the chat client.
        explain: returns what the provider knows of an error.

    Raises:
        ProviderError: the answer cannot be read; with the client's name and the error's text.
        Exception: any other, unchanged.
    """
    before = received().bytes
    try:
        yield
    except Exception as error:
        causes = list(causes_of(error))
        is_ours = any(isinstance(one, DurableAgentHostError) for one in causes)
        if is_ours or received().bytes == before or explain(error) is not None or advice_of(error) is not None:
            raise
        why = f"{type(client).__name__}: {type(causes[-1]).__name__}: {causes[-1]}"[:_MOST_CHARACTERS]
        raise ProviderError(
            f"the model's service sent an answer that cannot be read: {why}", retryable=False
        ) from error


CallNext = Callable[[], Awaitable[None]]


class ModelCalls(ChatMiddleware):
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
        answer = _Answer(self.run, context, call_next)
        await answer.begin()
        if context.stream:
            answer.messages.put_aside()
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
            copied = copy.copy(update)
            copied.contents = [copy.copy(one) if one.type in _TEXTS else one for one in update.contents]
            yield copied


class _Answer:
    """The agent's view of one model call: one call, or several when the model pauses in its answer."""

    def __init__(self, run: AgentRun, context: ChatContext, call_next: CallNext) -> None:
        self._run = run
        self._context = context
        self._call_next = call_next
        self.messages = CallMessages(context)
        self._asked = self.messages.given
        self._responses: list[ChatResponse[Any]] = []
        self._step: _Replay | _Call

    async def begin(self) -> None:
        """Prepare the next call."""
        run = self._run
        context = self._context
        run.check_waiting()
        position, recorded = run.journal.next_model_call()
        received().calls = position + 1
        run.note_offered(context.options)
        context.messages = self._asked
        chosen = await run.choose_messages(run, context, position, recorded is not None)
        if recorded is not None:
            run.session_state.restore(position)
            self._step = _Replay(run, recorded, position)
            return
        run.check()
        check_model_call(run.bounds, begun=1)
        self.messages.choose(run.prepare_messages(chosen))
        send = partial(_send, self.messages, self._call_next)
        self._step = _Call(run, context, send, position, await self._admitted())

    async def _admitted(self) -> Reservation | None:
        """Check the call against the budgets."""
        run = self._run
        context = self._context
        if run.spending is None:
            return None
        wanted = await run.spending.admit_model_call(run.ask_for_budget, context.messages, context.options or {})
        run.check_waiting()
        return wanted

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the updates of all calls; each response is durable before the next call is made."""
        try:
            while True:
                async with aclosing(self._step.stream()) as updates:
                    async for update in updates:
                        yield update
                self._responses.append(self._step.response)
                more = self._run.provider.goes_on(self._step.response)
                if more is None:
                    return
                if len(self._responses) > _MOST_PAUSES:
                    raise ProviderError(
                        f"the model has paused {len(self._responses)} times in one answer; ask for less at once",
                        retryable=False,
                    )
                self._asked = [*self._asked, *more]
                await self.begin()
        finally:
            self.messages.release()

    def response(self) -> ChatResponse[Any]:
        """Return the response of all calls as one."""
        *paused, last = self._responses
        if not paused:
            return last
        whole = copy.copy(last)
        whole.messages = [message for one in self._responses for message in one.messages]
        for one in paused:
            whole.usage_details = add_usage_details(whole.usage_details, one.usage_details)
        return whole


async def _send(messages: CallMessages, call_next: CallNext) -> None:
    messages.send()
    await call_next()


class _Replay:
    """A model call that the journal answers."""

    def __init__(self, run: AgentRun, recorded: Mapping[str, Any], position: int) -> None:
        self._run = run
        self._recorded = recorded
        self._position = position
        self.response = decode_model_response(recorded)
        if run.drop_continuations:
            self.response.conversation_id = None

    async def stream(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Yield the response as updates."""
        await self._run.audience.tell(ModelCallBegan(self._position, replayed=True))
        self._run.note_unreadable(self.response, self._position)
        with self._run.replaying():
            for update in replayed_updates(decode_model_response(self._recorded)):
                yield update
        await self._run.audience.tell(ModelCallAnswered(self._position, replayed=True))
        await self._run.audience.tell(_finished(self.response, self._position, replayed=True))


def _finished(response: ChatResponse[Any], position: int, *, replayed: bool) -> ModelCallFinished:
    usage = cast("Mapping[str, Any] | None", response.usage_details)
    return ModelCallFinished(position, response.model, usage, response.finish_reason, replayed)


class _Call:
    """One model call, with its retries."""

    def __init__(
        self, run: AgentRun, context: ChatContext, call_next: CallNext, position: int, wanted: Reservation | None
    ) -> None:
        self._run = run
        self._wanted = wanted
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
        await run.audience.tell(ModelCallBegan(self._position, replayed=False))
        retry = run.breaks.get(self._position, 0)
        while True:
            told = False
            held: list[ChatResponseUpdate] = []  # opening updates have no content, and a retry sends them again
            try:
                async with aclosing(in_time(self._attempt(), run.bounds)) as updates:
                    async for update in updates:
                        if not told and not update.contents:
                            held.append(update)
                            continue
                        told = True
                        for one in (*held, update):
                            yield one
                        held = []
                for one in held:
                    yield one
                break
            except Exception as error:
                if not told and run.spending is not None:
                    await run.spending.release(self._position, None)
                if (seconds := await self._wait_before_retry(retry, error)) is None:
                    raise
                if told:
                    run.broke(BrokenStream(self._position, seconds, log_reason(error)))
                    raise
                retry += 1
                await asyncio.sleep(seconds)
                run.check()
        await self._journal()

    async def _wait_before_retry(self, retry: int, error: Exception) -> float | None:
        """Return after how many seconds the call is retried; None when it is not."""
        run = self._run
        was_gone = await self._gave_up_background(error)
        seconds = 0.0 if was_gone else run.wait_before_retry(retry, error)
        reason = run.provider.explain(error) or error
        await run.audience.tell(ModelCallFailed(self._position, reason, seconds))
        return seconds

    async def _journal(self) -> None:
        """Make the response durable; its tool calls run after that."""
        run = self._run
        await run.audience.tell(ModelCallAnswered(self._position, replayed=False))
        folded = self._folded()
        check_calls((content for message in folded.messages for content in message.contents), run.bounds)
        if run.spending is not None and not is_measured(cast("Any", folded.usage_details)):
            run.spending.note_heard(self._position, None)
        response = encode_answer(folded)
        try:
            await run.journal.model_finished(self._position, response, run.session_state.changes())
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error
        if run.spending is not None:
            usage = cast("Mapping[str, Any] | None", self.response.usage_details)
            run.spending.settle(self._position, None, usage, self.response.model)
        run.finish_call(self._position, self.response)
        await run.audience.tell(_finished(self.response, self._position, replayed=False))

    def _folded(self) -> ChatResponse[Any]:
        """Return the response with the messages that the turn will store."""
        folded = copy.copy(self.response)
        if self._updates:
            folded.messages = self._run.produced.fold_call(self._updates).response().messages
        return folded

    async def _attempt(self) -> AsyncGenerator[ChatResponseUpdate]:
        run = self._run
        self._updates = []
        self._continue_background()
        if run.spending is not None and self._wanted is not None:
            await run.spending.reserve(self._position, None, self._wanted)
        with run.kept.call(self._position, None):
            try:
                with reading(self._context.client, run.provider.explain):
                    async with aclosing(self._made()) as updates:
                        async for update in updates:
                            yield update
            except BaseException:
                if run.spending is not None:
                    run.spending.broke_off(self._position, None)
                raise

    async def _made(self) -> AsyncGenerator[ChatResponseUpdate]:
        """Make the call once."""
        await self._call_next()
        result: Any = self._context.result
        meter = WordMeter()
        heard = Heard(self._run.provider)
        if isinstance(result, ResponseStream):
            async with cast("ResponseStream[ChatResponseUpdate, ChatResponse[Any]]", result) as updates:
                is_open = self._run.provider.ended_early
                async for update in until_its_end(updates, lambda u: lacks_finish_reason(u) or is_open(u), None):
                    meter.take(update.contents)
                    _correct(update, update.contents)
                    if self._run.spending is not None:
                        heard.take(update)
                        self._heard(heard.characters, update.model, is_open=True)
                    self._updates.append(update)
                    await self._note_background(update.continuation_token)
                    yield update
                    self._run.produced.condense(self._updates, self._position)
                if self._run.provider.ended_early(reversed(self._updates)):
                    raise _cut_off(self._updates)
                self.response = await result.get_final_response()
            _release(result)
        else:
            for message in result.messages:
                meter.take(message.contents)
                _correct(result, message.contents)
            result.usage_details = cast("Any", known_counts(result.usage_details)) or None
            self._heard(characters_of_answer(result), result.model, is_open=False)
            if self._run.provider.ended_early([result]):
                raise _cut_off([])
            self.response = result

    def _heard(self, characters: int, model: str | None, *, is_open: bool) -> None:
        """Tell the budgets what the call has said so far; an answer that still comes may cross one."""
        if (spending := self._run.spending) is not None:
            spending.heard(self._position, None, characters, model, is_open=is_open)

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

    async def _note_background(self, continuation: Any) -> None:
        if not isinstance(continuation, Mapping) or not (self._context.options or {}).get("background"):
            return
        noted = dict(cast("Mapping[str, Any]", continuation))
        if self._run.journal.recorded.continuations.get(self._position) != noted:
            await self._tell_journal(noted)

    async def _gave_up_background(self, error: Exception) -> bool:
        """Forget a background answer that failed or that the service no longer has; a broken connection means neither.

        Returns:
            Whether the service did not know it, so the call is repeated at once.
        """
        if self._run.journal.recorded.continuations.get(self._position) is None:
            return False
        advice = advice_of(error)
        was_gone = self._is_continued and advice is not None and advice.is_gone
        has_failed = any(
            isinstance(one, ProviderError) and not isinstance(one, _CutOffError) for one in causes_of(error)
        )
        if was_gone or has_failed:
            await self._tell_journal(None)
        return was_gone

    async def _tell_journal(self, continuation: Mapping[str, Any] | None) -> None:
        try:
            await self._run.journal.model_begun(self._position, continuation)
        except LogError as error:
            raise RunStoppedError(stop_of(error)) from error


def _correct(said: Any, contents: Sequence[Content]) -> None:
    """Correct what an answer, or an update of it, has for texts and counts; in place."""
    correct_contents(contents)
    if said.finish_reason is not None:
        said.finish_reason = text_for(said.finish_reason, "finish_reason")


def _release(stream: Any) -> None:
    """Let go of what a stream that has ended was made from.

    The hook of the framework's telemetry refers to the stream that it belongs to, and to all messages of the call. They
    would wait for the collector of garbage, which walks all of them and holds every thread meanwhile.
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
