"""Messages that are sent to a running turn: the agent's next model call gets them.

Theory of operation. A message waits in the inbox of the turn's log, as the request of a turn of its own. Before a model
call that is not answered from the journal, it is journaled under the path of that call; so each attempt gives the model
the same requests, and no message twice. The framework's list of messages does not have it: it is put into the request
of each later call after the message that it came after. In the turn's output, it is a message of the user.

A message that no model call gets begins the turn of its request: the session's commit decides that, by
`TurnOutcome.steered_by`.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, override

from agent_framework import AgentResponseUpdate, ChatContext, Message

from durable_agent_host.agent.durable_session import DurableSession
from durable_agent_host.agent.feature import AgentFeature, CurrentRun, RunPart
from durable_agent_host.agent.run_result import log_errors_stop_run
from durable_agent_host.codec.content import decode_content
from durable_agent_host.codec.extension_data import extension_of
from durable_agent_host.codec.wire_types import MessageWire
from durable_agent_host.errors import DurableAgentHostError, log_reason
from durable_agent_host.model.call_path import CallPath
from durable_agent_host.model.journal_entry import FeatureEntry
from durable_agent_host.model.log_entry import MESSAGE, LogEntry
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.turn.step_types import FeatureView
from durable_agent_host.turn.turn_wire import decode_turn_request, encode_turn_request

_LOGGER = logging.getLogger(__name__)
NAME: Final = "steering"


class Steering(AgentFeature):
    """Lets messages be sent to the running turns of an agent."""

    @override
    def begin_run(self, run: CurrentRun, /) -> RunPart:
        """Begin a run; each of its model calls gets the messages that it has got before."""
        messages = SteeringOfRun(run)
        return RunPart(
            add_messages=messages.add_messages,
            next_messages=messages.next_messages,
            complete_stored=messages.add_times,
            complete_outcome=messages.complete_outcome,
        )


def show_message(entry: FeatureEntry) -> FeatureView:
    """Show the message that the next model call gets."""
    request = entry.data["request"]
    return FeatureView({"kind": "message"} | {name: request[name] for name in ("turn_id", "message", "created_at")})


class SteeringOfRun:
    """The messages that were sent to a turn, in one run.

    Args:
        run: of the turn's agent.
    """

    def __init__(self, run: CurrentRun) -> None:
        self._run = run
        self._attempt = run.start.attempt
        self._load = run.start.load_message
        self._requests: dict[str, TurnRequest] = {}
        self._additions: list[tuple[Message, list[Message]]] = []
        self._received = {entry.data["request"]["turn_id"]: entry for entry in run.journal.entries_of(NAME)}

    @property
    def _has_messages(self) -> bool:
        return bool(self._sent_messages or self._received)

    @property
    def _sent_messages(self) -> list[LogEntry]:
        return [entry for entry in self._attempt.inbox.messages.values() if entry.kind == MESSAGE]

    def complete_outcome(self, outcome: TurnOutcome) -> TurnOutcome:
        """Name the turns whose messages the run's output has, with the hashes of their requests."""
        hashes = {turn_id: request.request_hash for turn_id, request in self._requests.items()}
        return replace(outcome, steered_by=hashes)

    async def add_messages(self, context: ChatContext, path: CallPath, *, is_replayed: bool) -> None:
        """Add the messages to the request of a model call.

        Raises:
            RunStoppedError: the log cannot be written.
        """
        if not self._has_messages:
            return
        if not is_replayed:
            self._run.gate.check()
        messages = [*context.messages]
        last = messages[-1]
        if not is_replayed and last.role != "assistant":  # a model that has paused continues its own answer first
            await self._journal_new(path)
        new_messages = self._add_to_output(path)
        if not (context.options or {}).get("conversation_id"):  # else the service has the earlier ones
            for previous, earlier_messages in self._additions:
                index = _find_index_after(messages, previous)
                messages[index:index] = earlier_messages
        self._additions.append((last, new_messages))
        context.messages = messages + new_messages

    async def next_messages(self) -> list[Message]:
        """Return the messages that came while the last answer was made, for one more model call; maybe none.

        Raises:
            RunStoppedError: the log cannot be written.
        """
        if not self._has_messages or self._run.start.request.response_format is not None:
            return []
        journal = self._run.journal
        path = CallPath().model_call(journal.position + 1)
        if path not in journal.recorded.responses:
            await self._journal_new(path)
        messages = self._add_to_output(path)
        if messages:
            self._additions.clear()  # the transcript has the earlier ones from here on
        return messages

    def add_times(self, messages: Iterable[MessageWire], _: DurableSession) -> None:
        """Add to the stored messages when they were sent."""
        for message in messages:
            if request := self._requests.get(str(extension_of(message).get("messageId"))):
                message["createdAt"] = request.created_at

    async def _journal_new(self, path: CallPath) -> None:
        """Journal the messages that no model call has got."""
        requests = [decode_turn_request(entry.data) for entry in self._sent_messages]
        for request in sorted(requests, key=lambda request: request.created_at):
            if request.turn_id in self._received:
                continue
            try:
                with log_errors_stop_run():
                    if await self._attempt.is_withdrawn(request):
                        continue
                    full_request = await self._load(request)
                    self._run.agent.provider.check_message(_build_message(full_request))
                    entry = FeatureEntry(NAME, path, {"request": encode_turn_request(full_request)})
                    await self._run.journal.append(entry)
                    self._received[request.turn_id] = entry
            except DurableAgentHostError as error:  # the message begins a turn, which fails with the reason
                _LOGGER.warning("%s does not get a message: %s", self._attempt.label, log_reason(error))

    def _add_to_output(self, path: CallPath) -> list[Message]:
        """Return the messages that a model call is the first to get, and add them to the output."""
        messages: list[Message] = []
        for entry in self._received.values():
            request = decode_turn_request(entry.data["request"])
            if entry.path == path and request.turn_id not in self._requests:
                self._requests[request.turn_id] = request
                messages.append(_build_message(request))
                update = AgentResponseUpdate(role="user", contents=messages[-1].contents, message_id=request.turn_id)
                self._run.output.add(update, None)
        return messages


def _build_message(request: TurnRequest) -> Message:
    contents: list[Any] = [decode_content(content) for content in request.contents] or [request.message]
    return Message("user", contents, message_id=request.turn_id)


def _find_index_after(messages: Sequence[Message], previous: Message) -> int:
    """Find where the messages go that came after another; if middleware has replaced that, after the user's last."""
    indexes = [index for index, message in enumerate(messages) if message is previous]
    indexes = indexes or [index for index, message in enumerate(messages) if message.role == "user"]
    return indexes[-1] + 1 if indexes else 0
