"""Sweeps and erasures of pieces: nothing that is referred to goes, and nothing else stays."""

import asyncio
import contextlib
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from durable_agent_host.segments.sqlite_store import SqliteBlobStore
from tests import sweeps
from tests.contract.piece_stores import BlobPieces
from tests.durable_agent_host.segments.worlds import Aging, World, holder_named
from tests.kit_services import azurite

NAMES = st.sampled_from(["a", "b", "c"])
SIZES = st.sampled_from([10, 12_000, 20_000])
"""Of answers: small, such that two of them leave no room in the head, and such that each is a piece of its own."""

TURNS = st.tuples(st.just("turn"), NAMES, SIZES, st.sampled_from(["completes", "fails", "leaves a call open"]))
IMPORTS = st.tuples(st.just("import"), NAMES, SIZES)
REPAIRS = st.tuples(st.just("repair"), NAMES, NAMES)
FORKS = st.tuples(st.just("fork"), NAMES, NAMES, st.booleans())
ERASURES = st.tuples(st.just("erase"), NAMES)
RESETS = st.tuples(st.just("reset"), NAMES)
SWEEPS = st.tuples(st.just("sweep"))
ACTS = st.one_of(TURNS, FORKS, IMPORTS, REPAIRS, ERASURES, SWEEPS, SWEEPS)
ACTIONS = st.one_of(
    st.tuples(st.just("do"), st.one_of(TURNS, TURNS, FORKS, IMPORTS, REPAIRS, ERASURES, RESETS, SWEEPS)),
    st.tuples(st.just("begin"), ACTS, st.integers(0, 8)),
    st.tuples(st.just("go on"), st.integers(0, 3), st.integers(1, 8)),
    st.tuples(st.just("kill"), st.integers(0, 3)),
    st.tuples(st.just("time")),
)
TALK = st.lists(st.tuples(st.sampled_from(["a", "a", "b"]), SIZES), min_size=2, max_size=6)


@pytest.fixture(scope="module")
def azurite_port(tmp_path_factory) -> Iterator[int]:
    """An Azurite for all examples; each has a container of its own."""
    with azurite(tmp_path_factory.mktemp("azurite")) as port:
        yield port


def act_of(world: World, action: tuple) -> tuple[str, Coroutine[Any, Any, None]]:
    """What is done, and its kind."""
    match action:
        case ("turn", name, size, end):
            is_open = end == "leaves a call open"
            return f"turn of {name}", world.run_turn(name, size, fails=end == "fails", is_open=is_open)
        case ("import", name, size):
            return "import", world.import_session(name, size)
        case ("repair", name, keep_as):
            return "repair", world.repair(name, keep_as)
        case ("fork", name, new, is_part):
            return "fork", world.fork(name, new, is_part=is_part)
        case ("erase", name):
            return "erase", world.erase(name)
        case ("reset", name):
            return "reset", world.reset(name)
        case _:
            return "sweep", world.sweep()


async def play(world: World, action: tuple) -> None:
    """Do one thing in the world."""
    match action:
        case ("do", nested_action):
            await world.do(*act_of(world, nested_action))
        case ("begin", nested_action, steps):
            await world.start(*act_of(world, nested_action))
            for _ in range(steps):
                await world.go_on(-1)
        case ("go on", number, times):
            for _ in range(times):
                await world.go_on(number)
        case ("kill", number):
            await world.kill(number)
        case _:
            await world.pass_time()


async def check_conversations(world: World) -> None:
    """Every session that is there can be read whole, and says what was said in it."""
    for name, head in world.heads.items():
        if not head.erasing:
            assert await world.read(name) == world.texts.get(name, [])


async def come_to_rest(world: World) -> None:
    """Finish what was begun, as hosts do: turns whose process died, and erasures."""
    await world.finish()
    for name, head in [*world.heads.items()]:
        if head.running:
            await world.do(f"turn of {name}", world.run_turn(name, 10))
        elif head.erasing:
            await world.do("erase", world.erase(name))


@contextlib.asynccontextmanager
async def world_of(*talk: tuple) -> AsyncIterator[World]:
    """A world in which there has been some talk already."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "segments.sqlite")
        store = SqliteBlobStore(path)

        async def age(seconds: float) -> None:
            await store.check()  # the first use creates the file
            with contextlib.closing(sqlite3.connect(path)) as file, file:
                file.execute("UPDATE pieces SET put_at = put_at - ?", (seconds,))
                file.execute("UPDATE holders SET held_at = held_at - ?", (seconds,))

        async with talking(World(store, age), talk) as world:
            yield world


@contextlib.asynccontextmanager
async def talking(world: World, talk: Iterable[tuple]) -> AsyncIterator[World]:
    """Let some talk be in a world, and close it at the end."""
    try:
        for name, size, *end in talk:
            await world.do(*act_of(world, ("turn", name, size, *(end or ["completes"]))))
        yield world
    finally:
        await world.close()
        await world.store.close()


async def check_rest(world: World) -> None:
    """When all is at rest, two sweeps at once leave what is needed to read the conversations, and nothing else."""
    await come_to_rest(world)
    await check_conversations(world)
    await world.pass_time()
    await world.start("sweep", world.sweep())
    await world.start("sweep", world.sweep())
    await world.finish()
    await check_conversations(world)
    assert await world.read_stored_blobs() == await world.read_referenced_blobs()
    holds = {
        (namespace, holder_named(name)) for name, head in world.heads.items() for namespace in head.sealed.namespaces
    }
    assert await world.read_holds() == holds


async def play_all(world: World, actions: Iterable[tuple]) -> None:
    """Play actions; nothing that is referred to goes at any time, and nothing else is left at the end."""
    for action in actions:
        await play(world, action)
        await check_conversations(world)
    await check_rest(world)


PLAYED = st.lists(ACTIONS, max_size=15)


@given(TALK, PLAYED)
@settings(max_examples=sweeps.count("EXAMPLES", short=20, long=1000))
def test_no_interleaving_sweeps_what_is_referred_to_and_none_leaves_anything_else(talk, actions):
    """Turns, forks, imports, repairs, resets, erasures, crashes and sweeps, in any order of their accesses."""

    async def example() -> None:
        async with world_of(*talk) as world:
            await play_all(world, actions)

    asyncio.run(example())


@given(TALK, PLAYED)
@settings(max_examples=sweeps.count("EXAMPLES", short=3, long=100))
def test_the_same_in_blobs(azurite_port, talk, actions):
    """A store that answers over HTTP, deletes one by one, and lists holders beside pieces."""

    async def example() -> None:
        store = Aging(BlobPieces(azurite_port).make())
        async with talking(World(store, store.age), talk) as world:
            await play_all(world, actions)

    asyncio.run(example())


LONG = [("a", 20_000), ("a", 12_000, "leaves a call open"), ("a", 20_000), ("a", 12_000), ("a", 12_000)]
"""Contents of their own in the head and in segments."""


async def accesses(world: World, action: tuple) -> int:
    """Count the accesses of something that is done now."""
    await world.start(*act_of(world, action))
    count = 0
    while world.waiting_count:
        await world.go_on(-1)
        count += 1
    return count


async def interleave(world: World, first: tuple, steps: int, second: tuple, *, passes_time: bool = False) -> None:
    """Begin something, do something else in the middle of it, and finish the first."""
    await world.start(*act_of(world, first))
    for _ in range(steps):
        await world.go_on(0)
    if passes_time:
        await world.pass_time()
    await world.do(*act_of(world, second))
    await check_conversations(world)
    await world.finish()
    await check_conversations(world)


TURN, FORK, IMPORT, REPAIR, ERASE, RESET, SWEEP = (
    ("turn", "a", 20_000, "completes"),
    ("fork", "a", "b", False),
    ("import", "b", 20_000),
    ("repair", "a", "b"),
    ("erase", "a"),
    ("reset", "a"),
    ("sweep",),
)


@pytest.mark.drawn(6)
@pytest.mark.parametrize(
    ("first", "second"),
    [
        (TURN, SWEEP),
        (("turn", "b", 20_000, "completes"), SWEEP),
        (FORK, SWEEP),
        (("fork", "a", "b", True), SWEEP),
        (FORK, ERASE),
        (FORK, RESET),
        (SWEEP, TURN),
        (SWEEP, FORK),
        (SWEEP, ERASE),
        (ERASE, FORK),
        (ERASE, SWEEP),
        (ERASE, ERASE),
        (IMPORT, SWEEP),
        (REPAIR, SWEEP),
        (REPAIR, ERASE),
        (SWEEP, REPAIR),
    ],
    ids=lambda action: "-".join(map(str, action[:2])),
)
def test_one_thing_in_the_middle_of_another(first, second):
    """At each of its accesses; nothing that is referred to goes, and at rest nothing else is there."""

    async def example() -> None:
        async with world_of(*LONG) as world:
            count = await accesses(world, first)
        for steps in range(count + 1):
            async with world_of(*LONG) as world:
                await world.pass_time()
                await interleave(world, first, steps, second, passes_time=first[0] == "turn")
                await check_rest(world)

    asyncio.run(example())
