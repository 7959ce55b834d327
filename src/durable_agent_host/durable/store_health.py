"""Health of the stores: the durable store, which holds the sessions, the turn log, and the pieces of sessions."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.model.ids import entity_name
from durable_agent_host.segments.conversation_reader import OpenSegments
from durable_agent_host.turn_log.protocol import TurnLog
from durable_agent_host.turn_log.turn_log_health import LogProbe, Probe

CHECK_OPERATION: Final = "check"
"""An operation of an agent's entity that does nothing."""

CHECK_KEY: Final = "durable-agent-host.health"
"""The entity that is signalled. It never has a state, so it never exists; a session with this id is not affected."""


class StoreProbe(Probe):
    """Checks the durable store with a signal to an entity (a write) and the status of a turn (a read).

    Args:
        agents: the app's, by name; a live view. An app without agents gets only the read.
    """

    def __init__(self, agents: Mapping[str, Any]) -> None:
        super().__init__("the durable store")
        self._agents = agents

    async def find_problem(self, client: DurableOrchestrationClient) -> Exception | None:
        """Return what is wrong with the store; see `Probe.problem`."""

        async def ask() -> None:
            await client.get_status("health")
            for name in sorted(self._agents)[:1]:
                await client.signal_entity(EntityId(entity_name(name), CHECK_KEY), CHECK_OPERATION)

        return await self.problem(ask)


class StoreProbes:
    """Checks the stores.

    Args:
        open_log: returns the turn log of the process.
        open_pieces: returns the piece store of the process.
        agents: the app's, by name; a live view.

    Attributes:
        check_log: checks that the turn log is writable; see `LogProbe.check`.
    """

    def __init__(self, open_log: Callable[[], TurnLog], open_pieces: OpenSegments, agents: Mapping[str, Any]) -> None:
        self._log = LogProbe(open_log)
        self.check_log = self._log.check
        self._pieces = Probe("the piece store")
        self._open_pieces = open_pieces
        self._store = StoreProbe(agents)

    async def find_problems(self, client: DurableOrchestrationClient) -> dict[str, Exception | None]:
        """Return what is wrong; cheap enough for frequent calls.

        Returns:
            The problem by store (``session_store``, ``turn_log``, ``piece_store``), or None.
        """
        session_store, turn_log, piece_store = await asyncio.gather(
            self._store.find_problem(client),
            self._log.find_problem(),
            self._pieces.problem(lambda: self._open_pieces().check()),
        )
        return {"session_store": session_store, "turn_log": turn_log, "piece_store": piece_store}
