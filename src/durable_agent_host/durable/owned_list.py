"""Lists the sessions of one owner, reading only these."""

import asyncio
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient, EntityId

from durable_agent_host.codec.last_use import last_use_of_document
from durable_agent_host.codec.owner import owner_of_document
from durable_agent_host.durable.listing import Listed, entity_state_pages
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.ids import entity_name
from durable_agent_host.model.principal import Owner
from durable_agent_host.segments.owned import OwnedSessions

_AT_ONCE: Final = 16


async def list_owned(
    client: DurableOrchestrationClient, owned: OwnedSessions, agent: str, owner: Owner
) -> list[Listed]:
    """List an owner's sessions.

    Args:
        client: the SDK's.
        owned: the record of sessions' owners.
        agent: the agent's registered name.
        owner: the owner.

    Returns:
        All of them, in no promised order.

    Raises:
        LogError: the piece store does not answer.
    """
    names = await owned.of(agent, owner)
    if names is None:
        return await _look_through_all(client, owned, agent, owner)
    found: list[Listed] = []
    left = iter(names)

    async def look() -> None:
        for session_id in left:
            try:
                state = await client.read_entity_state(EntityId(entity_name(agent), session_id))
            except CorruptStateError:  # nobody can tell whose it is
                continue
            held: Any = state.entity_state
            if not state.entity_exists:
                await owned.forget(agent, session_id, owner, is_erased=False)
            elif owner_of_document(held) == owner:
                found.append(Listed(last_use_of_document(held), session_id))

    await asyncio.gather(*(look() for _ in range(_AT_ONCE)))
    return found


async def _look_through_all(
    client: DurableOrchestrationClient, owned: OwnedSessions, agent: str, owner: Owner
) -> list[Listed]:
    """List them of all sessions of the agent, and note whose these are, so that the next list reads fewer."""
    found: dict[str, Listed] = {}
    others: list[tuple[str, Owner]] = []
    async for page in entity_state_pages(client, entity_name(agent)):
        for one, state in page:
            whose = owner_of_document(state)
            if whose == owner:
                found[one.session_id] = Listed(last_use_of_document(state), one.session_id)
            if whose is not None:
                others.append((one.session_id, whose))
    await owned.note_all(agent, others)
    return [*found.values()]
