"""A process that puts pieces, and deletes old ones, until it is killed.

``python -m tests.contract.putting BACKEND ARGUMENTS HOME SEED`` prints the names of each put that has returned.
"""

import asyncio
import json
import random
import sys

from tests.contract import piece_stores
from tests.contract.test_segments import named

AT_ONCE = 2


async def put(backend: piece_stores.PieceBackend, home: str, seed: int) -> None:
    """Put groups of pieces of all sizes, some puts at once, until killed."""
    store, chance = backend.store(), random.Random(seed)

    async def putting() -> None:
        while True:
            group = named(*(chance.randbytes(chance.choice((0, 10, 5_000, 40_000, 400_000))) for _ in range(20)))
            await store.put(home, group)
            print(json.dumps(list(group)), flush=True)

    await asyncio.gather(*(putting() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    name, arguments, home, seed = sys.argv[1:]
    asyncio.run(put(getattr(piece_stores, name)(*json.loads(arguments)), home, int(seed)))
