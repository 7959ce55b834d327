"""Uploads of a session, in every store of blobs."""

import hashlib

import pytest

from durable_agent_host.errors import RequestError
from durable_agent_host.segments import uploads as uploads_module
from durable_agent_host.segments.protocol import OWNER
from durable_agent_host.segments.uploads import Uploads, upload_namespace
from durable_agent_host.session.entry_files import FileBytes
from tests.contract.test_segments import list_blobs
from tests.contract.traces import loses

SESSION = "@dafx-a@s"
LARGE = FileBytes("a.pdf", "application/pdf", b"canary of a large upload" * 4000)
SMALL = FileBytes(None, None, b'{"file": "0", "name": "b", "mediaType": "c", "size": 1}')


async def test_uploads_are_found_by_their_bytes(blobs):
    """Every process finds what one has uploaded, with what was said of it; the same bytes are stored once."""
    uploads, other_uploads = (Uploads(blobs.store(), "A", "s", SESSION) for _ in range(2))
    for file in (LARGE, SMALL, LARGE):
        (upload,) = await uploads.add(file)
        assert (upload.file_id, upload.size) == (hashlib.sha256(file.data).hexdigest(), len(file.data))
        assert await other_uploads.find(upload.file_id) == upload
    assert {file.name for file in await other_uploads.all()} == {"a.pdf", None}
    namespace = upload_namespace("a", "s", None)
    store = blobs.store()
    for file in (LARGE, SMALL):
        (data,) = (await store.get(namespace, [hashlib.sha256(file.data).hexdigest()])).values()
        assert data == file.data
    assert len((await list_blobs(store, namespace)).keys() - {OWNER}) == 4
    assert await store.get(namespace, [OWNER]) == {OWNER: SESSION.encode()}


async def test_deleted_uploads_are_not_found(blobs):
    """Nothing of them can be found in the store, and deleting again changes nothing."""
    uploads = Uploads(blobs.store(), "A", "s", SESSION)
    (upload,) = await uploads.add(LARGE)
    for _ in range(2):
        await uploads.delete()
    assert await uploads.find(upload.file_id) is None
    assert await loses(blobs, b"canary of a large upload")
    assert [namespace async for namespace in blobs.store().list_namespaces()] == []


async def test_there_is_a_most_of_uploads(blobs, monkeypatch):
    """A session that fills itself with files that no message uses is refused more, whole requests at a time."""
    monkeypatch.setattr(uploads_module, "MAX_UPLOADS", 3)
    uploads = Uploads(blobs.store(), "A", "s", SESSION)
    first, second, third, fourth = (SMALL._replace(data=data) for data in (b"1", b"2", b"3", b"4"))
    await uploads.add(first, second)
    with pytest.raises(RequestError, match="3 uploads"):
        await uploads.add(third, fourth)
    assert {file.size for file in await uploads.all()} == {1}
    assert len(await uploads.all()) == 2
    await uploads.add(third, second)
    await uploads.add(first, second, third)  # a retry takes no room
    with pytest.raises(RequestError, match="3 uploads"):
        await uploads.add(fourth)
