"""The data keys of an app: made once, wrapped again, never lost silently."""

import asyncio
import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.encryption.cipher import Cipher
from durable_agent_host.encryption.data_key_storage import KEYS_NAMESPACE
from durable_agent_host.encryption.encrypted_blob_store import EncryptedBlobStore
from durable_agent_host.encryption.key_settings import read_keys
from durable_agent_host.encryption.key_vault import KeyVaultKey
from durable_agent_host.encryption.key_wrapping import LocalKey, WrappingKey
from durable_agent_host.encryption.keyring import Keyring
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError, SettingError
from durable_agent_host.segments.sqlite_store import SqliteBlobStore

OLD, NEW = LocalKey("old", bytes(32)), LocalKey("new", bytes(range(32)))
PLACE = ("piece", "home", "name")


@pytest.fixture
async def store(tmp_path: Path):
    """A store of pieces."""
    made = SqliteBlobStore(tmp_path / "pieces.db")
    yield made
    await made.close()


def ring(store: SqliteBlobStore, *keys: WrappingKey) -> Keyring:
    """The keyring of another process."""
    return Keyring(lambda: store, keys)


async def wrapped(store: SqliteBlobStore) -> list[bytes]:
    """What is stored of the keys."""
    names = [piece.name async for piece in store.list_blobs(KEYS_NAMESPACE)]
    return list((await store.get(KEYS_NAMESPACE, names)).values())


async def test_processes_that_begin_at_once_read_each_other(store: SqliteBlobStore):
    """However many keys are made at once, every process decrypts what every other has encrypted, and then uses one."""
    rings = [ring(store, OLD) for _ in range(4)]
    await asyncio.gather(*(one.ready() for one in rings))
    data = [Cipher(one).encrypt(PLACE, b"text") for one in rings]
    for one in rings:
        assert {await asyncio.to_thread(Cipher(one).decrypt, PLACE, each) for each in data} == {b"text"}
    assert len({ring(store, OLD).all()[0].id for _ in range(3)}) == 1


async def test_pieces_of_processes_that_begin_at_once(store: SqliteBlobStore):
    """A piece is stored under a name that follows from the key of its process: one that has another key finds it."""
    first, second = ring(store, OLD), ring(store, OLD)
    await first.ready()
    kept = {piece.name: b"" async for piece in store.list_blobs(KEYS_NAMESPACE)}
    kept = await store.get(KEYS_NAMESPACE, kept)
    await store.delete(KEYS_NAMESPACE, kept)
    await second.ready()
    await store.put(KEYS_NAMESPACE, kept)  # as if both had looked before either wrote
    assert first.all() != second.all()
    stores = [EncryptedBlobStore(store, Cipher(one), one) for one in (first, second)]
    for mine, others, data in ((*stores, b"of the first"), (*stores[::-1], b"of the second")):
        await mine.put("a" * 32, {blob_name(data): data})
        assert await others.get("a" * 32, [blob_name(data)]) == {blob_name(data): data}


@pytest.mark.parametrize("kept", [b"{}", b"[]", b"7", b'"text"', b"null", b"{", b"", b'{"dataKey": "a"}'])
async def test_what_is_no_wrapped_key_is_an_error(store: SqliteBlobStore, kept: bytes):
    """Among the keys, what somebody else has put there is named, and no other key is made for it."""
    await ring(store, OLD).ready()
    before = await wrapped(store)
    await store.put(KEYS_NAMESPACE, {blob_name(kept): kept})
    with pytest.raises(CorruptStateError):
        await ring(store, OLD).ready()
    assert sorted(await wrapped(store)) == sorted([*before, kept])


async def test_a_new_key_wraps_again_and_the_old_one_opens_nothing(store: SqliteBlobStore):
    """Rotation changes what is stored of the keys, and nothing else; the earlier key is not needed any more."""
    data = Cipher(ring(store, OLD)).encrypt(PLACE, b"text")
    before = await wrapped(store)
    assert Cipher(ring(store, NEW, OLD)).decrypt(PLACE, data) == b"text"
    after = await wrapped(store)
    assert not set(before) & set(after)
    assert [json.loads(one)["wrappedBy"] for one in after] == ["new"]
    assert Cipher(ring(store, NEW)).decrypt(PLACE, data) == b"text"
    for keys in ([OLD], [LocalKey("new", bytes(32))], [LocalKey("other", bytes(32))]):
        with pytest.raises(EncryptionKeyError, match=r"'new'.*nothing was changed"):
            Cipher(ring(store, *keys)).encrypt(PLACE, b"more")
    assert await wrapped(store) == after


@pytest.mark.parametrize("place", [("piece", "home", "other"), ("piece", "other", "name"), ("log", "home", "name")])
async def test_what_is_encrypted_belongs_to_its_place(store: SqliteBlobStore, place: tuple[str, ...]):
    """At another place, or with any bit changed, it is refused; at its own, the same text gives the same bytes."""
    cipher = Cipher(ring(store, OLD))
    data = cipher.encrypt(PLACE, b"text")
    assert (cipher.encrypt(PLACE, b"text"), cipher.decrypt(PLACE, data)) == (data, b"text")
    with pytest.raises(CorruptStateError, match="moved"):
        cipher.decrypt(place, data)
    for at in range(4, len(data)):
        with pytest.raises(CorruptStateError):
            cipher.decrypt(PLACE, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert cipher.encrypt(place, b"text")[4:] != data[4:]


@pytest.mark.parametrize(
    "setting",
    [
        "secret-canary",
        "k=",
        "k=c2VjcmV0LWNhbmFyeQ==",
        f"k={base64.b64encode(bytes(32)).decode()},k={base64.b64encode(bytes(32)).decode()}",
        "k=http://vault.example/keys/secret-canary",
        "k=https://vault.example/secrets/x",
    ],
)
def test_a_setting_without_meaning_is_not_quoted(setting: str):
    """It is an error that names the setting, and not the key."""
    with pytest.raises(SettingError, match="DURABLE_AGENT_HOST_ENCRYPTION_KEYS") as raised:
        read_keys(setting)
    assert "canary" not in str(raised.value)
    assert "c2VjcmV0" not in str(raised.value)


@contextmanager
def key_vault() -> Iterator[SimpleNamespace]:
    """Wrap and unwrap with an RSA key, as the REST API of Key Vault does."""
    key = rsa.generate_private_key(65537, 2048)
    oaep = padding.OAEP(padding.MGF1(SHA256()), SHA256(), None)
    vault = SimpleNamespace(asked=[], status=200, version="1")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            vault.asked.append((self.path, self.headers["authorization"], body["alg"]))
            value = base64.urlsafe_b64decode(body["value"] + "==")
            *_, what = self.path.partition("?")[0].split("/")
            done = key.public_key().encrypt(value, oaep) if what == "wrapkey" else key.decrypt(value, oaep)
            text = base64.urlsafe_b64encode(done).rstrip(b"=").decode()
            said = {"kid": f"https://{self.headers['host']}/keys/mine/{vault.version}", "value": text}
            data = json.dumps(said if vault.status == 200 else {"error": {"code": "Forbidden"}}).encode()
            self.send_response(vault.status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    vault.url = f"http://127.0.0.1:{server.server_port}/keys/mine"
    try:
        yield vault
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Identity:
    """A credential that gives the scope as the token."""

    def get_token(self, *scopes: str) -> Any:
        """Return a token."""
        return SimpleNamespace(token=f"token for {scopes[0]}")


async def test_a_vault_keeps_the_key(store: SqliteBlobStore):
    """A key of Key Vault wraps and unwraps in the vault, by the version that wrapped; a refusal changes nothing."""
    with key_vault() as vault:
        data = Cipher(ring(store, KeyVaultKey("v", vault.url, credential=Identity()))).encrypt(PLACE, b"text")
        vault.version = "2"
        again = ring(store, KeyVaultKey("v", vault.url, credential=Identity()))
        assert Cipher(again).decrypt(PLACE, data) == b"text"
        paths = {path for path, _, _ in vault.asked}
        assert paths == {"/keys/mine/wrapkey?api-version=7.4", "/keys/mine/1/unwrapkey?api-version=7.4"}
        assert {(token[:25], algorithm) for _, token, algorithm in vault.asked} == {
            ("Bearer token for https://", "RSA-OAEP-256")
        }
        before = await wrapped(store)
        vault.status = 403
        with pytest.raises(EncryptionKeyError, match=r"cannot unwrap.*403.*Forbidden"):
            Cipher(ring(store, KeyVaultKey("v", vault.url, credential=Identity()))).decrypt(PLACE, data)
        assert await wrapped(store) == before
        vault.status = 200
        moving = ring(store, OLD, KeyVaultKey("v", vault.url, credential=Identity()))
        assert Cipher(moving).decrypt(PLACE, data) == b"text"
    assert Cipher(ring(store, OLD)).decrypt(PLACE, data) == b"text"


@pytest.mark.parametrize("left", [0, 1, 4, 16, 31])
async def test_what_was_cut_short_is_damaged(store: SqliteBlobStore, left: int):
    """Too short for a key's id, a nonce and a tag: it was changed, and no key is missing."""
    cipher = Cipher(ring(store, OLD))
    data = await asyncio.to_thread(cipher.encrypt, PLACE, b"text")
    with pytest.raises(CorruptStateError, match="changed"):
        cipher.decrypt(PLACE, data[:left])
