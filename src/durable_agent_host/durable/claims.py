"""Whose session a turn runs in: said before anything of it is stored, and taken back when somebody else was first."""

from contextlib import suppress
from dataclasses import replace

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.codec.owner import encode_owner
from durable_agent_host.durable.documents import SessionDocuments
from durable_agent_host.durable.id_secret import IdSecret
from durable_agent_host.errors import NotFoundError
from durable_agent_host.model.turn import TurnOutcome, TurnRequest
from durable_agent_host.segments.session_files import SessionFiles
from durable_agent_host.session.ownership import unknown_session


class SessionClaims:
    """The claims of one request, with its durable client.

    Args:
        client: the SDK's.
        documents: the stored sessions, as there are for the request.
        id_secret: of the app.
    """

    def __init__(self, client: DurableOrchestrationClient, documents: SessionDocuments, id_secret: IdSecret) -> None:
        self._client = client
        self._documents = documents
        self._id_secret = id_secret

    async def id_secret(self) -> str:
        """Return what makes ids that derive from a client's key unguessable; see `IdSecret`."""
        return await self._id_secret.read(self._client)

    async def in_its_session(self, request: TurnRequest) -> TurnRequest:
        """Say in a request whose its session has to be, before anything of it is stored.

        Args:
            request: of a client.

        Raises:
            NotFoundError: the session is somebody else's.
        """
        owner = await self._documents.owner_to_be(request.agent, request.session_id)
        if owner is None or owner == request.session_owner:
            return request
        return replace(request, owner=encode_owner(owner))

    async def refuse_foreign(self, request: TurnRequest, outcome: TurnOutcome | None) -> None:
        """Give up a turn whose session somebody else has begun meanwhile, and delete what was stored of it.

        Args:
            request: of the turn.
            outcome: how it ended, or None.

        Raises:
            NotFoundError: it is such a turn.
        """
        if outcome is None or (outcome.error or {}).get("type") != NotFoundError.__name__:
            return
        with suppress(Exception):  # the SDK has no type for what is gone already
            await self._client.purge_instance_history(request.turn_id)
        keeper, owner = self._documents.keeper, request.session_owner
        await keeper.forget_turn(request)
        await SessionFiles(keeper, request.agent, request.session_id, None, owner=owner).uploads.delete()
        raise unknown_session(request.agent, request.session_id)
