"""Agents as orchestrations see them, with sessions of the id that was asked for.

Upstream's agent of an orchestration takes the ids of ``create_session`` and ``get_session``, and begins a session of
another id.
"""

from typing import Any

from agent_framework import AgentSession
from agent_framework_durabletask import AgentSessionId, DurableAgentSession, DurableAIAgent

from durable_agent_host.errors import RequestError
from durable_agent_host.model.ids import check_session_id


class OrchestrationAgent(DurableAIAgent[Any]):
    """An agent for an orchestration: upstream's, whose sessions have the ids that they are given.

    Args:
        agent: as upstream's ``get_agent`` gives it.
    """

    def __init__(self, agent: DurableAIAgent[Any]) -> None:
        super().__init__(agent._executor, agent.name)  # noqa: SLF001 - upstream's own subclasses have no other way

    def create_session(self, *, session_id: str | None = None) -> DurableAgentSession:
        """Begin a session, or go on in the one that has the id. Guarantee: replay-safe.

        Args:
            session_id: as HTTP names it, or with the agent's name as ``@agent@id``; a new one when left out.

        Returns:
            The session; its ``session_id`` is the id.

        Raises:
            RequestError: the id cannot be used, or is another agent's.
        """
        if session_id is None:
            created = super().create_session()
            session_id = str(created.durable_session_id)
        key = self._key_of(session_id)
        return DurableAgentSession(durable_session_id=AgentSessionId(self.name, key), session_id=key)

    def get_session(self, service_session_id: Any, *, session_id: str | None = None) -> AgentSession:
        """Give the session of an id, to go on in it. Guarantee: replay-safe.

        Args:
            service_session_id: as `create_session` takes it.
            session_id: another name for it within the orchestration.

        Returns:
            The session; that there is one under the id is not checked.

        Raises:
            RequestError: the id is no text, cannot be used, or is another agent's.
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
        """Take the key out of upstream's form ``@agent@key``."""
        if session_id.startswith("@") and session_id.count("@") > 1:
            _, agent, session_id = session_id.split("@", 2)
            if agent.casefold() != self.name.casefold():
                raise RequestError(
                    f"the session {session_id!r} belongs to agent {agent!r}, and this is {self.name!r}: "
                    "give the id of a session of this agent"
                )
        return check_session_id(session_id)
