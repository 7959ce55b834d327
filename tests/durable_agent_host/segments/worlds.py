"""A world of sessions over a real piece store, in which everything that happens can be stopped between two accesses.

Sessions are in memory, as entities are: read and replaced at once. What acts on them are tasks that wait before every
access to a session or to the store, until the test lets one of them go on; so any order of accesses can be played.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

from durable_agent_host.codec.detached import at_home
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.sealed import Sealed
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.segments.cache import PieceCache
from durable_agent_host.segments.protocol import StoredPiece
from durable_agent_host.segments.record import Record
from durable_agent_host.segments.sqlite.store import SqliteSegmentStore
from durable_agent_host.segments.sweeping import CleanHomes, Keeps, Sweeper
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.sealing import SealedOutcome, emptied, seal_outcome

GRACE_SECONDS = 3600.0
WINDOW = ReceiptWindow(keep=200, now="2026-01-01T00:00:00+00:00")


def holder_named(name: str) -> str:
    """The holder that a session is."""
    return f"@dafx-agent@{name}"


class World:
    """Sessions, the store, and what acts on them.

    Args:
        path: of the store's file.

    Attributes:
        heads: the sessions by name.
        texts: what each session's conversation is to be.
    """

    def __init__(self, path: Path) -> None:
        self.store = SqliteSegmentStore(path)
        self.heads: dict[str, Session] = {}
        self.texts: dict[str, list[str]] = {}
        self._path = path
        self._ended: dict[str, SealedOutcome] = {}
        self._said: dict[str, list[str]] = {}
        self._waiting: list[tuple[asyncio.Task[None], asyncio.Future[None]]] = []
        self._kinds: dict[asyncio.Task[None], str] = {}
        self._turns = 0
        self._clean = CleanHomes()

    # --- what is played ----------------------------------------------------------------------

    async def start(self, kind: str, act: Awaitable[None]) -> None:
        """Begin something, up to its first access."""
        task = asyncio.ensure_future(act)
        self._kinds[task] = kind
        await self._settled(task)

    async def do(self, kind: str, act: Awaitable[None]) -> None:
        """Do something from its beginning to its end, while whatever else was begun stands still."""
        others = [task for task, _ in self._waiting]
        await self.start(kind, act)
        while (
            number := next((n for n, (task, _) in enumerate(self._waiting) if task not in others), None)
        ) is not None:
            await self.go_on(number)

    async def go_on(self, number: int) -> None:
        """Let one of those that wait do its next access, and wait until it waits again or has ended."""
        if self._waiting:
            number = number if number >= 0 else len(self._waiting) - 1
            task, gate = self._waiting.pop(number % len(self._waiting))
            gate.set_result(None)
            await self._settled(task)

    async def kill(self, number: int) -> None:
        """End one of those that wait, as a crash of its process does."""
        if self._waiting:
            task, _ = self._waiting.pop(number % len(self._waiting))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del self._kinds[task]

    @property
    def begun(self) -> int:
        """How many things wait for their next access."""
        return len(self._waiting)

    async def finish(self) -> None:
        """Let all go on to their ends, in turn."""
        while self._waiting:
            await self.go_on(0)

    async def pass_time(self) -> None:
        """Let more than the grace period pass: for turns, however far they are; nothing else takes so long."""
        if not {"fork", "sweep", "erase"} & {*self._kinds.values()}:
            await self.store.check()  # the first use creates the file
            with closing(sqlite3.connect(self._path)) as file, file:
                file.execute("UPDATE pieces SET put_at = put_at - ?", (2 * GRACE_SECONDS,))
                file.execute("UPDATE holders SET held_at = held_at - ?", (2 * GRACE_SECONDS,))

    async def _settled(self, task: asyncio.Task[None]) -> None:
        while not task.done() and all(waiting is not task for waiting, _ in self._waiting):
            await asyncio.sleep(0)
        if task.done():
            del self._kinds[task]
            task.result()

    async def _step(self) -> None:
        gate = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task is not None
        self._waiting.append((task, gate))
        await gate

    # --- what acts ---------------------------------------------------------------------------

    async def run_turn(self, name: str, size: int, *, fails: bool = False) -> None:
        """Run a turn: admit, seal, store, commit; or go on with the one whose process died."""
        await self._step()
        head = self.heads.get(name, Session())
        if head.erasing or f"turn of {name}" in self._others():
            return
        if head.running is None:
            self._turns += 1
            head = self.heads[name] = replace(head, running=f"turn-{self._turns}")
        turn = str(head.running)
        if turn not in self._ended:
            self._ended[turn] = await self._seal(name, head, turn, size)
        await self._step()
        outcome = self._ended.pop(turn)
        if fails:
            self.heads[name] = replace(self.heads[name], running=None)
            return
        self.heads[name], _ = commit_outcome(self.heads[name], outcome.outcome, window=WINDOW)
        self.texts[name] = [*self.texts.get(name, []), *self._said.pop(turn)]

    async def _seal(self, name: str, head: Session, turn: str, size: int) -> SealedOutcome:
        """Store what the turn's commit will name; from then on a later attempt returns the same without storing it."""
        self._said[turn] = [f"ask {turn}", f"answer of {turn} ".ljust(size, "x")]
        entries = tuple(
            _entry(kind, turn, text) for kind, text in zip(("request", "response"), self._said[turn], strict=True)
        )
        state = {"session_id": name, "state": {"kept": turn * (size // 10)}}
        outcome = TurnOutcome(turn, "completed", entries=entries, agent_session=state)
        sealed = seal_outcome(head, outcome, new_home=derived_id("home", name, turn), seen=50)
        store = Stepping(self.store, self._step)
        if sealed.pieces:
            await store.hold(sealed.home, holder_named(name))
            await store.put(sealed.home, sealed.pieces)
        return sealed

    async def fork(self, name: str, new: str) -> None:
        """Copy a head, and share its pieces."""
        await self._step()
        head = self.heads.get(name)
        if head is None or head.erasing or new in self.heads:
            return
        store = Stepping(self.store, self._step)
        texts = [*self.texts.get(name, [])]
        sealed = head.sealed
        entries = tuple(at_home(entry, sealed.home) if sealed.home else entry for entry in head.entries)
        for home in sealed.homes:
            await store.hold(home, holder_named(new))
        await self._step()
        now = self.heads.get(name)
        if now is None or now.erasing or new in self.heads or now.sealed.refs[: len(sealed.refs)] != sealed.refs:
            if new not in self.heads:
                for home in sealed.homes:
                    await store.release(home, holder_named(new))
            return
        await self._step()
        if new not in self.heads:
            self.texts[new] = texts
            self.heads[new] = Session(entries=entries, sealed=Sealed(homes=sealed.homes, refs=sealed.refs))

    async def erase(self, name: str) -> None:
        """Erase a session, or go on where an erasure was cut off."""
        await self._step()
        head = self.heads.get(name)
        if head is None or head.running:
            return
        self.heads[name] = replace(head, erasing="now")
        for home in head.sealed.homes:
            await self._sweeper().erase(home, holder_named(name))
        await self._step()
        if name in self.heads and self.heads[name].erasing:
            del self.heads[name]
            self.texts.pop(name, None)

    async def reset(self, name: str) -> None:
        """Clear a conversation."""
        await self._step()
        head = self.heads.get(name)
        if head is not None and not head.running and not head.erasing:
            self.heads[name] = replace(head, entries=(), sealed=emptied(head.sealed))
            self.texts[name] = []

    async def sweep(self) -> None:
        """Sweep all homes."""
        sweeper = self._sweeper()
        async for home in Stepping(self.store, self._step).homes():
            await sweeper.sweep(home, self._clean)

    def _sweeper(self) -> Sweeper:
        async def read(holder: str) -> Session | Keeps:
            await self._step()
            return self.heads.get(holder.rpartition("@")[2], Keeps.NOTHING)

        store: Any = Stepping(self.store, self._step)
        return Sweeper(store, read, grace_seconds=GRACE_SECONDS, unheld_seconds=GRACE_SECONDS)

    def _others(self) -> list[str]:
        return [kind for task, kind in self._kinds.items() if task is not asyncio.current_task()]

    # --- what is checked ---------------------------------------------------------------------

    async def read(self, name: str) -> list[str]:
        """Read a conversation from its head and the store alone."""
        head = self.heads[name]
        record = Record(lambda: self.store, head, cache=PieceCache())
        await record.agent_session()
        return [entry["messages"][0]["contents"][0]["text"] for entry in await record.entries()]

    async def stored(self) -> set[tuple[str, str]]:
        """All pieces that the store has."""
        return {(home, piece.name) async for home in self.store.homes() async for piece in self.store.pieces(home)}

    async def named(self) -> set[tuple[str, str]]:
        """All pieces that are needed to read the conversations: what reading them asks the store for."""
        asked: set[tuple[str, str]] = set()

        class Noting(SqliteSegmentStore):
            async def get(self, home: str, names: Collection[str]) -> dict[str, bytes]:
                asked.update((home, name) for name in names)
                return await super().get(home, names)

        store = Noting(self._path)
        for head in self.heads.values():
            record = Record(lambda: store, head, cache=PieceCache())
            await record.agent_session()
            await record.entries()
        await store.close()
        return asked

    async def close(self) -> None:
        """End what still waits, and close the store."""
        while self._waiting:
            await self.kill(0)
        await self.store.close()

    async def held(self) -> set[tuple[str, str]]:
        """All holders that the store has, with their homes."""
        return {(home, holder) async for home in self.store.homes() for holder in await self.store.holders(home)}


class Stepping:
    """The store, whose every access waits for its turn."""

    def __init__(self, store: SqliteSegmentStore, step: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._step = step

    async def put(self, home: str, pieces: Mapping[str, bytes]) -> None:
        """See the protocol."""
        await self._step()
        await self._store.put(home, pieces)

    async def get(self, home: str, names: Collection[str]) -> dict[str, bytes]:
        """See the protocol."""
        await self._step()
        return await self._store.get(home, names)

    async def pieces(self, home: str) -> AsyncIterator[StoredPiece]:
        """See the protocol."""
        await self._step()
        for piece in [piece async for piece in self._store.pieces(home)]:
            yield piece

    async def homes(self) -> AsyncIterator[str]:
        """See the protocol."""
        await self._step()
        for home in [home async for home in self._store.homes()]:
            yield home

    async def delete(self, home: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> int:
        """See the protocol."""
        await self._step()
        return await self._store.delete(home, names, older_than_seconds=older_than_seconds)

    async def hold(self, home: str, holder: str) -> None:
        """See the protocol."""
        await self._step()
        await self._store.hold(home, holder)

    async def release(self, home: str, holder: str, *, older_than_seconds: float = 0.0) -> None:
        """See the protocol."""
        await self._step()
        await self._store.release(home, holder, older_than_seconds=older_than_seconds)

    async def holders(self, home: str) -> dict[str, float]:
        """See the protocol."""
        await self._step()
        return await self._store.holders(home)


def _entry(kind: str, turn: str, text: str) -> dict[str, Any]:
    role = "user" if kind == "request" else "assistant"
    message = {"role": role, "contents": [{"$type": "text", "text": text}]}
    return {"$type": kind, "correlationId": turn, "createdAt": "2026-01-01T00:00:00Z", "messages": [message]}
