"""Reads the holders of piece homes: sessions, and orchestrations that received a long response."""

from typing import Final

from azure.durable_functions import DurableOrchestrationClient, EntityId, OrchestrationRuntimeStatus

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.errors import StateError
from durable_agent_host.model.session import Session
from durable_agent_host.segments.garbage_collection import RetainedNamespace
from durable_agent_host.segments.turn_data_storage import is_session, orchestration_of

END_STATUSES: Final = frozenset(
    {
        OrchestrationRuntimeStatus.Completed,
        OrchestrationRuntimeStatus.Failed,
        OrchestrationRuntimeStatus.Terminated,
        OrchestrationRuntimeStatus.Canceled,
    }
)
"""The statuses of an orchestration that no longer runs."""


class BlobReferrers:
    """Reads holders, with the durable client of one function call.

    Args:
        client: the SDK's.
    """

    def __init__(self, client: DurableOrchestrationClient) -> None:
        self._client = client

    async def read(self, holder: str) -> Session | RetainedNamespace:
        """Read a holder.

        Returns:
            The head of a session, or another kind of holder.
        """
        if is_session(holder):
            name, _, key = holder.removeprefix("@").partition("@")
            try:
                state = await self._client.read_entity_state(EntityId(name, key))
                if not state.entity_exists or state.entity_state is None:
                    return RetainedNamespace.NOTHING
                return decode_session(state.entity_state)
            except StateError:
                return RetainedNamespace.EVERYTHING
        instance_id = orchestration_of(holder)
        if instance_id is None:
            return RetainedNamespace.EVERYTHING  # of a later version
        status = (await self._client.get_status(instance_id)).runtime_status
        return RetainedNamespace.NOTHING if status is None or status in END_STATUSES else RetainedNamespace.EVERYTHING
