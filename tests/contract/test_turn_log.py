"""What every turn log promises, whichever store is behind it."""

import asyncio
import random
import threading
import time
import uuid

import pytest

from durable_agent_host.errors import FencedError, LogError
from durable_agent_host.model.log_entry import ATTEMPT, EVENT, Inbox, LogEntry


def new_id() -> str:
    return uuid.uuid4().hex


def delta(text: str) -> LogEntry:
    return LogEntry(EVENT, {"event": "message.delta", "data": {"text": text}})


def texts(records) -> list[str]:
    return [record.entry.data["data"]["text"] for record in records if record.entry.kind == EVENT]


async def read_all(log, log_id: str, from_offset: int = 0, **options) -> list:
    """Read page by page to the end; offsets follow each other."""
    records = []
    while True:
        page = await log.read(log_id, from_offset, **options)
        records += page.records
        assert page.next_offset >= from_offset
        from_offset = page.next_offset
        if not page.has_more:
            return records


async def collect(log, log_id: str, count: int, from_offset: int = 0) -> list:
    """Follow until so many records have come."""
    records = []
    async with asyncio.timeout(500):
        async for page in log.follow(log_id, from_offset):
            assert page.records
            assert page.next_offset == page.records[-1].offset + 1
            records += page.records
            if len(records) >= count:
                return records
    return records


def assert_consecutive(records, first: int = 0) -> None:
    assert [record.offset for record in records] == list(range(first, first + len(records)))


async def test_a_log_starts_with_its_attempt(backend):
    """The first attempt has number 1, and its entry has offset 0."""
    log, log_id = backend.store(), new_id()
    assert await log.open(log_id) == 1
    (record,) = await read_all(log, log_id)
    assert (record.offset, record.attempt, record.entry) == (0, 1, LogEntry(ATTEMPT, {"number": 1}))


async def test_appended_entries_are_read_in_order_by_others(backend):
    """What one process appends, another one reads: same entries, offsets without a gap."""
    log, log_id = backend.store(), new_id()
    attempt = await log.open(log_id)
    assert await log.append(log_id, [delta("a"), delta("b")], attempt=attempt) == 1
    assert await log.append(log_id, [delta("c")], attempt=attempt) == 3
    for reader in (log, backend.store()):
        records = await read_all(reader, log_id)
        assert_consecutive(records)
        assert texts(records) == ["a", "b", "c"]
        assert {record.attempt for record in records} == {1}


async def test_a_log_that_does_not_exist_is_empty(backend):
    """Reading what nobody has written gives nothing, and says to go on at the same place."""
    page = await backend.store().read(new_id(), 7)
    assert (list(page.records), page.next_offset, page.has_more) == ([], 7, False)


async def test_entries_come_back_as_they_were(backend):
    """Lone surrogates, line breaks, null characters, deep and unknown things are kept."""
    log, log_id = backend.store(), new_id()
    attempt = await log.open(log_id)
    entries = [
        LogEntry("kind-of-a-later-version", {"deep": {"list": [1, 2.5, None, True, {"": []}]}}),
        LogEntry(EVENT, {"event": "message.delta", "data": {"text": "half \ud83d of a pair, and the other \ude00"}}),
        LogEntry(EVENT, {"event": "x", "data": {"text": "line\nline\r\n\u2028 zero\0 é漢😀", "big": 2**70}}),
        LogEntry("model_finished", {}),
    ]
    await log.append(log_id, entries, attempt=attempt)
    records = await read_all(backend.store(), log_id)
    assert [record.entry for record in records[1:]] == entries


async def test_large_entries_are_stored(backend):
    """Entries of one and of ten megabytes come back whole, beside small ones of the same append."""
    log, log_id = backend.store(), new_id()
    attempt = await log.open(log_id)
    large = 10_000_000 if backend.__class__.__name__ != "Blob" or not backend.options else 60_000
    some = ["a", "b" * (large // 8), "c", "d" * large, "e"]
    for first in (1, 6):
        assert await log.append(log_id, [delta(text) for text in some[:3]], attempt=attempt) == first
        assert await log.append(log_id, [delta(text) for text in some[3:]], attempt=attempt) == first + 3
        if large == 60_000:
            break
    assert texts(await read_all(backend.store(), log_id))[:5] == some


async def test_data_without_a_json_encoding_is_rejected(backend):
    """An entry that cannot be stored raises LogError, and nothing of its append is there."""
    log, log_id = backend.store(), new_id()
    attempt = await log.open(log_id)
    with pytest.raises(LogError, match="JSON"):
        await log.append(log_id, [delta("a"), LogEntry(EVENT, {"event": object()})], attempt=attempt)
    assert await log.append(log_id, [delta("b")], attempt=attempt) == 1


async def test_pages_are_bounded(backend):
    """A page has at most the bytes asked for, at least one entry, and says whether there is more."""
    log, log_id = backend.store(), new_id()
    attempt = await log.open(log_id)
    some = [str(number) * 300 for number in range(10)]
    await log.append(log_id, [delta(text) for text in some], attempt=attempt)
    page = await log.read(log_id, 1, max_bytes=1200)
    assert 1 <= len(page.records) <= 4
    assert page.has_more
    assert page.next_offset == 1 + len(page.records)
    assert len((await log.read(log_id, 1, max_bytes=1)).records) == 1
    for size in (1, 700, 1200, 10_000):
        assert texts(await read_all(backend.store(), log_id, max_bytes=size)) == some
    assert texts(await read_all(backend.store(), log_id, 6, max_bytes=700)) == some[5:]


async def test_a_ghost_is_fenced(backend):
    """After a later attempt has begun, an earlier one cannot append, in its own process or another."""
    first_log, second_log, log_id = backend.store(), backend.store(), new_id()
    first = await first_log.open(log_id)
    await first_log.append(log_id, [delta("a")], attempt=first)
    second = await second_log.open(log_id)
    assert second == 2
    for log in (first_log, second_log):
        with pytest.raises(FencedError):
            await log.append(log_id, [delta("ghost")], attempt=first)
    assert await second_log.append(log_id, [delta("b")], attempt=second) == 3
    assert await first_log.append(log_id, [delta("c")], attempt=second) == 4
    records = await read_all(first_log, log_id)
    assert_consecutive(records)
    assert texts(records) == ["a", "b", "c"]
    assert [record.attempt for record in records] == [1, 1, 2, 2, 2]


async def test_an_attempt_that_never_started_is_fenced(backend):
    """Nobody appends to a log that was not opened, nor as an attempt that is still to come."""
    log, log_id = backend.store(), new_id()
    with pytest.raises(FencedError):
        await log.append(log_id, [delta("a")], attempt=1)
    await log.open(log_id)
    with pytest.raises(FencedError):
        await log.append(log_id, [delta("a")], attempt=2)
    assert texts(await read_all(log, log_id)) == []


async def test_a_follower_resumes_where_it_was(backend):
    """Followers that break off and resume at their offset, over and over, miss nothing and see nothing twice."""
    log, other, log_id = backend.store(), backend.store(), new_id()
    attempt = await log.open(log_id)

    async def write() -> None:
        for number in range(60):
            await log.append(log_id, [delta(str(number))], attempt=attempt)

    async def follow(seed: int) -> list:
        chance, records = random.Random(seed), []
        while len(records) < 61:
            source = chance.choice((log, other))
            async for page in source.follow(log_id, len(records), max_bytes=chance.choice((1, 200, 100_000))):
                records += page.records
                if len(records) >= 61 or chance.random() < 0.3:
                    break
        return records

    async with asyncio.timeout(500):
        found = await asyncio.gather(write(), *map(follow, range(4)))
    for records in found[1:]:
        assert_consecutive(records)
        assert texts(records) == [str(number) for number in range(60)]


async def test_deleted_logs_are_empty(backend):
    """A deleted log is empty, has an empty inbox, takes nothing from its writer, and can begin anew."""
    log, other, log_id = backend.store(), backend.store(), new_id()
    attempt = await log.open(log_id)
    await log.append(log_id, [delta("a")], attempt=attempt)
    await log.request_cancel(log_id)
    await log.send_message(log_id, new_id(), delta("to the agent"))
    await other.delete(log_id)
    await other.delete(log_id)
    assert await read_all(other, log_id) == []
    assert await other.read_inbox(log_id) == Inbox()
    with pytest.raises(FencedError):
        await log.append(log_id, [delta("b")], attempt=attempt)
    assert await log.open(log_id) == 1
    assert_consecutive(await read_all(other, log_id))


async def test_old_logs_are_swept(backend):
    """Logs without an append for so long are deleted, and the others stay."""
    log, old = backend.store(), new_id()
    await log.open(old)
    await log.request_cancel(old)
    await asyncio.sleep(3.5)  # times of Azure's blobs are whole seconds
    assert await log.sweep(older_than_seconds=3600) == 0
    swept, is_young = 0, False
    while not is_young:  # on a machine that is too busy, it may be old, too
        started_at = time.monotonic()
        await log.open(young := new_id())
        swept += await log.sweep(older_than_seconds=2)
        is_young = time.monotonic() - started_at < 1
    assert swept >= 1
    assert await read_all(backend.store(), old) == []
    assert not (await log.read_inbox(old)).is_cancel_requested
    assert len(await read_all(backend.store(), young)) == 1


async def test_cancel_marks_stay(backend):
    """A mark needs no log and no attempt, is seen by every process, and can be left twice."""
    log, other, log_id = backend.store(), backend.store(), new_id()
    assert not (await other.read_inbox(log_id)).is_cancel_requested
    for _ in range(2):
        await log.request_cancel(log_id)
    assert (await other.read_inbox(log_id)).is_cancel_requested
    assert await read_all(other, log_id) == []
    assert await other.open(log_id) == 1
    assert (await log.read_inbox(log_id)).is_cancel_requested
    assert not (await log.read_inbox(new_id())).is_cancel_requested


async def test_messages_are_sent_to_a_turn(backend):
    """Messages need no attempt, are seen by every process, and the first one with an id stays."""
    log, other, log_id, ids = backend.store(), backend.store(), new_id(), [new_id() for _ in range(2)]
    assert await log.read_inbox(log_id) == Inbox()
    messages = {ids[0]: delta("é \ud83d"), ids[1]: delta("long " * 1000)}
    for _ in range(2):
        for message_id, message in messages.items():
            assert await other.send_message(log_id, message_id, message) == message
    assert await log.send_message(log_id, ids[0], delta("another")) == messages[ids[0]]
    assert await log.read_inbox(log_id) == await other.read_inbox(log_id) == Inbox(messages=messages)
    assert await read_all(log, log_id) == []
    await log.request_cancel(log_id)
    assert await backend.store().read_inbox(log_id) == Inbox(True, messages)
    assert await log.read_inbox(new_id()) == Inbox()


async def test_any_loop_of_any_thread_can_call(backend):
    """One object serves the loops of several threads, one after the other and at the same time."""
    log = backend.store()
    log_ids = [new_id() for _ in range(4)]
    followers = [asyncio.create_task(collect(log, log_id, 11)) for log_id in log_ids]
    failures: list[BaseException] = []

    def run(number: int) -> None:
        async def write() -> None:
            attempt = await log.open(log_ids[number])
            for count in range(10):
                await log.append(log_ids[number], [delta(f"{number}.{count}")], attempt=attempt)

        try:
            asyncio.run(write())
        except BaseException as error:  # noqa: BLE001 (shown in the test)
            failures.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    assert not failures
    for follower in followers:
        assert_consecutive(await follower)


async def test_a_cancelled_caller_harms_nobody(backend):
    """An append whose caller was cancelled is there or not, whole, and the next attempt goes on."""
    log, log_id = backend.store(), new_id()
    for number in range(10):
        attempt = await log.open(log_id)
        task = asyncio.create_task(log.append(log_id, [delta(f"{number}a"), delta(f"{number}b")], attempt=attempt))
        await asyncio.sleep(0.001 * number)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    await log.append(log_id, [delta("end")], attempt=await log.open(log_id))
    records = await read_all(backend.store(), log_id)
    assert_consecutive(records)
    found = texts(records)
    assert found.pop() == "end"
    assert all(first[:-1] == second[:-1] for first, second in zip(found[::2], found[1::2], strict=True))
    assert len(found) == len(set(found))


async def test_a_closed_store_raises(backend):
    """After close, calls raise LogError, and followers end."""
    log, log_id = backend.store(), new_id()
    await log.open(log_id)
    follower = asyncio.create_task(collect(log, log_id, 99))
    await asyncio.sleep(0.1)
    await log.close()
    await log.close()
    with pytest.raises(LogError):
        await log.open(log_id)
    assert len(await asyncio.gather(follower, return_exceptions=True)) == 1
    assert len(await read_all(backend.store(), log_id)) == 1
