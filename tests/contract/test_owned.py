"""Notes of whose sessions are, in every store of pieces."""

from typing import Any, cast

from durable_agent_host.durable.blob_referrers import Holders
from durable_agent_host.model.principal import THE_APP, Owner
from durable_agent_host.model.session import Receipt, Session
from durable_agent_host.segments.garbage_collection import Sweeper, Swept
from durable_agent_host.segments.session_owner_index import SessionOwnerIndex

ADA, EVE = Owner("ada", "contoso"), Owner("ada", "fabrikam")
LONGEST = "0123456789abcdef~" + "\U0001f512" * 128


async def test_each_owner_has_a_list_by_agent(pieces):
    """Other processes read what one has noted; agents are found in any case, and the app itself has no list."""
    one, other = (SessionOwnerIndex(pieces.store) for _ in range(2))
    await one.record_owners("Echo", [("a@b", ADA), (LONGEST, ADA), ("c", EVE), ("d", THE_APP)])
    await one.add("Other", "e", ADA)
    assert sorted(await other.of("echo", ADA) or []) == sorted(["a@b", LONGEST])
    assert await other.of("ECHO", EVE) == ["c"]
    assert await other.of("Echo", THE_APP) == []
    assert await other.of("Other", ADA) is None
    await other.remove("echo", LONGEST, ADA, is_erased=True)
    await other.remove("echo", "a@b", ADA, is_erased=False)
    assert await one.of("Echo", ADA) == ["a@b"]


async def test_a_turn_notes_what_this_process_has_not_noted(pieces):
    """The first turn of a session does in any case, because another process may have erased one of the name."""
    mine, other = (SessionOwnerIndex(pieces.store) for _ in range(2))
    await mine.record_owners("A", [])
    begun, later = Session(owner=ADA), Session(owner=ADA, receipts=(Receipt("t", "completed"),))
    for session, is_noted in ((begun, True), (later, False), (begun, True)):
        await mine.record_turn_owner("A", "s", session)
        await other.remove("A", "s", ADA, is_erased=True)
        await mine.record_turn_owner("A", "s", session)
        assert (await other.of("A", ADA) == ["s"]) is is_noted
    await other.record_turn_owner("A", "s", Session())
    await SessionOwnerIndex(pieces.store).record_turn_owner("A", "t", later)
    assert sorted(await mine.of("A", ADA) or []) == ["s", "t"]


async def test_no_sweep_looks_into_notes(pieces):
    """A sweep that reads holders as the host does leaves all of them, however old, and asks no client for it."""
    owned, store = SessionOwnerIndex(pieces.store), pieces.store()
    await owned.record_owners("A", [("s", ADA), ("t", EVE)])
    sweeper = Sweeper(store, Holders(cast("Any", None)).read, grace_seconds=0.0, unheld_seconds=0.0)
    homes = [home async for home in store.list_namespaces()]
    assert len(homes) == 3
    for home in homes:
        assert await sweeper.sweep(home) == Swept()
    assert (await owned.of("A", ADA), await owned.of("A", EVE)) == (["s"], ["t"])
