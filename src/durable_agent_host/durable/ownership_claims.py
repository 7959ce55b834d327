"""The owner of a turn's session: claimed before anything is stored, given up when somebody else was first."""

from contextlib import suppress

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.durable.session_documents import SessionDocuments
from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.segments.session_files import SessionFiles
from durable_agent_host.session.ownership import unknown_session
from durable_agent_host.turn.turn_requests import SessionTarget


class OwnershipClaims:
    """The claims of one request, with its durable client.

    Args:
        client: the SDK's.
        documents: the stored sessions that exist for the request.
        secret: of the app.
    """

    def __init__(
        self,
        client: DurableOrchestrationClient,
        documents: SessionDocuments,
        secret: AppSecret,
    ) -> None:
        self._client = client
        self._documents = documents
        self._secret = secret

    async def id_secret(self) -> str:
        """Return the secret that makes ids derived from a client's key unguessable; see `AppSecret.for_ids`."""
        return await self._secret.for_ids()

    async def resolve_session(self, agent: str, session_id: str) -> SessionTarget:
        """Find a session of the caller, or the one that the caller is going to begin.

        Somebody else's session takes as many reads as a missing one.

        Returns:
            The session's id, and its owner or future owner.

        Raises:
            NotFoundError: the session is somebody else's.
        """
        access = self._documents.access
        if not access.is_restricted:
            return SessionTarget(session_id, None)
        exists, owner = await self._documents.find_owner(agent, session_id)
        if not await access.can_access(agent, session_id, owner, exists=exists) and exists:
            raise unknown_session(agent, session_id)
        return SessionTarget(session_id, owner or access.owner)

    async def reject_foreign_turn(self, request: TurnRequest, outcome: TurnOutcome | None) -> None:
        """Give up a turn whose session somebody else has begun first, and delete what was stored of it.

        Raises:
            NotFoundError: it is such a turn.
        """
        if outcome is None or (outcome.error or {}).get("type") != NotFoundError.__name__:
            return
        with suppress(Exception):  # the SDK has no type for an instance that is already gone
            await self._client.purge_instance_history(request.turn_id)
        storage = self._documents.storage
        owner = request.session_owner
        await storage.delete_turn_data(request)
        await SessionFiles(storage, request.agent, request.session_id, None, owner=owner).uploads.delete()
        raise unknown_session(request.agent, request.session_id)
