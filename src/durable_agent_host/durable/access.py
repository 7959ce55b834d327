"""Which sessions there are for one request."""

from typing import Protocol

from durable_agent_host.model.principal import Owner


class Access(Protocol):
    """The rule of one request; `durable_agent_host.http.gate` makes it."""

    @property
    def owner(self) -> Owner:
        """To whom what the request begins belongs."""
        ...

    @property
    def has_own_names(self) -> bool:
        """Whether a name that somebody else has chosen is free for the request."""
        ...

    async def sees(
        self, agent: str, session_id: str, owner: Owner | None, *, exists: bool, to_read: bool = False
    ) -> bool:
        """Tell whether there is a session for the request.

        Args:
            agent: the agent's registered name.
            session_id: without the agent's name.
            owner: to whom it belongs, or None.
            exists: whether there is one for anybody.
            to_read: whether there is one to read, whatever the request does.
        """
        ...
