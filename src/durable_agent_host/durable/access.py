"""Which sessions exist for one request."""

from typing import Protocol

from durable_agent_host.model.principal import Owner


class Access(Protocol):
    """The access rule of one request, made by `durable_agent_host.http.gate`."""

    @property
    def owner(self) -> Owner:
        """The owner of what the request begins."""
        ...

    @property
    def has_own_names(self) -> bool:
        """Whether the request may use a name that somebody else has chosen."""
        ...

    async def sees(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, to_read: bool = False
    ) -> bool:
        """Return whether a session exists for the request.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: its owner, or None.
            exists: whether it exists for anybody.
            to_read: whether it can be read, whatever the request does.
        """
        ...

    async def may_import_on_trust(self, agent: str, session_id: str) -> bool:
        """Return whether the app lets the caller import a document that speaks for the app, its tools or the service.

        Args:
            agent: the agent's registered name.
            session_id: of the new session.
        """
        ...
