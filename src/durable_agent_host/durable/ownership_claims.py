"""The owner of a turn's session: claimed before anything is stored, given up when somebody else was first."""

from contextlib import suppress

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.durable.session_documents import SessionDocuments
from durable_agent_host.errors import NotFoundError, RequestError
from durable_agent_host.model.ids import is_marked
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.segments.session_files import SessionFiles
from durable_agent_host.session.ownership import name_mark, unknown_session
from durable_agent_host.turn.turn_requests import SessionTarget


class OwnershipClaims:
    """The claims of one request, with its durable client.

    Args:
        client: the SDK's.
        documents: the stored sessions that exist for the request.
        secret: of the app.

    Attributes:
        known_mark: the caller's `mark`, once needed; empty until then.
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
        self.known_mark = ""

    async def id_secret(self) -> str:
        """Return the secret that makes ids derived from a client's key unguessable; see `AppSecret.for_ids`."""
        return await self._secret.for_ids()

    async def mark(self) -> str:
        """Return the prefix of the names in ids of the caller's sessions whose names are taken; see `name_mark`."""
        access = self._documents.access
        if access.owner is not None and access.has_own_names and not self.known_mark:
            self.known_mark = name_mark(access.owner, await self.id_secret())
        return self.known_mark

    async def resolve_session(
        self, agent: str, name: str, *, of_turn: bool = False, starts_session: bool = False
    ) -> SessionTarget:
        """Find the session that the caller means by a name, or is going to begin.

        Somebody else's session takes as many reads as a missing one.

        Returns:
            The session's id, and its owner or future owner.

        Raises:
            NotFoundError: the session is somebody else's, and the name is not free for the caller.
            RequestError: the caller would begin a session under what looks like a mark and a name, which is to stay
                free for whose mark it is.
            LogError: the app's secret cannot be read.
        """
        access = self._documents.access
        if not access.is_restricted:
            return SessionTarget(name, None)
        mark = await self.mark()
        marked_name = mark + name
        exists, owner = await self._documents.find_owner(agent, name)
        if not access.has_own_names:
            return SessionTarget(name, await self._seen(agent, name, owner, exists=exists) or access.owner)
        # Both are always read, so that the time to find a session reveals nothing.
        has_marked, marked_owner = await self._documents.find_owner(agent, marked_name)
        for session_id, stored_owner in ((name, owner), (marked_name, marked_owner)):
            if stored_owner == access.owner:
                return SessionTarget(session_id, access.owner)
        if (owner := await self._seen(agent, name, owner, exists=exists)) is not None:
            return SessionTarget(name, owner)
        owner = await self._seen(agent, marked_name, marked_owner, exists=has_marked)
        if (of_turn or starts_session) and owner is None and is_marked(name) and not name.startswith(mark):
            raise RequestError(
                f"the session id {name!r} begins with 16 hexadecimal digits and '~', as ids do that the host "
                "makes: choose another one"
            )
        return SessionTarget(marked_name if exists or has_marked else name, owner or access.owner)

    async def _seen(self, agent: str, session_id: str, owner: Owner | None, *, exists: bool) -> Owner | None:
        """Return the owner of a session that exists for the request."""
        access = self._documents.access
        if await access.can_access(agent, session_id, owner, exists=exists):
            return (owner or access.owner) if exists else None
        may_know = exists
        if access.has_own_names:
            can_read = await access.can_access(agent, session_id, owner, exists=exists, action="session.read")
            may_know = exists and can_read
        if may_know:
            raise unknown_session(agent, session_id)
        return None

    async def free_id(self, agent: str, name: str) -> str:
        """Return the id of a session that the caller wants to begin under a name; it may be taken.

        Raises:
            NotFoundError: somebody else's session, which the caller may read, has the name.
            RequestError: see `resolve_session`.
            LogError: the app's secret cannot be read.
        """
        if not self._documents.access.has_own_names:
            return name
        return (await self.resolve_session(agent, name, starts_session=True)).session_id

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
        if not self._documents.access.has_own_names:  # else the name is still free
            await SessionFiles(storage, request.agent, request.session_id, None, owner=owner).uploads.delete()
        raise unknown_session(request.agent, request.session_id)
