"""Erases sessions: head, blobs, turn logs, and the orchestrations of their turns.

An erasure is an orchestration, so it survives the death of a process: the activity runs again in another one. The head
is deleted last and records what is left: it is marked first, and a marked session admits no turn, is not shown, and
still lists its turns.

The id can be used again as soon as the head is deleted. So the activity runs twice, and what is recorded between its
runs is that the session was marked: from then on, a session without a mark is a later one, and stays.
"""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final, cast

from azure.durable_functions import DurableOrchestrationClient, DurableOrchestrationContext, OrchestrationRuntimeStatus

from durable_agent_host.codec.entity_state import (
    decode_owner,
    decode_session,
    document_digest,
    encode_owner,
    encode_session,
)
from durable_agent_host.durable.instance_status import END_STATUSES, request_of_status, status_of_turn
from durable_agent_host.durable.session_documents import (
    FindHistory,
    SessionDocuments,
    read_session,
    readable_session,
)
from durable_agent_host.errors import (
    HistoryElsewhereError,
    RequestError,
    StateError,
    TurnError,
    TurnRejectedError,
    log_reason,
)
from durable_agent_host.model.access import ERASURE, Access
from durable_agent_host.model.ids import ENTITY_PREFIX, derived_id, turn_log_id
from durable_agent_host.model.principal import Owner
from durable_agent_host.model.session import Session
from durable_agent_host.segments.garbage_collection import GarbageCollector, OwnerStatus, turns_of
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.segments.turn_data_storage import (
    SessionKey,
    TurnDataStorage,
    is_session,
    orchestration_of,
)
from durable_agent_host.segments.uploads import upload_namespace
from durable_agent_host.session.admission import raise_if_busy
from durable_agent_host.session.ownership import unknown_session
from durable_agent_host.turn_log.protocol import TurnLog

ERASE_ORCHESTRATION: Final = "erase_session"
ERASE_ACTIVITY: Final = "erase_agent_session"
RETRY_SECONDS: Final = (1, 2, 4, 8, 16, 32, *(60,) * 10, *(600,) * 140)
"""Pauses between attempts: a store outage of a day delays an erasure without ending it."""

_AT_ONCE: Final = 2
"""Maximum turns of a group that are erased concurrently."""
_MARKED: Final = "marked"
_COUNTED_KINDS: Final = ("turns", "orchestrations", "pieces", "bytes")
_LOGGER = logging.getLogger(__name__)


def run_erasure(context: DurableOrchestrationContext) -> Generator[Any, Any, dict[str, Any]]:
    """Erase one session, as an orchestration.

    Raises:
        RequestError: the input names no session.
        Exception: the last attempt's, after a day of attempts; the session stays marked, and can be erased again.
    """
    sdk: Any = context
    activity_input = sdk.get_input()
    if (
        not isinstance(activity_input, dict)
        or not {"agent", "session_id"} <= cast("dict[str, Any]", activity_input).keys()
    ):
        raise RequestError("the input names no session: give an object with 'agent' and 'session_id'")
    pauses = iter(RETRY_SECONDS)
    while True:
        try:
            result: dict[str, Any] = yield sdk.call_activity(ERASE_ACTIVITY, activity_input)
        except Exception:  # whatever it is, the next attempt begins where this one ended
            if (pause := next(pauses, None)) is None:
                raise
            yield sdk.create_timer(sdk.current_utc_datetime + timedelta(seconds=pause))
        else:
            if result["status"] != _MARKED:
                return result
            activity_input = cast("dict[str, Any]", activity_input) | {_MARKED: result["digest"]}


async def start_erasure(
    client: DurableOrchestrationClient, agent: str, session_id: str, conditions: Mapping[str, Any]
) -> tuple[str, bool]:
    """Start to erase a session. Guarantee: idempotent; a running erasure continues.

    Returns:
        The id of the erasure's orchestration, the same for the same session; and whether this call has started it.
    """
    erasure_id = derived_id("erase", agent.casefold(), session_id)
    erasure_input = {"agent": agent, "session_id": session_id, **conditions}
    try:
        await client.start_new(ERASE_ORCHESTRATION, erasure_id, erasure_input)
    except Exception:
        if (await client.get_status(erasure_id)).runtime_status in (*END_STATUSES, None):
            raise
        return erasure_id, False
    return erasure_id, True


class Erasures:
    """Starts erasures and waits for them, with the durable client of one request.

    Args:
        client: the SDK's.
        documents: the stored sessions.
    """

    def __init__(self, client: DurableOrchestrationClient, documents: SessionDocuments) -> None:
        self._client = client
        self._documents = documents

    async def erase(
        self, agent: str, session_id: str, *, owner: Owner | None, keeps_history: bool, seconds: float
    ) -> Mapping[str, int] | None:
        """Erase a session, and wait until it is done.

        Returns:
            What was erased, by kind; nothing when another erasure has just done it; None when it still runs.

        Raises:
            TurnRejectedError: a turn runs or waits; nothing was erased.
            NotFoundError: the session has been erased or adopted meanwhile, and is another owner's.
            TurnError: the erasure failed, and must be requested again.
        """
        conditions = {"if_owner": None if owner is None else encode_owner(owner), "keeps_history": keeps_history}
        deadline = time.monotonic() + seconds
        while True:
            erasure_id, is_own = await start_erasure(self._client, agent, session_id, conditions)
            status = await self._end_of(erasure_id, deadline)
            if status is None:
                return None
            if status.runtime_status is None:  # another waiter has deleted its record
                if await self._is_absent(agent, session_id):
                    return {}
                continue
            if status.runtime_status is not OrchestrationRuntimeStatus.Completed:
                raise TurnError(f"session {session_id!r} was not erased: try again. {str(status.output)[:300]}")
            output: Any = status.output
            result = cast("dict[str, Any]", json.loads(output) if isinstance(output, str) else output)
            if result["status"] == "busy":
                raise TurnRejectedError(result["detail"], running_turn_id=result["running_turn_id"])
            if result["status"] == "foreign" and is_own:
                raise unknown_session(agent, session_id)
            if result["status"] == "erased" and (is_own or await self._is_absent(agent, session_id)):
                return result["erased"]  # otherwise an expiry, or the end of an erasure before the session began again

    async def _is_absent(self, agent: str, session_id: str) -> bool:
        exists, _ = await self._documents.find_owner(agent, session_id)
        return not exists

    async def _end_of(self, erasure_id: str, deadline: float) -> Any:
        """Wait for the end of an erasure and delete its record, which names the session; None when it takes longer."""
        pause = 0.01
        while (status := await self._client.get_status(erasure_id)).runtime_status not in (*END_STATUSES, None):
            if time.monotonic() > deadline:
                return None
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, 0.5)
        with suppress(Exception):  # the SDK has no type for an instance that is already gone
            await self._client.purge_instance_history(erasure_id)
        return status


async def read_owner(client: DurableOrchestrationClient, access: Access, owner: str) -> Session | OwnerStatus:
    """Read the owner of a namespace: a session, or the orchestration that has something to do with a turn.

    Args:
        client: the SDK's.
        access: of the work that deletes blobs: it has to see every session.
        owner: as the namespace names it.
    """
    if is_session(owner):
        name, _, key = owner.removeprefix("@").partition("@")
        try:
            state = await read_session(client, access, name.removeprefix(ENTITY_PREFIX), key)
            return OwnerStatus.GONE if state is None else decode_session(state)
        except StateError:
            return OwnerStatus.UNKNOWN
    instance_id = orchestration_of(owner)
    if instance_id is None:
        return OwnerStatus.UNKNOWN
    status = (await client.get_status(instance_id)).runtime_status
    return OwnerStatus.GONE if status is None or status in END_STATUSES else OwnerStatus.UNKNOWN


class Eraser:
    """Performs erasures.

    Args:
        open_log: returns the turn log of the process.
        storage: has what sessions keep outside their entities.
        find_history: returns where the conversations of an agent are.
    """

    def __init__(
        self,
        open_log: Callable[[], TurnLog],
        storage: TurnDataStorage,
        find_history: FindHistory,
    ) -> None:
        self._open_log = open_log
        self._storage = storage
        self._find_history = find_history

    async def erase(self, wire: Mapping[str, Any], client: DurableOrchestrationClient) -> dict[str, Any]:
        """Erase a session, or what an earlier attempt has left of it.

        Returns:
            ``status`` ``marked`` with ``digest``: the session is to be erased by the next run; or ``erased`` with
            ``erased``: counts of what this attempt has erased; or ``busy``, with ``detail`` and ``running_turn_id``;
            or ``changed``, when the document is another one; or ``foreign``, when its owner is not ``if_owner``.

        Raises:
            LogError: a store does not answer; the session stays marked.
            HistoryError: a history provider does not answer; the session stays marked.
        """
        agent = wire["agent"]
        session_id = wire["session_id"]
        documents = SessionDocuments(client, ERASURE, self._storage, self._find_history)
        state = await documents.read_state(agent, session_id)
        session = readable_session(state)
        store = self._storage.open_store()
        grace = self._storage.grace_seconds
        collector = GarbageCollector(
            store, partial(read_owner, client, ERASURE), grace_seconds=grace, unowned_seconds=grace, clean={}
        )
        erasing = _Erasing(client, agent, session_id, log=self._open_log(), store=store, collector=collector)
        if not wire.get(_MARKED):
            owner = decode_owner(wire.get("if_owner"))
            if "if_owner" in wire and (state is None or (owner is not None and session.owner != owner)):
                await erasing.erase_uploads(owner)  # they came before the session, which has not begun or is another's
                if state is None or erasing.erased_counts["pieces"]:
                    return _erased_result(erasing.erased_counts)
            return await _mark(documents, wire, state)
        if state is None or not (session.erasing or document_digest(state) == wire[_MARKED]):
            return _erased_result(
                dict.fromkeys(_COUNTED_KINDS, 0)
            )  # by an earlier attempt, and the session is a new one
        if not wire.get("keeps_history"):
            with suppress(HistoryElsewhereError):  # expires here even if it stays elsewhere
                await self._find_history(agent).delete(SessionKey(agent, session_id), self._storage.record(session))
        await erasing.erase_turns(session)
        await erasing.delete_blobs(session)
        if session.owner is not None:
            await self._storage.owned.remove(agent, session_id, session.owner, is_erased=True)
        try:
            await documents.put(agent, session_id, None, instead_of=state)
        except TurnRejectedError:  # or it is erased, and has begun again before that was seen
            now = await documents.read_state(agent, session_id)
            if document_digest(now) == document_digest(state):
                raise
        return _erased_result(erasing.erased_counts)


def _erased_result(counts: Mapping[str, int]) -> dict[str, Any]:
    return {"status": "erased", "erased": counts}


async def _mark(documents: SessionDocuments, wire: Mapping[str, Any], state: Any) -> dict[str, Any]:
    """Mark a session that is as the erasure wants it; return what `Eraser.erase` returns."""
    session = readable_session(state)
    if wire.get("if_digest") and not session.erasing and document_digest(state) != wire["if_digest"]:
        return {"status": "changed"}
    if "if_owner" in wire and state is not None and session.owner != decode_owner(wire["if_owner"]):
        return {"status": "foreign"}
    try:
        marked_document = await _mark_document(documents, wire["agent"], wire["session_id"], state)
    except TurnRejectedError as error:
        return {"status": "busy", "detail": str(error), "running_turn_id": error.running_turn_id}
    if marked_document is None:
        return _erased_result(dict.fromkeys(_COUNTED_KINDS, 0))
    return {"status": _MARKED, "digest": document_digest(marked_document)}


async def _mark_document(documents: SessionDocuments, agent: str, session_id: str, state: Any) -> Any:
    """Mark a session as being erased; return its document, or None when it is gone.

    An earlier attempt, which a crash cut off, may have marked it meanwhile, with another time.
    """
    raise_if_busy(state)
    session = readable_session(state)
    if not session.document or session.erasing:
        return state
    marked_document = encode_session(replace(session, erasing=datetime.now(UTC).isoformat()))
    try:
        await documents.put(agent, session_id, marked_document, instead_of=state)
    except TurnRejectedError:
        state = await documents.read_state(agent, session_id)
        if state is not None and not readable_session(state).erasing:
            raise
        return state
    return marked_document


class _Erasing:
    """One attempt to erase one session."""

    def __init__(
        self,
        client: DurableOrchestrationClient,
        agent: str,
        session_id: str,
        *,
        log: TurnLog,
        store: BlobStore,
        collector: GarbageCollector,
    ) -> None:
        self._client = client
        self._agent = agent
        self._session_id = session_id
        self._log = log
        self._store = store
        self._collector = collector
        self.erased_counts: dict[str, int] = dict.fromkeys(_COUNTED_KINDS, 0)

    async def erase_turns(self, session: Session) -> None:
        """Delete the data of turns: orchestrations, logs, and requests and answers too large to travel."""
        turn_ids: set[str] = set()
        async for page in turns_of(self._store, session):
            await self._erase_group([*{*page} - turn_ids])
            turn_ids.update(page)
        self.erased_counts["turns"] = len(turn_ids)

    async def _erase_group(self, turns: list[str]) -> None:
        slots = asyncio.Semaphore(_AT_ONCE)

        async def erase(turn_id: str, namespace: str) -> None:
            async with slots:
                await asyncio.sleep(0)
                purged_count = await _purge_turn(self._client, self._agent, self._session_id, turn_id)
                self.erased_counts["orchestrations"] += purged_count
                await self._erase_namespace(namespace)

        namespaces = [turn_log_id(self._agent, self._session_id, turn_id) for turn_id in turns]
        await asyncio.gather(*map(erase, turns, namespaces))
        await self._log.delete(*namespaces)

    async def delete_blobs(self, session: Session) -> None:
        """Delete the blobs of the session, and its uploads."""
        if session.sealed.namespace:
            await self._erase_namespace(session.sealed.namespace)
        for owner in dict.fromkeys((None, session.owner)):
            await self.erase_uploads(owner)

    async def erase_uploads(self, owner: Owner | None) -> None:
        """Delete the uploads of an owner, or of nobody, under the session's name."""
        await self._erase_namespace(upload_namespace(self._agent, self._session_id, owner))

    async def _erase_namespace(self, namespace: str) -> None:
        result = await self._collector.erase(namespace)
        self.erased_counts["pieces"] += result.blobs
        self.erased_counts["bytes"] += result.size


async def _purge_turn(client: DurableOrchestrationClient, agent: str, session_id: str, turn_id: str) -> int:
    """Delete a turn's orchestration if it is this session's: a fork's entries name the original's turns."""
    try:
        status = await status_of_turn(client, turn_id, show_input=True)
    except (StateError, ValueError) as error:
        _LOGGER.warning(
            "turn %s of a session that is erased cannot be read, so its record is left to maintenance: %s",
            turn_id,
            log_reason(error),
        )
        return 0
    request = request_of_status(turn_id, status) if status else None
    if request is None or (request.agent.casefold(), request.session_id) != (agent.casefold(), session_id):
        return 0
    try:
        purge_result = await client.purge_instance_history(turn_id)
    except Exception:  # noqa: BLE001 - the SDK has no type for an instance that has not quite ended
        await client.terminate(turn_id, "its session was deleted")
        purge_result = await client.purge_instance_history(turn_id)
    return int(purge_result.instances_deleted or 0)
