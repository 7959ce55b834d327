"""The session in which a request runs. Pure."""

from dataclasses import replace
from typing import NamedTuple

from durable_agent_host.codec.owner import encode_owner
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.turn import TurnRequest


class Place(NamedTuple):
    """Where a request finds or begins a session.

    Attributes:
        session_id: the id of the session, without the agent's name.
        owner: its owner or future owner; None where nobody is identified.
    """

    session_id: str
    owner: Owner | None

    def claim(self, request: TurnRequest) -> TurnRequest:
        """Put the required owner of its session into a request, before anything of it is stored. Guarantee: pure."""
        if self.owner is None or self.owner == request.session_owner:
            return request
        return replace(request, owner=encode_owner(self.owner))
