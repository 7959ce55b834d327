"""How a turn wakes, checks, cancels and steers others of its session, and reports to features; how it is cancelled."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Protocol

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.agent.agent_runner import INBOX_NOTIFIER, AgentRunner
from durable_agent_host.codec.entity_state import encode_budget_usage
from durable_agent_host.durable.instance_status import END_STATUSES, status_of_turn
from durable_agent_host.durable.turn_orchestrator import CANCEL_EVENT, GRANT_EVENT, TURN_ORCHESTRATION
from durable_agent_host.errors import LogError
from durable_agent_host.model.budget import BudgetUsage
from durable_agent_host.model.ids import derived_id, turn_log_id
from durable_agent_host.model.log_entry import MESSAGE, OUTCOME, REPLY, LogEntry
from durable_agent_host.model.turn import Turn, TurnRequest
from durable_agent_host.segments.turn_data_storage import TurnDataStorage
from durable_agent_host.session.admission import terminated_outcome
from durable_agent_host.turn.turn_wire import decode_turn_outcome, encode_turn_outcome
from durable_agent_host.turn_log.journal import read_journal
from durable_agent_host.turn_log.protocol import TurnLog

_LOGGER = logging.getLogger(__name__)
_MARK_SECONDS: Final = 3.0
"""How long the turn's log may take to record that the turn has ended."""
_FINALIZE_SECONDS: Final = 10.0


class TurnStopper:
    """Stops turns: by a mark that every process sees, a notification in this one, and an event to the orchestration.

    Messages for running turns and answers to their calls take the same way, without the event.

    Args:
        open_log: returns the turn log of the process, which keeps the mark.
        runners: count what turns use, by agent; a live view.
    """

    def __init__(self, open_log: Callable[[], TurnLog], runners: Mapping[str, AgentRunner]) -> None:
        self._open_log = open_log
        self._runners = runners

    async def mark(self, agent: str, session_id: str, turn_id: str) -> None:
        """Ask the running part of a turn to stop. Guarantee: idempotent.

        Raises:
            LogError: the mark could not be written.
        """
        await self._open_log().request_cancel(turn_log_id(agent, session_id, turn_id))
        INBOX_NOTIFIER.notify(turn_id)

    async def steer(self, agent: str, session_id: str, turn_id: str, request: Mapping[str, Any]) -> None:
        """Send another turn's message to the running part of a turn. Guarantee: idempotent.

        Raises:
            LogError: the message could not be written.
        """
        message_id = turn_log_id(agent, session_id, request["turn_id"])
        message = LogEntry(MESSAGE, request)
        await self._open_log().send_message(turn_log_id(agent, session_id, turn_id), message_id, message)
        INBOX_NOTIFIER.notify(turn_id)

    async def has_message(self, turn_id: str, request: TurnRequest) -> bool:
        """Return whether the message of a request was sent to a turn of its session.

        Raises:
            LogError: the store does not answer.
        """
        inbox = await self._open_log().read_inbox(turn_log_id(request.agent, request.session_id, turn_id))
        return request.log_id in inbox.messages

    async def has_log(self, request: TurnRequest) -> bool:
        """Return whether the log of a turn is kept, from its beginning.

        Raises:
            LogError: the store does not answer.
        """
        page = await self._open_log().read(request.log_id, max_bytes=1)
        return bool(page.records) and page.records[0].offset == 0

    async def record_replies(self, turn: Turn, replies: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
        """Record answers to calls of a turn, whether or not they wait yet; the first answer to a call stays.

        Returns:
            The answers that are recorded.

        Raises:
            LogError: an answer could not be written.
        """
        # a turn that resumes may ask again; a job may answer before its call waits
        times = {call["call_id"]: call["created_at"] for call in turn.pending if call["kind"] != "callback"}
        sent = [
            self._open_log().send_message(
                turn.request.log_id, derived_id("reply", times.get(call_id, ""), call_id), _reply_entry(call_id, reply)
            )
            for call_id, reply in replies.items()
        ]
        entries = await asyncio.gather(*sent)
        return {call_id: _reply_of(entry) for call_id, entry in zip(replies, entries, strict=True)}

    async def record_progress(self, request: TurnRequest, call_id: str, progress: Mapping[str, Any], slot: int) -> None:
        """Record the progress of a call that does not wait yet, once for each slot.

        Raises:
            LogError: it could not be written.
        """
        entry = _reply_entry(call_id, {"progress": progress, "at": progress["at"]})
        await self._open_log().send_message(request.log_id, derived_id("progress", call_id, str(slot)), entry)

    async def read_replies(self, agent: str, session_id: str, turn_id: str) -> list[Mapping[str, Any]]:
        """Read the recorded answers of a turn and the progress of its calls, in the order in which they came.

        Raises:
            LogError: the store does not answer.
        """
        inbox = await self._open_log().read_inbox(turn_log_id(agent, session_id, turn_id))
        replies = [message.data for message in inbox.messages.values() if message.kind == REPLY]
        return sorted(replies, key=lambda reply: str(reply.get("at", "")))

    async def finalize(self, agent: str, session_id: str, turn_id: str) -> BudgetUsage | None:
        """Count the spending of a turn that no agent has ended, and end it in its log, so that it spends no more.

        Returns:
            The figures; None for an agent whose turns are not counted.

        Raises:
            LogError: the turn log does not answer.
        """
        runner = self._runners.get(agent)
        if runner is None or not runner.tracks_budget:
            return None
        log = self._open_log()
        log_id = turn_log_id(agent, session_id, turn_id)
        attempt = await log.open(log_id)
        journal = await read_journal(log, log_id)
        usage = runner.used(journal)
        if journal.outcome is not None:
            return decode_turn_outcome(journal.outcome).budget_usage or usage
        outcome = terminated_outcome(turn_id, usage)
        await log.append(log_id, [LogEntry(OUTCOME, encode_turn_outcome(outcome))], attempt=attempt)
        return outcome.budget_usage

    async def delete_log(self, log_id: str) -> None:
        """Delete the log of an ended turn. Guarantee: idempotent.

        Raises:
            LogError: something may be left.
        """
        await self._open_log().delete(log_id)

    async def stop(self, client: DurableOrchestrationClient, agent: str, session_id: str, turn_id: str) -> None:
        """Ask a turn to stop, wherever it is: queued, in its agent, or waiting for a person.

        Raises:
            LogError: the mark could not be written.
        """
        await self.mark(agent, session_id, turn_id)
        with suppress(Exception):  # the SDK has no type for an orchestration that has ended
            await client.raise_event(turn_id, CANCEL_EVENT)


def _reply_entry(call_id: str, reply: Mapping[str, Any]) -> LogEntry:
    return LogEntry(REPLY, {"call_id": call_id, **reply})


def _reply_of(entry: LogEntry) -> dict[str, Any]:
    return {name: value for name, value in entry.data.items() if name != "call_id"}


class Report(Protocol):
    """Begins what follows when a turn waits or ends, or a run of a workflow waits."""

    async def __call__(self, wire: Mapping[str, Any], /, client: DurableOrchestrationClient) -> None:
        """Begin it. Guarantee expected: idempotent.

        Args:
            wire: ``agent``, ``session_id`` and ``turn_id``; or ``workflow``, ``run_id`` and ``question``, which
                identifies the wait. The ``status`` of the turn, the ``number`` of its wait (0 for its end), and the
                ``timestamp``.
            client: marks what it starts.
        """
        ...


type QueueResult = bool | dict[str, Any] | list[Mapping[str, Any]]


async def manage_queued_turn(
    wire: Mapping[str, Any],
    client: DurableOrchestrationClient,
    stopper: TurnStopper,
    storage: TurnDataStorage,
    reports: Sequence[Report],
) -> QueueResult:
    """Wake, check, cancel or steer another turn of the session, or do what the end of this one needs.

    Returns:
        False when the turn's orchestration has ended or does not exist, so that it will never hold the session; for a
        checked turn whose agent has a budget, what it has ``spent`` instead. For a settled turn what it has ``spent``,
        or an empty object. The answers that are recorded for the calls that the request names.
    """
    for pause in (0.1, 0.5, 2.0):  # a turn that is not woken would wait for its lease
        try:
            return await _manage(wire, client, stopper, storage, reports)
        except Exception as error:  # noqa: BLE001 - the SDK has no types for transient errors
            _LOGGER.warning("cannot %s turn %s, trying again: %s", wire["do"], wire["turn_id"], error)
            await asyncio.sleep(pause)
    return await _manage(wire, client, stopper, storage, reports)


async def _mark_soon(stopper: TurnStopper, agent: str, session_id: str, turn_id: str) -> None:
    """Write the mark, unless the turn log is unavailable: then the turn's tools cannot start either."""
    try:
        async with asyncio.timeout(_MARK_SECONDS):
            await stopper.mark(agent, session_id, turn_id)
    except (LogError, TimeoutError) as error:
        _LOGGER.warning("turn %s has ended, and cannot be marked so in its log: %s", turn_id, error or "no answer")


async def _manage(
    wire: Mapping[str, Any],
    client: DurableOrchestrationClient,
    stopper: TurnStopper,
    storage: TurnDataStorage,
    reports: Sequence[Report],
) -> QueueResult:
    agent = wire["agent"]
    session_id = wire["session_id"]
    turn_id = wire["turn_id"]
    if wire["do"] == "steer":
        await stopper.steer(agent, session_id, turn_id, wire["request"])
        return True
    if wire["do"] == "forget":
        log_id = turn_log_id(agent, session_id, turn_id)
        await storage.delete_unredacted(log_id)
        await stopper.delete_log(log_id)
        return True
    if wire["do"] == "settle":
        async with asyncio.timeout(_FINALIZE_SECONDS):
            usage = await stopper.finalize(agent, session_id, turn_id)
        return {"budget_usage": encode_budget_usage(usage)} if usage is not None else {}
    if wire["do"] == "replies":
        replies = await stopper.read_replies(agent, session_id, turn_id)
        return [reply for reply in replies if reply["call_id"] in wire["request"]]
    if wire["do"] == "report":
        for report in reports:
            await report({"agent": agent, "session_id": session_id, "turn_id": turn_id, **wire["request"]}, client)
        return True
    return await _manage_orchestration(wire, client, stopper)


async def _manage_orchestration(
    wire: Mapping[str, Any], client: DurableOrchestrationClient, stopper: TurnStopper
) -> bool | dict[str, Any]:
    agent = wire["agent"]
    session_id = wire["session_id"]
    turn_id = wire["turn_id"]
    status = await status_of_turn(client, turn_id)
    state = status.runtime_status if status else None
    if state is None and wire.get("request"):
        await client.start_new(TURN_ORCHESTRATION, turn_id, wire["request"])
        return True
    if state is None or state in END_STATUSES:
        if wire["do"] != "wake":  # work left in its activity would run beside the next turn
            await _mark_soon(stopper, agent, session_id, turn_id)
        usage = await stopper.finalize(agent, session_id, turn_id) if wire["do"] == "check" else None
        return {"budget_usage": encode_budget_usage(usage)} if usage is not None else False
    if wire["do"] == "cancel":
        await stopper.stop(client, agent, session_id, turn_id)
    elif wire["do"] == "wake":
        await client.raise_event(turn_id, GRANT_EVENT)
    return True
