"""Agents in orchestrations: a run is a turn, and a session has the id that it was given.

Upstream's agent calls the session's entity, which cannot wait for a person; here a run is the sub-orchestration
``agent_turn``, and waits like every turn. Upstream's ``create_session`` and ``get_session`` ignore the id that they are
given.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from agent_framework import AgentResponse, AgentSession, Message, normalize_messages
from agent_framework_durabletask import (
    AgentSessionId,
    DurableAgentExecutor,
    DurableAgentSession,
    DurableAIAgent,
    RunRequest,
    ensure_response_format,
)
from azure.durable_functions import DurableOrchestrationContext
from azure.durable_functions.models import TaskBase
from azure.durable_functions.models.Task import CompoundTask, TaskState

from durable_agent_host.agent.agent_event_loop import submit
from durable_agent_host.agent.outcome_builder import rebuild_error
from durable_agent_host.codec.message import decode_response
from durable_agent_host.durable.session_entity import read_run_request
from durable_agent_host.durable.task_hub import TaskHub
from durable_agent_host.durable.turn_orchestrator import TURN_ORCHESTRATION
from durable_agent_host.errors import RequestError
from durable_agent_host.model.access import RequestContext
from durable_agent_host.model.ending import status_of_end
from durable_agent_host.model.ids import check_session_id
from durable_agent_host.segments.turn_data_storage import TurnDataStorage
from durable_agent_host.turn.turn_wire import encode_turn_request


class _TurnTask(CompoundTask):
    """The task of a turn: completes with the turn's response, or fails with the reason why there is none."""

    def __init__(
        self, turn: TaskBase, request: RunRequest, storage: TurnDataStorage, read: Callable[[Any], Any]
    ) -> None:
        self._request = request
        self._read = read
        self._storage = storage
        cast("Any", super()).__init__([turn])
        self.action_repr = turn.action_repr  # like upstream's task, it stands for the inner one
        self.id = turn.id

    def try_set_value(self, child: TaskBase) -> None:
        """Complete with the turn's outcome."""
        if child.state is not TaskState.SUCCEEDED:
            self.set_value(is_error=True, value=child.result)
            return
        try:
            response = _response_of(cast("dict[str, Any]", self._read(child.result)), self._storage)
            if self._request.response_format is not None and status_of_end(response.finish_reason) == "success":
                ensure_response_format(self._request.response_format, self._request.correlation_id, response)
        except Exception as error:  # noqa: BLE001 - the task fails with it
            self.set_value(is_error=True, value=error)
        else:
            self.set_value(is_error=False, value=response)


def _response_of(outcome: Mapping[str, Any], storage: TurnDataStorage) -> AgentResponse[Any]:
    if outcome["status"] != "completed":
        raise rebuild_error(outcome.get("error") or {"message": f"the turn was {outcome['status']}"})
    if response := outcome.get("response"):
        # A blob is named by its bytes, so a replay reads the same.
        return decode_response(submit(storage.load_response(response)).result())
    return AgentResponse(messages=[Message("assistant", [outcome.get("text") or ""])])


class _TurnExecutor(DurableAgentExecutor[Any]):
    """Runs agents as turns; a run that is not awaited is signalled to the entity, as in upstream."""

    def __init__(
        self,
        context: DurableOrchestrationContext,
        upstream: DurableAgentExecutor[Any],
        request_context: RequestContext,
        storage: TurnDataStorage,
        hub: TaskHub,
    ) -> None:
        self._context: Any = hub.caller(context)
        self._storage = storage
        self._hub = hub
        self._upstream = upstream
        self._request_context = request_context

    def generate_unique_id(self) -> str:
        return self._upstream.generate_unique_id()

    def get_run_request(self, message: str, *, options: dict[str, Any] | None = None) -> RunRequest:
        return self._upstream.get_run_request(message, options=options)

    def run_durable_agent(
        self, agent_name: str, run_request: RunRequest, session: AgentSession | None = None
    ) -> TaskBase:
        if not run_request.wait_for_response:
            return self._upstream.run_durable_agent(agent_name, run_request, session)
        key = self._create_session_id(agent_name, session).key
        request = replace(
            read_run_request(agent_name, key, run_request.to_dict()),
            created_at=self._context.current_utc_datetime.isoformat(),
            principal=self._request_context.principal_id,
            tenant=self._request_context.tenant,
            traceparent=self._request_context.traceparent,
        )
        turn = self._context.call_sub_orchestrator(TURN_ORCHESTRATION, encode_turn_request(request), request.turn_id)
        return _TurnTask(turn, run_request, self._storage, partial(self._hub.end_of, request.turn_id))


class OrchestrationAgent(DurableAIAgent[Any]):
    """Upstream's agent for an orchestration, whose runs are turns and whose sessions have the given ids.

    Args:
        context: the orchestration's.
        agent: from upstream's ``get_agent``.
        request_context: on whose behalf the turns run, made by the gate. A run that is not awaited is a signal of
            upstream's, and has no caller.
        storage: stores long answers.
        hub: plain or encrypting access to the task hub.
    """

    def __init__(
        self,
        context: DurableOrchestrationContext,
        agent: DurableAIAgent[Any],
        request_context: RequestContext,
        storage: TurnDataStorage,
        hub: TaskHub,
    ) -> None:
        upstream = agent._executor  # noqa: SLF001 - upstream's own subclasses have no other way
        super().__init__(_TurnExecutor(context, upstream, request_context, storage, hub), agent.name)

    def _normalize_messages(self, messages: Any) -> Any:
        """Return text as upstream does, and messages with other contents as parts, which requests also carry."""
        contents = [content for message in normalize_messages(messages) for content in message.contents]
        if all(content.type == "text" for content in contents):
            return super()._normalize_messages(messages)
        return [content.to_dict() for content in contents]

    def create_session(self, *, session_id: str | None = None) -> DurableAgentSession:
        """Create a session, or continue the one with this id. Guarantee: replay-safe.

        Returns:
            The session; its ``session_id`` is the id.

        Raises:
            RequestError: the id is not usable, or is another agent's.
        """
        if session_id is None:
            new_session = super().create_session()
            session_id = str(new_session.durable_session_id)
        key = self._key_of(session_id)
        return DurableAgentSession(durable_session_id=AgentSessionId(self.name, key), session_id=key)

    def get_session(self, service_session_id: Any, *, session_id: str | None = None) -> AgentSession:
        """Return the session with an id, to continue it. Guarantee: replay-safe.

        Returns:
            The session; whether it exists is not checked.

        Raises:
            RequestError: the id is not a text, is not usable, or is another agent's.
        """
        if not isinstance(service_session_id, str):
            raise RequestError(f"the session id is {type(service_session_id).__name__}: give it as a text")
        key = self._key_of(service_session_id)
        return DurableAgentSession(
            durable_session_id=AgentSessionId(self.name, key),
            session_id=session_id or key,
            service_session_id=service_session_id,
        )

    def _key_of(self, session_id: str) -> str:
        """Extract the key from upstream's form ``@agent@key``."""
        if session_id.startswith("@") and session_id.count("@") > 1:
            _, agent, session_id = session_id.split("@", 2)
            if agent.casefold() != self.name.casefold():
                raise RequestError(
                    f"the session {session_id!r} belongs to agent {agent!r}, and this is {self.name!r}: give the "
                    "id of a session of this agent"
                )
        return check_session_id(session_id)
