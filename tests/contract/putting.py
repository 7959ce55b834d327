"""A process that puts blobs, some to keep and some that it deletes again, until it is killed.

``python -m tests.contract.putting BACKEND ARGUMENTS HOME SEED`` prints the names of kept ones when their put has
returned. Those that are not kept begin with ``gone-``.
"""

import asyncio
import json
import random
import sys

from tests.contract import blob_stores
from tests.contract.test_segments import by_name

AT_ONCE = 2


async def put(backend: blob_stores.BlobBackend, namespace: str, seed: int) -> None:
    """Put groups of blobs of all sizes, some puts at once, until killed."""
    store, chance = backend.store(), random.Random(seed)

    def bodies(beginning: bytes, count: int) -> dict[str, bytes]:
        sizes = chance.choices((0, 10, 5_000, 20_000), k=count)
        return by_name(*(beginning + chance.randbytes(size) for size in sizes))

    async def putting() -> None:
        while True:
            retained_bodies, deleted_bodies = bodies(b"kept-", 15), bodies(b"gone-", 5)
            await store.put(namespace, retained_bodies | deleted_bodies)
            print(json.dumps(list(retained_bodies)), flush=True)
            await store.delete(namespace, deleted_bodies)

    await asyncio.gather(*(putting() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    name, arguments, namespace, seed = sys.argv[1:]
    asyncio.run(put(getattr(blob_stores, name)(*json.loads(arguments)), namespace, int(seed)))
