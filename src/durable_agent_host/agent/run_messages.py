"""The messages of a run of the turn's agent: the session's transcript, the request, what answers its questions.

A content takes some 3 KB of memory while its run lasts, however short it is. So the long conversations of a process
share a number of contents, and a run waits while those of others leave too few.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, Final

from agent_framework import AgentResponseUpdate, ChatContext, Message

from durable_agent_host.agent.feature import CurrentRun
from durable_agent_host.agent.observer import UpdateReceived
from durable_agent_host.agent.pending_calls import answer_requests
from durable_agent_host.codec.content import decode_content, encode_content
from durable_agent_host.concurrency.thread_offload import run_in_thread_if_many
from durable_agent_host.errors import TurnError
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.turn import TurnRequest
from durable_agent_host.segments.conversation_reader import entries_of_context
from durable_agent_host.session.context_selection import context_messages
from durable_agent_host.session.transcript import external_provider_of, replay_messages


def _request_message(request: TurnRequest) -> Message:
    contents: list[Any] = [decode_content(content) for content in request.contents] or [request.message]
    return Message(request.role, contents)


def effective_request(run: CurrentRun) -> TurnRequest:
    """Return the request as the agent's middleware has left it, which is what the framework keeps of it."""
    request, inputs = run.start.request, run.session.input_messages
    if not run.agent.has_middleware or not inputs or any(message.role != request.role for message in inputs):
        return request
    contents = tuple(encode_content(content) for message in inputs for content in message.contents)
    if contents == tuple(map(encode_content, _request_message(request).contents)):
        return request
    return replace(request, message="\n".join(message.text for message in inputs), contents=contents)


CONTENTS_AT_ONCE: Final = 250_000
_SHORT_BYTES: Final = 64 * 1024
"""Up to this size of its JSON, a conversation does not count."""
_MIN_CONTENT_BYTES: Final = 32


class SharedContents:
    """The contents that the long conversations of the process may still load; who waits first is served first."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._next = asyncio.Lock()
        self._freed = asyncio.Event()

    async def acquire(self, count: int) -> None:
        async with self._next:
            while self._free < count:
                self._freed.clear()
                await self._freed.wait()
            self._free -= count

    def release(self, count: int) -> None:
        self._free += count
        self._freed.set()


_SHARED_CONTENTS: Final = SharedContents(CONTENTS_AT_ONCE)


class ContentShare:
    """The contents of one run."""

    def __init__(self) -> None:
        self._count = 0

    async def acquire(self, json_bytes: int) -> None:
        """Take as many as JSON of that size can have."""
        if json_bytes > _SHORT_BYTES:
            count = min(json_bytes // _MIN_CONTENT_BYTES, CONTENTS_AT_ONCE)
            await _SHARED_CONTENTS.acquire(count)
            self._count = count

    def reduce(self, count: int) -> None:
        """Give back what is more than that."""
        if count < self._count:
            _SHARED_CONTENTS.release(self._count - count)
            self._count = count


async def prepare_messages(run: CurrentRun, share: ContentShare) -> list[Message]:
    """Give the session its transcript, and return the messages with which the run begins."""
    message = _request_message(run.start.request)
    agent, session = run.agent, run.session
    agent.provider.check_message(message)
    if run.context is not None:
        run.context.question = message
    run.losses.clear_continuation(session)
    if run.sends_transcript:
        session.service_session_id = None
    session.leave_other_service(agent.provider)
    if session.service_session_id or agent.restores(session) or agent.has_own_history:
        return [message]
    transcript = await _load_transcript(run, share)
    if not agent.owns_history:
        return [*transcript, message]
    session.transcript = transcript
    return [message]


async def _load_transcript(run: CurrentRun, share: ContentShare) -> list[Message]:
    """Rehydrate what of the record is the context; segments of which nothing is in it are not read."""
    context, record = run.context, run.start.record
    await share.acquire(sum(ref.size for ref in record.session.sealed.refs))
    entries = await entries_of_context(record, None if context is None else context.before)
    _check_providers([*entries.values()], run.start.request.agent)
    if context is None:
        build_messages = partial(replay_messages, entries.values())
    else:
        build_messages = partial(context_messages, entries, context.before, count=record.session.message_count)
    omits_refusals = run.agent.provider.omits_refusals
    count = sum(len(message["contents"]) for entry in entries.values() for message in entry.get("messages", ()))
    share.reduce(count)
    return await run_in_thread_if_many(count, lambda: run.rehydrate(build_messages(omits_refusals=omits_refusals)))


def _check_providers(entries: Sequence[Mapping[str, Any]], agent: str) -> None:
    """Refuse to continue without the messages kept by a provider that the agent no longer has."""
    for provider_name in filter(None, map(external_provider_of, entries)):
        raise TurnError(
            f"messages of this session are kept by {provider_name}, which agent {agent!r} no longer has: add it to the "
            "agent again, or begin a new session"
        )


async def choose_messages(
    run: CurrentRun, context: ChatContext, path: CallPath, *, is_replayed: bool
) -> Sequence[Message]:
    """Return the messages of a model call, by the features."""
    for add_messages in [part.add_messages for part in run.parts if part.add_messages is not None]:
        await add_messages(context, path, is_replayed=is_replayed)
    if (run_context := run.context) is None:
        return context.messages
    if run.session.input_messages:
        run_context.question = run.session.input_messages[-1]
    return await run_context.project(context, path, replayed=is_replayed)


def mark_losses(run: CurrentRun, messages: Sequence[Message]) -> list[Message]:
    """Mark what the service can no longer use or refuses, also in the turn's own output."""
    if run.losses or run.session.lost_state:
        messages = run.losses.mark(messages, run.session, run.agent.provider, is_request=True)
    run.losses.request_messages = messages
    return [*messages]


async def find_next_messages(run: CurrentRun, sent: list[Message], start: int) -> list[Message]:
    """Return the messages with which the run continues after an answer; none at its end.

    They answer what the provider's tools ask, or were sent to the turn while the answer was made.
    """
    provider, session = run.agent.provider, run.session
    if not run.agent.has_journal or run.pending_calls.pending:
        return []
    response_messages = run.output.response(start).messages
    next_messages = await answer_requests(run.pending_calls, run.journal, run.observers, provider, response_messages)
    if next_messages:
        await _collect_replies(run, next_messages)
    else:
        questions = [part.next_messages for part in run.parts if part.next_messages is not None]
        next_messages = [message for ask in questions for message in await ask()]
    if run.pending_calls.pending or not next_messages:
        return []
    if session.service_session_id:  # the service has the conversation, and accepts only new messages
        session.transcript = ()
        unsent_results = [*takewhile(lambda message: message.role == "tool", reversed(response_messages))][::-1]
        return [*unsent_results, *next_messages]
    session.transcript = provider.as_history([*session.transcript, *sent, *response_messages])
    return next_messages


async def _collect_replies(run: CurrentRun, messages: Sequence[Message]) -> None:
    is_replayed = CallPath().model_call(run.journal.position + 1) in run.journal.recorded.responses
    for message in messages:
        update = AgentResponseUpdate(role=message.role, contents=message.contents)
        run.output.add(update, None)
        if message.role == "tool":
            await run.start.attempt.observers.notify(UpdateReceived(update, is_replayed))
