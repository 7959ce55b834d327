"""Notes of whose sessions are, in every store of blobs."""

from functools import partial
from typing import Any, cast

from durable_agent_host.durable.session_erasure import read_owner
from durable_agent_host.model.access import MAINTENANCE
from durable_agent_host.model.principal import THE_APP, Owner
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.segments.garbage_collection import GarbageCollector, SweepResult
from durable_agent_host.segments.session_owner_index import SessionOwnerIndex

ADA, EVE = Owner("ada", "contoso"), Owner("ada", "fabrikam")
LONG_SESSION_ID = "0123456789abcdef~" + "\U0001f512" * 128


async def test_each_owner_has_a_list_by_agent(blobs):
    """Other processes read what one has noted; agents are found in any case, and the app itself has no list."""
    index, other_index = (SessionOwnerIndex(blobs.store) for _ in range(2))
    for session_id, owner in (("a@b", ADA), (LONG_SESSION_ID, ADA), ("c", EVE), ("d", THE_APP)):
        await index.add("Echo", session_id, owner)
    await index.add("Other", "e", ADA)
    assert sorted(await other_index.of("echo", ADA)) == sorted(["a@b", LONG_SESSION_ID])
    assert await other_index.of("ECHO", EVE) == ["c"]
    assert await other_index.of("Echo", THE_APP) == []
    assert await other_index.of("Other", ADA) == ["e"]
    await other_index.remove("echo", LONG_SESSION_ID, ADA, is_erased=True)
    await other_index.remove("echo", "a@b", ADA, is_erased=False)
    assert await index.of("Echo", ADA) == ["a@b"]


async def test_a_turn_adds_an_owner_that_this_process_has_not_added(blobs):
    """The first turn of a session does in any case, because another process may have erased one of the name."""
    index, other_index = (SessionOwnerIndex(blobs.store) for _ in range(2))
    new_session, later_session = Session(owner=ADA), Session(owner=ADA, receipts=(Receipt("t", "completed"),))
    for session, is_added in ((new_session, True), (later_session, False), (new_session, True)):
        await index.record_turn_owner("A", "s", session)
        await other_index.remove("A", "s", ADA, is_erased=True)
        await index.record_turn_owner("A", "s", session)
        assert (await other_index.of("A", ADA) == ["s"]) is is_added
    await other_index.record_turn_owner("A", "s", Session())
    await SessionOwnerIndex(blobs.store).record_turn_owner("A", "t", later_session)
    assert sorted(await index.of("A", ADA)) == ["s", "t"]


async def test_no_sweep_reads_owner_blobs(blobs):
    """A sweep that reads owners as the host does leaves all of them, however old, and asks no client for it."""
    index, store = SessionOwnerIndex(blobs.store), blobs.store()
    await index.add("A", "s", ADA)
    await index.add("A", "t", EVE)
    sweeper = GarbageCollector(
        store, partial(read_owner, cast("Any", None), MAINTENANCE), grace_seconds=0.0, unowned_seconds=0.0, clean={}
    )
    namespaces = [namespace async for namespace in store.list_namespaces()]
    assert len(namespaces) == 2
    for namespace in namespaces:
        assert await sweeper.sweep(namespace) == SweepResult()
    assert (await index.of("A", ADA), await index.of("A", EVE)) == (["s"], ["t"])
