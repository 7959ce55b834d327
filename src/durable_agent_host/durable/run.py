"""Running an agent for one turn: rehydrate, run, fold. The only place that calls a model or a tool."""

import copy
import json
import logging
import time
from collections.abc import AsyncIterable, Awaitable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol, cast

from agent_framework import (
    AgentResponse,
    AgentResponseUpdate,
    AgentSession,
    Content,
    HistoryProvider,
    Message,
    RawAgent,
    SupportsAgentRun,
)

from durable_agent_host.codec.answer import check_answer
from durable_agent_host.codec.content import decode_usage, encode_content, plain_json
from durable_agent_host.codec.identity import identify_calls
from durable_agent_host.codec.message import encode_request_entry, encode_response_entry
from durable_agent_host.durable.listener import TurnListener
from durable_agent_host.durable.live import LiveTurn, OpenLog
from durable_agent_host.errors import FencedError, ProviderError, TurnError, error_details
from durable_agent_host.history.provider import DurableSession, TranscriptProvider, without_carriers
from durable_agent_host.model.provider_item import Forgotten, ItemPart
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome, TurnRequest, TurnStats
from durable_agent_host.turns.events import answer_text
from durable_agent_host.turns.fold import fold_updates
from durable_agent_host.turns.transcript import replay_messages

_LOGGER = logging.getLogger(__name__)


def utc_now() -> str:
    """Tell the time. Returns: UTC, ISO-8601 with microseconds."""
    return datetime.now(UTC).isoformat()


class ProviderAdapter(Protocol):
    """What a module of `durable_agent_host.providers` gives to the run of a turn."""

    def adapt_client(self, client: Any, /) -> Any:
        """Give a chat client that sends the provider's items back; clients of others as they are."""
        ...

    def read_item(self, update: Any, /) -> ItemPart | None:
        """Tell to which item of the model's output an update belongs."""
        ...

    def complete_item(self, contents: list[Content], item: Mapping[str, Any] | None, /) -> list[Content]:
        """Complete the contents of one item by what the provider finished."""
        ...

    def finished_calls(self, update: AgentResponseUpdate, /) -> Iterable[tuple[str, bool]]:
        """Tell which calls of hosted tools are over by an update, and whether they failed."""
        ...

    def forgotten_by_service(self, error: BaseException, /) -> Forgotten | None:
        """Tell what the service has lost, when that is why it refused a request."""
        ...

    def without_forgotten(
        self, messages: Sequence[Message], remembered: Mapping[str, Any], lost: Iterable[Forgotten], /
    ) -> tuple[list[Message], dict[str, Any]]:
        """Mark what the service can no longer use, and say what to remember of it."""
        ...

    def explain_error(self, error: BaseException, /) -> ProviderError | None:
        """Say in a sentence why a call of the model failed, or None when it was something else."""
        ...


class AgentRunner:
    """Runs one agent's turns; holds no conversation.

    Args:
        name: the registered name.
        agent: of the framework, or anything with its ``run``.
        provider: what only the model provider's clients know.
        listener: told of every update while it streams, and of the response.
        open_log: gives the log that clients follow; without it, nobody is told while the agent runs.
    """

    def __init__(
        self,
        name: str,
        agent: SupportsAgentRun,
        provider: ProviderAdapter,
        *,
        listener: TurnListener | None = None,
        open_log: OpenLog | None = None,
    ) -> None:
        self.name = name
        self.agent = agent
        self._provider = provider
        self._listener = listener or TurnListener(None)
        self._open_log = open_log
        self._hosted, self._owns_history = _hosted_copy(agent, provider)
        self._keeps_items = getattr(getattr(self._hosted, "client", None), "keeps_provider_items", False)

    async def run(self, session: Session, request: TurnRequest) -> TurnOutcome:
        """Run the agent for a turn and fold what it streamed.

        Guarantee: at-least-once: nothing is stored here, and a second run calls the model again.

        Args:
            session: as it was when the turn was granted.
            request: what was asked.

        Returns:
            A completed outcome with the entries to append, or a failed one with the reason; it does not raise for
            what the agent, the model or a tool did.

        Raises:
            FencedError: another process runs the turn now; what this one did is void.
            LogError: the turn log's store does not answer.
        """
        if self._open_log is None:
            return await self._run(session, request, None)
        live = await LiveTurn.open(self._open_log(), request, self._provider.finished_calls)
        try:
            outcome = await self._run(session, request, live)
            await live.end(outcome)
        finally:
            await live.close()
        return outcome

    async def _run(self, session: Session, request: TurnRequest, live: LiveTurn | None) -> TurnOutcome:
        started = time.perf_counter()
        try:
            updates, agent_session, refused = await self._stream(session, request, live)
            milliseconds = (time.perf_counter() - started) * 1000
            response = fold_updates(updates, self._provider)
            await self._listener.on_response(request, response)
            stats = TurnStats(
                chunks_streamed=len(updates), agent_milliseconds=round(milliseconds, 1), calls_refused=refused
            )
            return _completed(session, request, response, agent_session, _weigh(updates, response, stats))
        except FencedError:
            raise
        except Exception as error:  # noqa: BLE001 - the activity is an edge: the failure is recorded in the outcome
            reason = self._provider.explain_error(error) or error
            return TurnOutcome(
                turn_id=request.turn_id,
                status="failed",
                error=error_details(reason),
                stats=TurnStats(agent_milliseconds=round((time.perf_counter() - started) * 1000, 1)),
                request_hash=request.request_hash,
                ended_at=utc_now(),
            )

    async def _stream(
        self, session: Session, request: TurnRequest, live: LiveTurn | None
    ) -> tuple[list[AgentResponseUpdate], Mapping[str, Any], int]:
        """Run the agent; where the service has forgotten what it kept, go on from the stored transcript.

        Only a turn whose first request was refused is run again: nothing has been streamed then, and no tool has run.
        Each loss is mended once.
        """
        lost: list[Forgotten] = []
        while True:
            updates: list[AgentResponseUpdate] = []
            agent_session = _restore_session(session, request)
            messages = self._prepare(session, request, agent_session, lost)
            try:
                agent = self._hosted if request.enable_tool_calls else _without_tools(self._hosted)
                async for update in _updates(agent, messages, agent_session, _options(request)):
                    updates.append(update)
                    if live is not None:
                        await live.on_update(update)
                    await self._listener.on_update(request, update)
            except Exception as error:
                forgotten = self._provider.forgotten_by_service(error)
                if updates or forgotten is None or forgotten in lost:
                    raise
                if forgotten.what == "continuation" and not agent_session.service_session_id:
                    raise
                _LOGGER.warning(
                    "turn %s: the model's service can no longer use the %s; going on from the stored transcript",
                    request.turn_id,
                    forgotten.what,
                )
                lost.append(forgotten)
                continue
            return updates, _save_session(agent_session), len(lost)

    def _prepare(
        self, session: Session, request: TurnRequest, agent_session: DurableSession, lost: Sequence[Forgotten]
    ) -> list[Message]:
        """Give the session its transcript; returns the messages of the run."""
        message = Message(request.role, [request.message])
        if lost:
            agent_session.service_session_id = None
        if agent_session.service_session_id:
            return [message]
        transcript = replay_messages(session.entries)
        identify_calls(transcript, session_id=f"{request.agent}@{request.session_id}")
        transcript, agent_session.forgotten = self._provider.without_forgotten(
            transcript, agent_session.forgotten, lost
        )
        if not self._keeps_items:
            transcript = without_carriers(transcript)
        if not self._owns_history:
            return [*transcript, message]
        agent_session.transcript = transcript
        return [message]


async def _updates(
    agent: SupportsAgentRun, messages: list[Message], session: AgentSession, options: dict[str, Any]
) -> AsyncIterable[AgentResponseUpdate]:
    arguments: dict[str, Any] = {"options": options} if options else {}
    running: Any = cast("Any", agent.run)(messages, stream=True, session=session, **arguments)
    if not hasattr(running, "__aiter__"):
        running = await running
    if isinstance(running, AgentResponse):
        for update in cast("AgentResponse[Any]", running).to_updates():
            yield update
        return
    async for update in running:
        yield update
    if callable(finish := getattr(running, "get_final_response", None)):
        await cast("Awaitable[Any]", finish())  # runs the framework's end of a run: providers, the session's id


def _hosted_copy(agent: SupportsAgentRun, provider: ProviderAdapter) -> tuple[SupportsAgentRun, bool]:
    """Give the agent the stored conversation as its history, unless it brings a history of its own."""
    if not isinstance(agent, RawAgent):
        return agent, False
    providers = list(agent.context_providers)
    hosted: Any = copy.copy(cast("Any", agent))
    if not any(isinstance(one, HistoryProvider) and one.load_messages for one in providers):
        providers.insert(0, TranscriptProvider())
    hosted.context_providers = providers
    hosted.client = provider.adapt_client(hosted.client)
    return hosted, True


def _without_tools(agent: SupportsAgentRun) -> SupportsAgentRun:
    if not isinstance(agent, RawAgent):
        raise TurnError(
            f"enable_tool_calls is false, and the tools of a {type(agent).__name__} cannot be taken away: "
            "leave enable_tool_calls out"
        )
    silent: Any = copy.copy(cast("Any", agent))
    silent.default_options = {
        name: value for name, value in silent.default_options.items() if name not in {"tools", "tool_choice"}
    }
    silent.mcp_tools = []
    return silent


def _options(request: TurnRequest) -> dict[str, Any]:
    options = dict(request.options)
    if request.response_format is not None:
        options["response_format"] = dict(request.response_format)
    if not request.enable_tool_calls:
        options.pop("tools", None)
        options["tool_choice"] = "none"
    return options


def _restore_session(session: Session, request: TurnRequest) -> DurableSession:
    if session.agent_session is not None:
        return cast("DurableSession", DurableSession.from_dict(dict(session.agent_session)))
    return DurableSession(session_id=request.session_id)


def _save_session(agent_session: DurableSession) -> Mapping[str, Any]:
    if not agent_session.state.get(TranscriptProvider.SOURCE_ID):
        agent_session.state.pop(TranscriptProvider.SOURCE_ID, None)
    return plain_json(agent_session.to_dict(), path="agent session")


def _completed(
    session: Session,
    request: TurnRequest,
    response: AgentResponse[Any],
    agent_session: Mapping[str, Any],
    stats: TurnStats,
) -> TurnOutcome:
    if request.response_format is not None:
        check_answer(answer_text(response), request.response_format)
    ended_at = utc_now()
    entries = (encode_request_entry(request), encode_response_entry(request.turn_id, response, created_at=ended_at))
    usage = entries[1].get("usage")
    return TurnOutcome(
        turn_id=request.turn_id,
        status="completed",
        text=answer_text(response),
        entries=cast("tuple[Mapping[str, Any], ...]", entries),
        agent_session=agent_session,
        usage=decode_usage(usage) if usage else None,
        message_count=len(session.entries) + len(entries),
        stats=replace(stats, bytes_stored=_size(entries)),
        request_hash=request.request_hash,
        ended_at=ended_at,
    )


def _weigh(updates: list[AgentResponseUpdate], response: AgentResponse[Any], stats: TurnStats) -> TurnStats:
    return replace(
        stats,
        bytes_streamed=sum(_size([encode_content(content) for content in update.contents]) for update in updates),
        contents_stored=sum(len(message.contents) for message in response.messages),
    )


def _size(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass"))
