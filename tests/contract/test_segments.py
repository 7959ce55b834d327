"""What a store of blobs promises, of every store."""

import asyncio
import hashlib
import random
import time

import pytest

from durable_agent_host.errors import CorruptStateError
from durable_agent_host.segments.protocol import BlobStore
from tests.contract.blob_stores import BlobBackend, BlobBlobs
from tests.contract.traces import loses

NAMESPACE, OTHER_NAMESPACE = "a" * 32, "b" * 32
NAME = "ab" * 8
"""Promises no bytes."""
OLD_SECONDS = 2.0
"""An age that tests wait for."""


def by_name(*bodies: bytes) -> dict[str, bytes]:
    """Name blobs by their bytes."""
    return {hashlib.sha256(body).hexdigest(): body for body in bodies}


def some(count: int, *, size: int = 200, seed: int = 1) -> dict[str, bytes]:
    """Draw blobs of one size."""
    chance = random.Random(seed)
    return by_name(*(chance.randbytes(size) for _ in range(count)))


async def list_blobs(store: BlobStore, namespace: str = NAMESPACE) -> dict[str, int]:
    """The sizes of a namespace's blobs by name."""
    return {blob.name: blob.size async for blob in store.list_blobs(namespace)}


async def list_namespaces(store: BlobStore) -> list[str]:
    """All namespaces, sorted."""
    return sorted([namespace async for namespace in store.list_namespaces()])


async def grow_old(backend: BlobBackend) -> None:
    """Wait until what is stored is `OLD_SECONDS` old; blob storage counts whole seconds."""
    await asyncio.sleep(OLD_SECONDS + (1.1 if isinstance(backend, BlobBlobs) else 0.05))


def is_young(started_at: float) -> bool:
    """Tell whether what was stored since a moment is young by every store's clock; a busy machine may take too long."""
    return time.monotonic() - started_at < OLD_SECONDS - 1


async def test_what_is_put_is_got(blobs):
    """Blobs of all sizes come back byte for byte, in this object and in another one, in any order of names."""
    chance = random.Random(2)
    sizes = (0, 1, 488, 489, 490, 3_600, 4_085, 4_092, 4_096, 8_184, 8_300, 20_000, 300_000)
    expected_blobs = by_name(*(chance.randbytes(size) for size in sizes))
    store = blobs.store()
    await store.put(NAMESPACE, expected_blobs)
    for reader in (store, blobs.store()):
        assert await reader.get(NAMESPACE, sorted(expected_blobs) * 2) == expected_blobs
        assert await list_blobs(reader) == {name: len(body) for name, body in expected_blobs.items()}
    assert await store.get(NAMESPACE, []) == {}
    await store.put(NAMESPACE, {})


async def test_putting_again_changes_nothing(blobs):
    """A blob that is put again, here and at once elsewhere, is there once; a namespace does not see another's."""
    expected_blobs = by_name(b"one", b"two" * 10_000)
    stores = [blobs.store() for _ in range(4)]
    await asyncio.gather(*(store.put(NAMESPACE, expected_blobs) for store in stores * 2))
    await stores[0].put(NAMESPACE, expected_blobs)
    assert await stores[1].get(NAMESPACE, expected_blobs) == expected_blobs
    assert len(await list_blobs(stores[2])) == len(expected_blobs)
    assert await list_blobs(stores[3], OTHER_NAMESPACE) == {}


async def test_the_first_of_a_name_stays(blobs):
    """Of several contents under a name that promises none, put at once or later, everybody gets the same one."""
    stores = [blobs.store() for _ in range(4)]
    await asyncio.gather(*(store.put(NAMESPACE, {NAME: bytes([n]) * 32}) for n, store in enumerate(stores)))
    first = await stores[0].get(NAMESPACE, [NAME])
    await stores[1].put(NAMESPACE, {NAME: b"later"})
    assert [await store.get(NAMESPACE, [NAME]) for store in stores] == [first] * 4


async def test_parts_of_a_blob_are_read(blobs):
    """Any part comes back, shorter at the end and empty behind it; who asks for a missing blob gets its name."""
    store, (body,) = blobs.store(), (random.Random(3).randbytes(500_000),)
    (name,), (missing_name,) = by_name(body), by_name(b"gone")
    await store.put(NAMESPACE, by_name(body))
    for start, size in ((0, 10), (0, 500_000), (199_999, 100_001), (499_990, 100), (500_000, 10)):
        assert await store.read(NAMESPACE, name, start, size) == body[start : start + size]
    with pytest.raises(CorruptStateError, match=missing_name):
        await store.read(NAMESPACE, missing_name, 0, 10)


async def test_a_missing_blob_is_named(blobs):
    """Who asks for a blob that is not there gets an error with its name and what to do; others are still got."""
    store = blobs.store()
    expected_blobs, (missing_name,) = some(3), by_name(b"gone")
    await store.put(NAMESPACE, expected_blobs)
    with pytest.raises(CorruptStateError, match=rf"{missing_name} of {NAMESPACE} is not in .*restore"):
        await store.get(NAMESPACE, [*expected_blobs, missing_name])
    with pytest.raises(CorruptStateError, match=rf"of {OTHER_NAMESPACE} is not in"):
        await store.get(OTHER_NAMESPACE, expected_blobs)
    assert await store.get(NAMESPACE, expected_blobs) == expected_blobs


@pytest.mark.parametrize("size", [30, 60_000])
async def test_a_changed_blob_is_found(blobs, size):
    """A blob with one byte changed is an error that names it, and the blobs beside it are still got."""
    store = blobs.store()
    expected_blobs = some(4, size=size)
    await store.put(NAMESPACE, expected_blobs)
    changed_blob, *sound = expected_blobs
    await blobs.flip(NAMESPACE, changed_blob)
    with pytest.raises(
        CorruptStateError,
        match=rf"{changed_blob} of {NAMESPACE} .* has other bytes.*restore|{changed_blob} of {NAMESPACE} has",
    ):
        await blobs.store().get(NAMESPACE, expected_blobs)
    assert await store.get(NAMESPACE, sound) == {name: expected_blobs[name] for name in sound}


async def test_each_namespace_is_returned_once(blobs):
    """A namespace with blobs is listed once, and is gone with the last of them."""
    store = blobs.store()
    assert await list_namespaces(store) == []
    expected_blobs = some(3)
    await store.check()
    await store.put(NAMESPACE, expected_blobs)
    await store.put(OTHER_NAMESPACE, {NAME: b""})
    assert await list_namespaces(blobs.store()) == [NAMESPACE, OTHER_NAMESPACE]
    await store.delete(OTHER_NAMESPACE, [NAME])
    await store.delete(NAMESPACE, expected_blobs)
    assert await list_namespaces(store) == []


async def test_deleted_blobs_are_not_found(blobs):
    """Deleting ignores what is not there, and leaves the others."""
    store = blobs.store()
    expected_blobs = some(10)
    first_name, *remaining_names = expected_blobs
    await store.put(NAMESPACE, expected_blobs)
    await store.put(OTHER_NAMESPACE, expected_blobs)
    await store.delete(NAMESPACE, [first_name, *by_name(b"never stored")])
    await store.delete(NAMESPACE, [first_name])
    assert set(await list_blobs(store)) == set(remaining_names)
    assert await blobs.store().get(OTHER_NAMESPACE, expected_blobs) == expected_blobs
    await store.put(NAMESPACE, {first_name: expected_blobs[first_name]})
    assert await store.get(NAMESPACE, expected_blobs) == expected_blobs


@pytest.mark.drawn(1)
async def test_what_was_put_later_stays(blobs):
    """Deleting by age spares what was put, or put again, within that time."""
    store = blobs.store()
    old, again, new = some(6, seed=3), some(4, size=9_000, seed=4), some(2, seed=5)
    in_time = False
    while not in_time:
        await store.put(NAMESPACE, old | again)
        await grow_old(blobs)
        started_at = time.monotonic()
        await blobs.store().put(NAMESPACE, again | new)
        ages = {blob.name: blob.age_seconds async for blob in store.list_blobs(NAMESPACE)}
        await store.delete(NAMESPACE, ages, older_than_seconds=OLD_SECONDS)
        in_time = is_young(started_at)
    assert all(ages[name] >= OLD_SECONDS for name in old)
    assert not any(ages[name] >= OLD_SECONDS for name in again | new)
    assert set(await list_blobs(store)) == (again | new).keys()
    assert await store.get(NAMESPACE, again | new) == again | new
    await store.delete(NAMESPACE, ages, older_than_seconds=1000)
    assert set(await list_blobs(store)) == (again | new).keys()
    await store.delete(NAMESPACE, ages)
    assert await list_blobs(store) == {}


async def test_every_loop_may_call(blobs):
    """One object serves several loops in several threads at once."""
    store = blobs.store()

    async def use(seed: int) -> None:
        expected_blobs = some(5, seed=seed)
        for _ in range(3):
            await store.put(NAMESPACE, expected_blobs)
            assert await store.get(NAMESPACE, expected_blobs) == expected_blobs

    other_loops = [asyncio.to_thread(asyncio.run, use(seed)) for seed in range(4)]
    await asyncio.gather(use(10), *other_loops)


async def test_many_delete_and_put_at_once(blobs):
    """Whatever the order of puts and deletes, a blob is there whole or not at all, and the last put is there."""
    expected_blobs = some(6, size=9_000)
    stores = [blobs.store() for _ in range(4)]

    async def change(store: BlobStore, seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(10):
            chosen = {name: expected_blobs[name] for name in chance.sample(sorted(expected_blobs), 3)}
            if chance.random() < 0.5:
                await store.put(NAMESPACE, chosen)
            else:
                await store.delete(NAMESPACE, chosen)

    await asyncio.gather(*(change(store, seed) for seed, store in enumerate(stores)))
    there = await list_blobs(stores[0])
    assert await stores[1].get(NAMESPACE, there) == {name: expected_blobs[name] for name in there}
    await stores[2].put(NAMESPACE, expected_blobs)
    assert await stores[3].get(NAMESPACE, expected_blobs) == expected_blobs


@pytest.mark.drawn(1)
@pytest.mark.parametrize("blobs", ["sqlite", "blob"], indirect=True)
async def test_many_blobs(blobs):
    """A namespace of thousands of blobs is listed, read and deleted."""
    store, count = blobs.store(), 10_000 if not isinstance(blobs, BlobBlobs) else 120
    expected_blobs = some(count, size=50)
    await store.put(NAMESPACE, expected_blobs)
    assert set(await list_blobs(store)) == set(expected_blobs)
    assert await store.get(NAMESPACE, expected_blobs) == expected_blobs
    await store.delete(NAMESPACE, expected_blobs)
    assert await list_blobs(store) == {}


@pytest.mark.drawn(1)
@pytest.mark.parametrize("blobs", ["sqlite", "blob"], indirect=True)
async def test_a_large_blob(blobs):
    """A blob of 100 MB, or of many blocks, is stored, read, put again and deleted, while small ones pass."""
    size = 20_000_000 if isinstance(blobs, BlobBlobs) else 100_000_000
    large, small = by_name(random.Random(9).randbytes(size)), some(5)
    store = blobs.store()
    putting = asyncio.create_task(store.put(NAMESPACE, large))
    await store.put(NAMESPACE, small)
    await putting
    await store.put(NAMESPACE, large)
    assert await store.get(NAMESPACE, [*large, *small]) == large | small
    await store.delete(NAMESPACE, large)
    assert set(await list_blobs(store)) == small.keys()
    assert await store.get(NAMESPACE, small) == small


async def test_nothing_of_a_deleted_blob_is_left(blobs):
    """When deleting returns, nothing of the blobs' bytes is in any file or blob; those that stay are there."""
    store, chance = blobs.store(), random.Random(7)
    retained_blobs: dict[str, bytes] = {}
    deleted_blobs: dict[str, bytes] = {}
    for number in range(3 if isinstance(blobs, BlobBlobs) else 30):
        for word, chosen in (("kept", retained_blobs), ("gone", deleted_blobs)):
            texts = (f"{word}-{number}-{line_number} ".encode() for line_number in range(15))
            group = by_name(*(text * chance.choice((1, 10, 40, 150, 300, 2_500)) for text in texts))
            chosen.update(group)
            await store.put(NAMESPACE, group)
        for name in chance.sample(sorted(deleted_blobs), 5):
            del deleted_blobs[name]
            await store.delete(NAMESPACE, [name])
    assert await blobs.holds(b"gone-") is not blobs.is_encrypted
    await store.delete(NAMESPACE, deleted_blobs)
    assert await loses(blobs, b"gone-")
    assert await store.get(NAMESPACE, retained_blobs) == retained_blobs
    assert await blobs.holds(b"kept-") is not blobs.is_encrypted
    await store.delete(NAMESPACE, retained_blobs)
    assert await loses(blobs, b"kept-")
