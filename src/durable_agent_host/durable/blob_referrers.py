"""Reads the holders of piece homes: sessions, and orchestrations that received a long response."""

from typing import Final

from azure.durable_functions import DurableOrchestrationClient, OrchestrationRuntimeStatus

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.durable.session_documents import read_session
from durable_agent_host.errors import StateError
from durable_agent_host.model.access import Access
from durable_agent_host.model.ids import ENTITY_PREFIX
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
        access: of the work that deletes blobs: it has to see every session.
    """

    def __init__(self, client: DurableOrchestrationClient, access: Access) -> None:
        self._client = client
        self._access = access

    async def read(self, holder: str) -> Session | RetainedNamespace:
        """Read a holder.

        Returns:
            The head of a session, or another kind of holder.
        """
        if is_session(holder):
            name, _, key = holder.removeprefix("@").partition("@")
            try:
                agent = name.removeprefix(ENTITY_PREFIX)
                state = await read_session(self._client, self._access, agent, key)
                return RetainedNamespace.NOTHING if state is None else decode_session(state)
            except StateError:
                return RetainedNamespace.EVERYTHING
        instance_id = orchestration_of(holder)
        if instance_id is None:
            return RetainedNamespace.EVERYTHING  # of a later version
        status = (await self._client.get_status(instance_id)).runtime_status
        return RetainedNamespace.NOTHING if status is None or status in END_STATUSES else RetainedNamespace.EVERYTHING
