"""The secret of an app, drawn once: makes ids derived from a client's key impossible to compute.

An entity keeps it, so all processes of the app share it, and a restart does not change it. The first process that needs
it draws one; when several do at once, the entity keeps the first.
"""

import asyncio
import secrets
import time
from typing import Final

from azure.durable_functions import DurableEntityContext, DurableOrchestrationClient, EntityId

from durable_agent_host.errors import LogUnavailableError

IDS_ENTITY: Final = "durable_agent_host_ids"
_ENTITY_ID: Final = EntityId(IDS_ENTITY, "secret")
_SECONDS: Final = 10.0


def handle_secret(context: DurableEntityContext) -> None:
    """Keep the first secret offered; the only operation, whatever its name."""
    context.set_state(context.get_state(context.get_input))


class IdSecret:
    """Reads the app's secret, once per process."""

    def __init__(self) -> None:
        self._known = ""

    async def read(self, client: DurableOrchestrationClient) -> str:
        """Return the secret.

        Args:
            client: the request's.

        Raises:
            LogUnavailableError: the durable store has not kept one within 10 s.
        """
        if self._known:
            return self._known
        deadline, pause, is_offered = time.monotonic() + _SECONDS, 0.005, False
        while time.monotonic() < deadline:
            state = await client.read_entity_state(_ENTITY_ID)
            if state.entity_exists and state.entity_state:
                self._known = str(state.entity_state)
                return self._known
            if not is_offered:
                await client.signal_entity(_ENTITY_ID, "offer", secrets.token_hex(32))
                is_offered = True
            await asyncio.sleep(pause)
            pause = min(pause * 2, 0.5)
        raise LogUnavailableError("the app's secret for ids cannot be read: try again later")
