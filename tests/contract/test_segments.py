"""What a store of pieces promises, of every store."""

import asyncio
import hashlib
import random
import time

import pytest

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import SegmentStore
from tests.contract.piece_stores import BlobPieces, EncryptedBlobPieces, EncryptedSqlitePieces, PieceBackend

HOME, OTHER = "a" * 32, "b" * 32
NAME = "ab" * 8
"""Promises no bytes."""
OLD_SECONDS = 2.0
"""An age that tests wait for."""


def named(*bodies: bytes) -> dict[str, bytes]:
    """Name pieces by their bytes."""
    return {hashlib.sha256(body).hexdigest(): body for body in bodies}


def some(count: int, *, size: int = 200, seed: int = 1) -> dict[str, bytes]:
    """Draw pieces of one size."""
    chance = random.Random(seed)
    return named(*(chance.randbytes(size) for _ in range(count)))


async def listed(store: SegmentStore, home: str = HOME) -> dict[str, int]:
    """The sizes of a home's pieces by name."""
    return {piece.name: piece.size async for piece in store.pieces(home)}


async def homes(store: SegmentStore) -> list[str]:
    """All homes, sorted."""
    return sorted([home async for home in store.list_namespaces()])


async def grow_old(backend: PieceBackend) -> None:
    """Wait until what is stored is `OLD_SECONDS` old; blob storage counts whole seconds."""
    await asyncio.sleep(OLD_SECONDS + (1.1 if isinstance(backend, BlobPieces) else 0.05))


def is_young(began: float) -> bool:
    """Tell whether what was stored since a moment is young by every store's clock; a busy machine may take too long."""
    return time.monotonic() - began < OLD_SECONDS - 1


async def test_what_is_put_is_got(pieces):
    """Pieces of all sizes come back byte for byte, in this object and in another one, in any order of names."""
    chance = random.Random(2)
    sizes = (0, 1, 488, 489, 490, 3_600, 4_085, 4_092, 4_096, 8_184, 8_300, 20_000, 300_000)
    wanted = named(*(chance.randbytes(size) for size in sizes))
    store = pieces.store()
    await store.put(HOME, wanted)
    for one in (store, pieces.store()):
        assert await one.get(HOME, sorted(wanted) * 2) == wanted
        assert await listed(one) == {name: len(body) for name, body in wanted.items()}
    assert await store.get(HOME, []) == {}
    await store.put(HOME, {})


async def test_putting_again_changes_nothing(pieces):
    """A piece that is put again, here and at once elsewhere, is there once; a home does not see another's."""
    wanted = named(b"one", b"two" * 10_000)
    stores = [pieces.store() for _ in range(4)]
    await asyncio.gather(*(store.put(HOME, wanted) for store in stores * 2))
    await stores[0].put(HOME, wanted)
    assert await stores[1].get(HOME, wanted) == wanted
    assert len(await listed(stores[2])) == len(wanted)
    assert await listed(stores[3], OTHER) == {}


async def test_the_first_of_a_name_stays(pieces):
    """Of several contents under a name that promises none, put at once or later, everybody gets the same one."""
    if isinstance(pieces, EncryptedSqlitePieces | EncryptedBlobPieces):
        pytest.skip("a store that encrypts names pieces by its data keys, of which several may be new")
    stores = [pieces.store() for _ in range(4)]
    await asyncio.gather(*(store.put(HOME, {NAME: bytes([n]) * 32}) for n, store in enumerate(stores)))
    first = await stores[0].get(HOME, [NAME])
    await stores[1].put(HOME, {NAME: b"later"})
    assert [await store.get(HOME, [NAME]) for store in stores] == [first] * 4


async def test_parts_of_a_piece_are_read(pieces):
    """Any part comes back, shorter at the end and empty behind it; who asks for a missing piece gets its name."""
    store, (body,) = pieces.store(), (random.Random(3).randbytes(500_000),)
    (name,), (gone,) = named(body), named(b"gone")
    await store.put(HOME, named(body))
    for start, size in ((0, 10), (0, 500_000), (199_999, 100_001), (499_990, 100), (500_000, 10)):
        assert await store.read(HOME, name, start, size) == body[start : start + size]
    with pytest.raises(CorruptStateError, match=gone):
        await store.read(HOME, gone, 0, 10)


async def test_a_missing_piece_is_named(pieces):
    """Who asks for a piece that is not there gets an error with its name and what to do; others are still got."""
    store = pieces.store()
    wanted, (gone,) = some(3), named(b"gone")
    await store.put(HOME, wanted)
    with pytest.raises(CorruptStateError, match=rf"{gone} of {HOME} is not in .*restore"):
        await store.get(HOME, [*wanted, gone])
    with pytest.raises(CorruptStateError, match=rf"of {OTHER} is not in"):
        await store.get(OTHER, wanted)
    assert await store.get(HOME, wanted) == wanted


@pytest.mark.parametrize("size", [30, 60_000])
async def test_a_changed_piece_is_found(pieces, size):
    """A piece with one byte changed is an error that names it, and the pieces beside it are still got."""
    store = pieces.store()
    wanted = some(4, size=size)
    await store.put(HOME, wanted)
    changed, *sound = wanted
    await pieces.flip(HOME, changed)
    with pytest.raises(
        CorruptStateError, match=rf"{changed} of {HOME} .* has other bytes.*restore|{changed} of {HOME} has"
    ):
        await pieces.store().get(HOME, wanted)
    assert await store.get(HOME, sound) == {name: wanted[name] for name in sound}


async def test_homes_are_listed_once(pieces):
    """A home with pieces, with a holder, or with both is listed once, and is gone with the last of them."""
    store = pieces.store()
    assert await homes(store) == []
    wanted = some(3)
    await store.check()
    await store.put(HOME, wanted)
    await store.hold(HOME, "@agent@one")
    await store.hold(OTHER, "@agent@one")
    assert await homes(pieces.store()) == [HOME, OTHER]
    await store.release(OTHER, "@agent@one")
    assert await store.delete(HOME, wanted) == 3
    assert await homes(store) == [HOME]
    await store.release(HOME, "@agent@one")
    assert await homes(store) == []


async def test_what_is_deleted_is_gone(pieces):
    """Deleting says how many there were, ignores what is not there, and leaves the others."""
    store = pieces.store()
    wanted = some(10)
    first, *rest = wanted
    await store.put(HOME, wanted)
    await store.put(OTHER, wanted)
    assert await store.delete(HOME, [first, *named(b"never stored")]) == 1
    assert await store.delete(HOME, [first]) == 0
    assert set(await listed(store)) == set(rest)
    assert await pieces.store().get(OTHER, wanted) == wanted
    await store.put(HOME, {first: wanted[first]})
    assert await store.get(HOME, wanted) == wanted


async def test_what_was_put_later_stays(pieces):
    """Deleting by age spares what was put, or put again, within that time."""
    store = pieces.store()
    old, again, new = some(6, seed=3), some(4, size=9_000, seed=4), some(2, seed=5)
    deleted, in_time = 0, False
    while not in_time:
        await store.put(HOME, old | again)
        await grow_old(pieces)
        began = time.monotonic()
        await pieces.store().put(HOME, again | new)
        ages = {piece.name: piece.age_seconds async for piece in store.pieces(HOME)}
        deleted = await store.delete(HOME, ages, older_than_seconds=OLD_SECONDS)
        in_time = is_young(began)
    assert all(ages[name] >= OLD_SECONDS for name in old)
    assert not any(ages[name] >= OLD_SECONDS for name in again | new)
    assert deleted == len(old)
    assert await store.get(HOME, again | new) == again | new
    assert await store.delete(HOME, ages, older_than_seconds=1000) == 0
    assert await store.delete(HOME, ages) == len(again | new)


async def test_holders_are_noted_renewed_and_released(pieces):
    """A holder's age begins anew when it holds again; it is released unless it was renewed later."""
    store, long = pieces.store(), "@" + "ü€😀/ \n%" * 42 + "@1234"
    assert len(long) == 300
    assert await store.holders(HOME) == {}
    found, in_time = {}, False
    while not in_time:
        for holder in ("@agent@old", "@agent@renewed", long):
            await store.hold(HOME, holder)
        await grow_old(pieces)
        began = time.monotonic()
        await pieces.store().hold(HOME, "@agent@renewed")
        found = await store.holders(HOME)
        for holder in found:
            await store.release(HOME, holder, older_than_seconds=OLD_SECONDS)
        in_time = is_young(began)
    assert {holder for holder, age in found.items() if age >= OLD_SECONDS} == {"@agent@old", long}
    assert set(found) == {"@agent@old", "@agent@renewed", long}
    assert set(await store.holders(HOME)) == {"@agent@renewed"}
    await store.release(HOME, "@agent@renewed")
    await store.release(HOME, "@agent@renewed")
    assert await store.holders(HOME) == {}


async def test_every_loop_may_call(pieces):
    """One object serves several loops in several threads at once."""
    store = pieces.store()

    async def use(seed: int) -> None:
        wanted = some(5, seed=seed)
        for _ in range(3):
            await store.put(HOME, wanted)
            assert await store.get(HOME, wanted) == wanted

    elsewhere = [asyncio.to_thread(asyncio.run, use(seed)) for seed in range(4)]
    await asyncio.gather(use(10), *elsewhere)


async def test_a_sweep_spares_what_is_put_again(pieces):
    """While several sweep what looks old, whoever puts a piece again finds it afterwards, each time."""
    wanted = some(8, size=6_000)
    store, sweepers = pieces.store(), [pieces.store() for _ in range(2)]
    await store.put(HOME, wanted)
    await grow_old(pieces)
    is_over = False

    async def sweep(one: SegmentStore) -> int:
        deleted = 0
        while not is_over:
            deleted += await one.delete(HOME, list(wanted), older_than_seconds=OLD_SECONDS)
            await asyncio.sleep(0.005)
        return deleted

    sweeping = [asyncio.create_task(sweep(one)) for one in sweepers]
    for _ in range(8):
        began = time.monotonic()
        for name, body in wanted.items():
            await store.put(HOME, {name: body})
        there = [piece.name async for piece in store.pieces(HOME)]
        if is_young(began):
            assert sorted(there) == sorted(wanted)
    is_over = True
    await asyncio.gather(*sweeping)
    await store.put(HOME, wanted)
    assert await store.get(HOME, wanted) == wanted


async def test_many_delete_and_put_at_once(pieces):
    """Whatever the order of puts and deletes, a piece is there whole or not at all, and the last put is there."""
    wanted = some(6, size=9_000)
    stores = [pieces.store() for _ in range(4)]

    async def change(store: SegmentStore, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(10):
            chosen = {name: wanted[name] for name in chance.sample(sorted(wanted), 3)}
            if chance.random() < 0.5:
                await store.put(HOME, chosen)
            else:
                await store.delete(HOME, chosen)

    await asyncio.gather(*(change(store, seed) for seed, store in enumerate(stores)))
    there = await listed(stores[0])
    assert await stores[1].get(HOME, there) == {name: wanted[name] for name in there}
    await stores[2].put(HOME, wanted)
    assert await stores[3].get(HOME, wanted) == wanted


@pytest.mark.parametrize("pieces", ["sqlite", "blob"], indirect=True)
async def test_many_pieces(pieces):
    """A home of thousands of pieces is listed, read and deleted."""
    store, count = pieces.store(), 10_000 if not isinstance(pieces, BlobPieces) else 400
    wanted = some(count, size=50)
    await store.put(HOME, wanted)
    assert set(await listed(store)) == set(wanted)
    assert await store.get(HOME, wanted) == wanted
    assert await store.delete(HOME, wanted) == count
    assert await listed(store) == {}


@pytest.mark.parametrize("pieces", ["sqlite", "blob"], indirect=True)
async def test_a_large_piece(pieces):
    """A piece of 100 MB is stored, read, put again and deleted, while small ones pass."""
    large, small = named(random.Random(9).randbytes(100_000_000)), some(5)
    store = pieces.store()
    putting = asyncio.create_task(store.put(HOME, large))
    await store.put(HOME, small)
    await putting
    await store.put(HOME, large)
    assert await store.get(HOME, [*large, *small]) == large | small
    assert await store.delete(HOME, large) == 1
    assert await store.get(HOME, small) == small


async def test_nothing_of_a_deleted_piece_is_left(pieces):
    """When deleting returns, nothing of the pieces' bytes is in any file or blob; those that stay are there."""
    store, chance = pieces.store(), random.Random(7)
    kept: dict[str, bytes] = {}
    gone: dict[str, bytes] = {}
    for number in range(3 if isinstance(pieces, BlobPieces) else 30):
        for word, chosen in (("kept", kept), ("gone", gone)):
            texts = (f"{word}-{number}-{one} ".encode() for one in range(15))
            group = named(*(text * chance.choice((1, 10, 40, 150, 300, 2_500)) for text in texts))
            chosen.update(group)
            await store.put(HOME, group)
        for name in chance.sample(sorted(gone), 5):
            del gone[name]
            await store.delete(HOME, [name])
    assert await pieces.holds(b"gone-") is not pieces.is_encrypted
    assert await store.delete(HOME, gone) == len(gone)
    assert not await pieces.holds(b"gone-")
    assert await store.get(HOME, kept) == kept
    assert await pieces.holds(b"kept-") is not pieces.is_encrypted
    await store.delete(HOME, kept)
    assert not await pieces.holds(b"kept-")
