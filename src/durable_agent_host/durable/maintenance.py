"""Deletes expired data.

That is unused sessions, the orchestrations of turns that ended long ago, and blobs that no session refers to. A timer
function of the app calls it. All work is done in portions, so that one run ends in time however much there is, and all
of it is idempotent, so that two processes may do it at once.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

from azure.durable_functions import DurableOrchestrationClient

from durable_agent_host.agent.agent_options import AgentOptions
from durable_agent_host.codec.entity_state import document_digest
from durable_agent_host.durable.instance_status import InstanceListItem, ended_instance_pages, entity_pages, read_time
from durable_agent_host.durable.session_documents import raise_if_busy, read_session
from durable_agent_host.durable.session_erasure import ERASE_ORCHESTRATION, read_owner, start_erasure
from durable_agent_host.durable.turn_orchestrator import TURN_ORCHESTRATION
from durable_agent_host.encryption.key_check import APP_NAMESPACE
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError, RegistrationError, TurnRejectedError
from durable_agent_host.model.access import MAINTENANCE
from durable_agent_host.model.ids import entity_name
from durable_agent_host.segments.garbage_collection import GarbageCollector, SweepResult
from durable_agent_host.segments.turn_data_storage import TurnDataStorage
from durable_agent_host.settings import Settings
from durable_agent_host.storage.latest_dict import LatestDict

MAINTENANCE_FUNCTION: Final = "agent_maintenance"
MAX_EXPIRED: Final = 500
"""How many sessions one run starts to erase."""
MAX_PAGES: Final = 50
"""How many pages of old ended orchestrations one run reads."""
SWEEP_SECONDS: Final = 60.0
"""Time limit for one run's check of namespaces; the next run continues with the rest."""
MAX_NAMESPACES: Final = 100_000
"""Namespaces that are listed at once."""

_MAX_CLEAN_NAMESPACES: Final = 10_000
_HOST_ORCHESTRATIONS: Final = frozenset({TURN_ORCHESTRATION, ERASE_ORCHESTRATION})
_AT_ONCE: Final = 8
"""Maximum concurrent purges."""
_LOGGER = logging.getLogger(__name__)


def ttl_seconds(ttl: timedelta | float | None, default: float) -> float:
    """Return how long sessions are kept after their last use: an app's choice, or the default; 0 for ever.

    Raises:
        RegistrationError: it is not a valid time.
    """
    if ttl is None:
        return default
    value: Any = ttl.total_seconds() if isinstance(ttl, timedelta) else ttl
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    seconds = float(value) if is_number else -1.0
    if not 0 <= seconds < float("inf"):
        raise RegistrationError(f"session_ttl is {ttl!r}: give seconds or a timedelta above 0, or 0 for ever")
    return seconds


def _unowned_seconds(settings: Settings) -> float:
    """Return how long data stored for one turn is kept: the retention of its log, plus the longest wait, as long."""
    max_seconds = 2 * settings.turn_log_retention_hours * 3600
    return max(max_seconds, settings.turn_retention_hours * 3600, settings.piece_grace_seconds)


class Maintenance:
    """Deletes expired data.

    Args:
        options: of the agents, by name; a live view.
        storage: has what sessions keep outside their entities.
        settings: retention times.
        feature_orchestrations: names of orchestrations that expire like turns.
    """

    def __init__(
        self,
        options: Mapping[str, AgentOptions],
        storage: TurnDataStorage,
        settings: Settings,
        feature_orchestrations: Collection[str],
    ) -> None:
        self._orchestrations = _HOST_ORCHESTRATIONS.union(feature_orchestrations)
        self._options = options
        self._storage = storage
        self._turn_retention = timedelta(hours=settings.turn_retention_hours)
        self._unowned = _unowned_seconds(settings)
        self._token = ""
        self._namespaces: deque[str] = deque()
        self._clean = LatestDict[str, str](_MAX_CLEAN_NAMESPACES)

    async def run(self, client: DurableOrchestrationClient) -> dict[str, int]:
        """Do the work that is due. Raises nothing: failures are logged, and the next run tries again.

        Returns:
            Counts: ``expired`` sessions, which are being erased, ``purged`` orchestrations, ``swept`` blobs.
        """
        jobs: dict[str, Callable[[DurableOrchestrationClient, datetime], Awaitable[int]]] = {
            "expired": self._expire,
            "purged": self._purge_ended,
            "swept": self._sweep,
        }
        counts: dict[str, int] = {}
        for name, job in jobs.items():
            try:
                counts[name] = await job(client, datetime.now(UTC))
            except Exception:
                _LOGGER.exception("maintenance: %s: not done, the next run tries again", name)
        _LOGGER.info("maintenance: %s", ", ".join(f"{count} {name}" for name, count in counts.items()))
        return counts

    async def _expire(self, client: DurableOrchestrationClient, now: datetime) -> int:
        """Start to erase sessions that have expired."""
        started_count = 0
        for agent, options in self._options.items():
            if not options.ttl_seconds:
                continue
            before = now - timedelta(seconds=options.ttl_seconds)
            async for page in entity_pages(client, entity_name(agent), used_before=before):
                for used, session_id in page:
                    if started_count == MAX_EXPIRED:
                        return started_count
                    if (used_at := read_time(used)) is not None and used_at < before:
                        started_count += await self._expire_session(client, agent, session_id)
        return started_count

    async def _expire_session(self, client: DurableOrchestrationClient, agent: str, session_id: str) -> bool:
        try:
            state: Any = await read_session(client, MAINTENANCE, agent, session_id)
            if state is None:
                return False
            raise_if_busy(state)
        except (EncryptionKeyError, TurnRejectedError):  # a turn that runs or waits for a person counts as a use
            return False
        await start_erasure(client, agent, session_id, {"if_digest": document_digest(state)})
        return True

    async def _purge_ended(self, client: DurableOrchestrationClient, now: datetime) -> int:
        """Delete orchestrations of turns that ended before the retention; leave the app's own alone.

        The list includes the app's own orchestrations, which may be many and stay. So the run reads a portion, which
        the next run of this process continues.
        """
        before = now - self._turn_retention
        purged_count = 0
        pages = 0
        token = self._token
        self._token = ""
        async for page, following in ended_instance_pages(client, created_to=before, token=token):
            purged_count += await _purge(client, page, self._orchestrations, before)
            pages += 1
            if pages == MAX_PAGES:
                self._token = following
                break
        return purged_count

    async def _sweep(self, client: DurableOrchestrationClient, now: datetime) -> int:
        """Delete unreferenced blobs."""
        del now
        store = self._storage.open_store()
        swept = SweepResult()
        started_at = time.monotonic()
        grace = self._storage.grace_seconds
        collector = GarbageCollector(
            store,
            partial(read_owner, client, MAINTENANCE),
            grace_seconds=grace,
            unowned_seconds=self._unowned,
            clean=self._clean,
        )
        if not self._namespaces:
            async for namespace in store.list_namespaces():
                if namespace != APP_NAMESPACE:
                    self._namespaces.append(namespace)
                if len(self._namespaces) == MAX_NAMESPACES:
                    break
        while self._namespaces and time.monotonic() - started_at < SWEEP_SECONDS:
            namespace = self._namespaces.popleft()
            try:
                swept += await collector.sweep(namespace)
            except CorruptStateError as error:
                _LOGGER.warning("maintenance: kept all blobs of %s; its state could not be read: %s", namespace, error)
        return swept.blobs


async def _purge(
    client: DurableOrchestrationClient, page: list[InstanceListItem], names: Collection[str], before: datetime
) -> int:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def purge(instance_id: str) -> int:
        async with slots:
            return int((await client.purge_instance_history(instance_id)).instances_deleted or 0)

    old = [
        instance.instance_id
        for instance in page
        if instance.name.casefold() in names and instance.updated_at is not None and instance.updated_at < before
    ]
    return sum(await asyncio.gather(*map(purge, old)))
