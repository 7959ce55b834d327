"""A world of sessions over a real piece store, in which everything that happens can be stopped between two accesses.

Sessions are in memory, as entities are: read and replaced at once. What acts on them are tasks that wait before every
access to a session or to the store, until the test lets one of them go on; so any order of accesses can be played.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from durable_agent_host.codec.entity_state import decode_session
from durable_agent_host.errors import CorruptStateError
from durable_agent_host.model.ids import derived_id
from durable_agent_host.model.session import Session
from durable_agent_host.model.turn import TurnOutcome
from durable_agent_host.segments.blob_cache import BlobCache
from durable_agent_host.segments.conversation_fork import keep_original, make_fork
from durable_agent_host.segments.conversation_import import read_document
from durable_agent_host.segments.conversation_reader import ConversationReader
from durable_agent_host.segments.conversation_repair import repair_record
from durable_agent_host.segments.conversation_writer import ConversationWriter
from durable_agent_host.segments.garbage_collection import CleanNamespaces, GarbageCollector, RetainedNamespace
from durable_agent_host.segments.protocol import BlobStore, StoredBlob
from durable_agent_host.session.admission import ReceiptWindow, commit_outcome
from durable_agent_host.session.sealing import SealedOutcome, clear_segments, seal_outcome

GRACE_SECONDS = 3600.0
WINDOW = ReceiptWindow(keep=200, now="2026-01-01T00:00:00+00:00")


def holder_named(name: str) -> str:
    """The holder that a session is."""
    return f"@dafx-agent@{name}"


class World:
    """Sessions, the store, and what acts on them.

    Args:
        store: of the pieces.
        age: makes all that is stored older by some seconds.

    Attributes:
        heads: the sessions by name.
        texts: what each session's conversation is to be.
    """

    def __init__(self, store: BlobStore, age: Callable[[float], Awaitable[None]]) -> None:
        self.store = store
        self.heads: dict[str, Session] = {}
        self.texts: dict[str, list[str]] = {}
        self._age = age
        self._outcomes: dict[str, SealedOutcome] = {}
        self._texts_by_turn: dict[str, list[str]] = {}
        self._paused: list[tuple[asyncio.Task[None], asyncio.Future[None]]] = []
        self._kinds: dict[asyncio.Task[None], str] = {}
        self._changed = asyncio.Event()
        self._turns = 0
        self._clean = CleanNamespaces()

    # --- what is played ----------------------------------------------------------------------

    async def start(self, kind: str, act: Awaitable[None]) -> None:
        """Begin something, up to its first access."""
        task = asyncio.ensure_future(act)
        task.add_done_callback(lambda _: self._changed.set())
        self._kinds[task] = kind
        await self._wait_for_step(task)

    async def do(self, kind: str, act: Awaitable[None]) -> None:
        """Do something from its beginning to its end, while whatever else was begun stands still."""
        earlier_tasks = [task for task, _ in self._paused]
        await self.start(kind, act)
        while (
            number := next((n for n, (task, _) in enumerate(self._paused) if task not in earlier_tasks), None)
        ) is not None:
            await self.go_on(number)

    async def go_on(self, number: int) -> None:
        """Let one of those that wait do its next access, and wait until it waits again or has ended."""
        if self._paused:
            number = number if number >= 0 else len(self._paused) - 1
            task, gate = self._paused.pop(number % len(self._paused))
            gate.set_result(None)
            await self._wait_for_step(task)

    async def kill(self, number: int) -> None:
        """End one of those that wait, as a crash of its process does."""
        if self._paused:
            task, _ = self._paused.pop(number % len(self._paused))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            del self._kinds[task]

    @property
    def waiting_count(self) -> int:
        """How many things wait for their next access."""
        return len(self._paused)

    async def finish(self) -> None:
        """Let all go on to their ends, in turn."""
        while self._paused:
            await self.go_on(0)

    async def pass_time(self) -> None:
        """Let more than the grace period pass: for turns, however far they are; nothing else takes so long."""
        if not {"fork", "import", "repair", "sweep", "erase"} & {*self._kinds.values()}:
            await self._age(2 * GRACE_SECONDS)

    async def _wait_for_step(self, task: asyncio.Task[None]) -> None:
        while not task.done() and all(paused_task is not task for paused_task, _ in self._paused):
            self._changed.clear()
            await self._changed.wait()
        if task.done():
            del self._kinds[task]
            task.result()

    async def _step(self) -> None:
        gate = asyncio.get_running_loop().create_future()
        task = asyncio.current_task()
        assert task is not None
        self._paused.append((task, gate))
        self._changed.set()
        await gate

    # --- what acts ---------------------------------------------------------------------------

    async def run_turn(self, name: str, size: int, *, fails: bool = False, is_open: bool = False) -> None:
        """Run a turn: admit, seal, store, commit; or go on with the one whose process died.

        Args:
            name: of the session.
            size: of the answer.
            fails: nothing is committed.
            is_open: the answer has a call without a result, which a repair mends.
        """
        await self._step()
        head = self.heads.get(name, Session())
        if head.erasing or f"turn of {name}" in self._other_kinds():
            return
        if head.running is None:
            self._turns += 1
            head = self.heads[name] = replace(head, running=f"turn-{self._turns}")
        turn = str(head.running)
        if turn not in self._outcomes:
            self._outcomes[turn] = await self._seal(name, head, turn, size, is_open=is_open)
        await self._step()
        outcome = self._outcomes.pop(turn)
        if fails:
            self.heads[name] = replace(self.heads[name], running=None)
            return
        self.heads[name], _ = commit_outcome(self.heads[name], outcome.outcome, window=WINDOW)
        self.texts[name] = [*self.texts.get(name, []), *self._texts_by_turn.pop(turn)]

    async def _seal(self, name: str, head: Session, turn: str, size: int, *, is_open: bool) -> SealedOutcome:
        """Store what the turn's commit will name; from then on a later attempt returns the same without storing it."""
        self._texts_by_turn[turn] = [f"ask {turn}", f"answer of {turn} ".ljust(size, "x")]
        entries = tuple(_turn(turn, self._texts_by_turn[turn], is_open=is_open))
        state = {"session_id": name, "state": {"kept": turn * (size // 10)}}
        outcome = TurnOutcome(turn, "completed", entries=entries, agent_session=state)
        sealed_outcome = seal_outcome(head, outcome, new_namespace=derived_id("home", name, turn), seen=50)
        store = Stepping(self.store, self._step)
        if sealed_outcome.pieces:
            await store.hold(sealed_outcome.namespace, holder_named(name))
            await store.put(sealed_outcome.namespace, sealed_outcome.pieces)
        return sealed_outcome

    async def fork(self, name: str, new: str, *, is_part: bool = False) -> None:
        """Copy a head, and share its pieces; of a part, those up to a turn in the middle."""
        await self._step()
        head = self.heads.get(name)
        if head is None or head.erasing:
            return
        store: Any = Stepping(self.store, self._step)
        texts, at_turn = [*self.texts.get(name, [])], None
        if is_part and texts:
            middle = len(texts) // 4 * 2
            at_turn = texts[middle].removeprefix("ask ")
            texts = texts[: middle + 2]
        try:
            fork = await make_fork(ConversationReader(lambda: store, head, cache=BlobCache(0)), new, at_turn=at_turn)
        except CorruptStateError:
            assert self.heads.get(name) != head  # it was erased or reset meanwhile
            return
        await fork.hold(lambda: store, holder_named(new))
        await self._step()
        now = self.heads.get(name)
        if now is None or now.erasing or now.sealed.refs != head.sealed.refs:
            if new not in self.heads:
                await fork.release(lambda: store, holder_named(new))
            return
        await self._step()
        if new not in self.heads:
            self.heads[new], self.texts[new] = fork.session, texts

    async def import_session(self, name: str, size: int) -> None:
        """Store a document of some turns as a new session; the head goes last."""
        await self._step()
        if name in self.heads:
            return
        self._turns += 1
        turns = [f"import-{self._turns}-{number}" for number in range(6)]
        texts_by_turn = {turn: [f"ask {turn}", f"answer of {turn} ".ljust(size, "x")] for turn in turns}
        history = [
            entry for turn, texts in texts_by_turn.items() for entry in _turn(turn, texts, is_open=turn == turns[0])
        ]
        document = json.dumps({"schemaVersion": "1.1.0", "data": {"conversationHistory": history}}).encode()
        store: Any = Stepping(self.store, self._step)
        namespace, holder = derived_id("home of import", str(self._turns)), holder_named(name)
        writer = ConversationWriter(lambda: store, namespace, holder=holder, seen=50, grace_seconds=GRACE_SECONDS)
        import_result = await read_document(_at_once(document), writer, max_bytes=len(document))
        await self._step()
        if name not in self.heads:
            self.heads[name] = decode_session(import_result.document)
            self.texts[name] = [text for texts in texts_by_turn.values() for text in texts]

    async def repair(self, name: str, keep_as: str) -> None:
        """Give each call its result, and keep the original as another session."""
        await self._step()
        head = self.heads.get(name)
        if head is None or head.erasing:
            return
        store: Any = Stepping(self.store, self._step)
        texts = [*self.texts.get(name, [])]
        record = ConversationReader(lambda: store, head, cache=BlobCache(0))
        repaired_fork, changes = await repair_record(record)
        if not changes or head.running:
            return
        original = await keep_original(record)
        await original.hold(lambda: store, holder_named(keep_as))
        await self._step()
        if self.heads.get(name) != head:
            if keep_as not in self.heads:
                await original.release(lambda: store, holder_named(keep_as))
            return
        await self._step()
        if keep_as in self.heads:
            return
        self.heads[keep_as], self.texts[keep_as] = original.session, texts
        await repaired_fork.hold(lambda: store, holder_named(name))
        await self._step()
        if self.heads.get(name) == head:
            self.heads[name] = repaired_fork.session

    async def erase(self, name: str) -> None:
        """Erase a session, or go on where an erasure was cut off."""
        await self._step()
        head = self.heads.get(name)
        if head is None or head.running:
            return
        self.heads[name] = replace(head, erasing="now")
        for namespace in head.sealed.namespaces:
            await self._sweeper().erase(namespace, holder_named(name))
        await self._step()
        if name in self.heads and self.heads[name].erasing:
            del self.heads[name]
            self.texts.pop(name, None)

    async def reset(self, name: str) -> None:
        """Clear a conversation."""
        await self._step()
        head = self.heads.get(name)
        if head is not None and not head.running and not head.erasing:
            self.heads[name] = replace(head, entries=(), sealed=clear_segments(head.sealed))
            self.texts[name] = []

    async def sweep(self) -> None:
        """Sweep all homes."""
        sweeper = self._sweeper()
        async for namespace in Stepping(self.store, self._step).list_namespaces():
            await sweeper.sweep(namespace, self._clean)

    def _sweeper(self) -> GarbageCollector:
        async def read(holder: str) -> Session | RetainedNamespace:
            await self._step()
            return self.heads.get(holder.rpartition("@")[2], RetainedNamespace.NOTHING)

        store: Any = Stepping(self.store, self._step)
        return GarbageCollector(store, read, grace_seconds=GRACE_SECONDS, unheld_seconds=GRACE_SECONDS)

    def _other_kinds(self) -> list[str]:
        return [kind for task, kind in self._kinds.items() if task is not asyncio.current_task()]

    # --- what is checked ---------------------------------------------------------------------

    async def read(self, name: str) -> list[str]:
        """Read a conversation from its head and the store alone."""
        head = self.heads[name]
        record = ConversationReader(lambda: self.store, head, cache=BlobCache())
        await record.agent_session()
        return [entry["messages"][0]["contents"][0]["text"] for entry in await record.entries()]

    async def read_stored_blobs(self) -> set[tuple[str, str]]:
        """All pieces that the store has."""
        return {
            (namespace, piece.name)
            async for namespace in self.store.list_namespaces()
            async for piece in self.store.list_blobs(namespace)
        }

    async def read_referenced_blobs(self) -> set[tuple[str, str]]:
        """All pieces that are needed to read the conversations: what reading them asks the store for."""
        requested: set[tuple[str, str]] = set()

        store: Any = _Noting(self.store, requested)
        for head in self.heads.values():
            record = ConversationReader(lambda: store, head, cache=BlobCache())
            await record.namespaces()
            await record.agent_session()
            await record.entries()
        return requested

    async def close(self) -> None:
        """End what still waits, and close the store."""
        while self._paused:
            await self.kill(0)

    async def read_holds(self) -> set[tuple[str, str]]:
        """All holders that the store has, with their homes."""
        return {
            (namespace, holder)
            async for namespace in self.store.list_namespaces()
            for holder in await self.store.holders(namespace)
        }


class Stepping:
    """The store, whose every access waits for its turn."""

    def __init__(self, store: BlobStore, step: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._step = step

    async def put(self, namespace: str, pieces: Mapping[str, bytes]) -> None:
        """See the protocol."""
        await self._step()
        await self._store.put(namespace, pieces)

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """See the protocol."""
        await self._step()
        return await self._store.get(namespace, names)

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """See the protocol."""
        await self._step()
        return await self._store.read(namespace, name, start, size)

    async def list_blobs(self, namespace: str) -> AsyncIterator[StoredBlob]:
        """See the protocol."""
        await self._step()
        for piece in [piece async for piece in self._store.list_blobs(namespace)]:
            yield piece

    async def list_namespaces(self) -> AsyncIterator[str]:
        """See the protocol."""
        await self._step()
        for namespace in [namespace async for namespace in self._store.list_namespaces()]:
            yield namespace

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> int:
        """See the protocol."""
        await self._step()
        return await self._store.delete(namespace, names, older_than_seconds=older_than_seconds)

    async def hold(self, namespace: str, holder: str) -> None:
        """See the protocol."""
        await self._step()
        await self._store.hold(namespace, holder)

    async def release(self, namespace: str, holder: str, *, older_than_seconds: float = 0.0) -> None:
        """See the protocol."""
        await self._step()
        await self._store.release(namespace, holder, older_than_seconds=older_than_seconds)

    async def holders(self, namespace: str) -> dict[str, float]:
        """See the protocol."""
        await self._step()
        return await self._store.holders(namespace)


class Aging:
    """A store whose things can be made older, where a test cannot change the clock: they count as younger before.

    Args:
        store: nobody else uses it.
    """

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self._now = 0.0
        self._put_at: dict[tuple[str, str], float] = {}
        self._hold_times: dict[tuple[str, str], float] = {}

    async def age(self, seconds: float) -> None:
        """Make all that is stored older."""
        self._now += seconds

    async def put(self, namespace: str, pieces: Mapping[str, bytes]) -> None:
        """See the protocol."""
        await self._store.put(namespace, pieces)
        self._put_at |= {(namespace, name): self._now for name in pieces}

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """See the protocol."""
        return await self._store.get(namespace, names)

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """See the protocol."""
        return await self._store.read(namespace, name, start, size)

    async def list_blobs(self, namespace: str) -> AsyncIterator[StoredBlob]:
        """See the protocol."""
        async for piece in self._store.list_blobs(namespace):
            yield replace(piece, age_seconds=piece.age_seconds + self._now - self._put_at[namespace, piece.name])

    async def list_namespaces(self) -> AsyncIterator[str]:
        """See the protocol."""
        async for namespace in self._store.list_namespaces():
            yield namespace

    async def delete(self, namespace: str, names: Collection[str], *, older_than_seconds: float = 0.0) -> int:
        """See the protocol."""
        old = {piece.name async for piece in self.list_blobs(namespace) if piece.age_seconds >= older_than_seconds}
        return await self._store.delete(namespace, old & {*names})

    async def hold(self, namespace: str, holder: str) -> None:
        """See the protocol."""
        await self._store.hold(namespace, holder)
        self._hold_times[namespace, holder] = self._now

    async def release(self, namespace: str, holder: str, *, older_than_seconds: float = 0.0) -> None:
        """See the protocol."""
        if (await self.holders(namespace)).get(holder, 0.0) >= older_than_seconds:
            await self._store.release(namespace, holder)

    async def holders(self, namespace: str) -> dict[str, float]:
        """See the protocol."""
        found = await self._store.holders(namespace)
        return {holder: age + self._now - self._hold_times[namespace, holder] for holder, age in found.items()}

    async def check(self) -> None:
        """See the protocol."""
        await self._store.check()

    async def close(self) -> None:
        """See the protocol."""
        await self._store.close()


class _Noting:
    """The store, of which only is read; notes what."""

    def __init__(self, store: BlobStore, requested: set[tuple[str, str]]) -> None:
        self._store = store
        self._requested = requested

    async def get(self, namespace: str, names: Collection[str]) -> dict[str, bytes]:
        """See the protocol."""
        self._requested.update((namespace, name) for name in names)
        return await self._store.get(namespace, names)

    async def read(self, namespace: str, name: str, start: int, size: int) -> bytes:
        """See the protocol."""
        self._requested.add((namespace, name))
        return await self._store.read(namespace, name, start, size)


async def _at_once(body: bytes) -> AsyncIterator[bytes]:
    yield body


def _turn(turn: str, texts: list[str], *, is_open: bool) -> list[dict[str, Any]]:
    """The entries of a turn, as they are stored; an open one has a call without a result."""
    question, reply = texts
    call = {"$type": "functionCall", "callId": f"call_{turn}", "name": "echo", "arguments": {"text": "x"}}
    contents = {"request": [_text(question)], "response": [_text(reply), *([call] if is_open else [])]}
    return [
        {
            "$type": kind,
            "correlationId": turn,
            "createdAt": "2026-01-01T00:00:00+00:00",
            "messages": [{"role": role, "contents": contents[kind]}],
        }
        for kind, role in (("request", "user"), ("response", "assistant"))
    ]


def _text(text: str) -> dict[str, Any]:
    return {"$type": "text", "text": text}
