"""The data keys of an app: made once, wrapped again, never lost silently."""

import asyncio
import base64
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.credentials import AccessToken
from azure.core.pipeline.transport import RequestsTransport
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA256

from durable_agent_host.codec.offloaded_text import blob_name
from durable_agent_host.encryption.cipher import Cipher
from durable_agent_host.encryption.data_key_storage import KEYS_NAMESPACE
from durable_agent_host.encryption.encrypted_blob_store import EncryptedBlobStore
from durable_agent_host.encryption.key_wrapping import KeyVaultKey, LocalKey, WrappingKey
from durable_agent_host.encryption.keyring import Keyring
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError
from durable_agent_host.segments.sqlite_store import SqliteBlobStore

OLD, NEW = LocalKey("old", bytes(32)), LocalKey("new", bytes(range(32)))
ASSOCIATED_DATA = ("piece", "home", "name")


@pytest.fixture
async def store(tmp_path: Path):
    """A store of pieces."""
    blob_store = SqliteBlobStore(tmp_path / "pieces.db")
    yield blob_store
    await blob_store.close()


def ring(store: SqliteBlobStore, *keys: WrappingKey) -> Keyring:
    """The keyring of another process."""
    return Keyring(lambda: store, keys)


async def read_wrapped_keys(store: SqliteBlobStore) -> list[bytes]:
    """What is stored of the keys."""
    names = [piece.name async for piece in store.list_blobs(KEYS_NAMESPACE)]
    return list((await store.get(KEYS_NAMESPACE, names)).values())


async def test_processes_that_begin_at_once_read_each_other(store: SqliteBlobStore):
    """However many keys are made at once, every process decrypts what every other has encrypted, and then uses one."""
    rings = [ring(store, OLD) for _ in range(4)]
    await asyncio.gather(*(keyring.ready() for keyring in rings))
    data = [Cipher(keyring).encrypt(ASSOCIATED_DATA, b"text") for keyring in rings]
    for keyring in rings:
        assert {await asyncio.to_thread(Cipher(keyring).decrypt, ASSOCIATED_DATA, each) for each in data} == {b"text"}
    assert len({ring(store, OLD).all()[0].id for _ in range(3)}) == 1


async def test_pieces_of_processes_that_begin_at_once(store: SqliteBlobStore):
    """A piece is stored under a name that follows from the key of its process: one that has another key finds it."""
    first, second = ring(store, OLD), ring(store, OLD)
    await first.ready()
    key_blobs = {piece.name: b"" async for piece in store.list_blobs(KEYS_NAMESPACE)}
    key_blobs = await store.get(KEYS_NAMESPACE, key_blobs)
    await store.delete(KEYS_NAMESPACE, key_blobs)
    await second.ready()
    await store.put(KEYS_NAMESPACE, key_blobs)  # as if both had looked before either wrote
    assert first.all() != second.all()
    stores = [EncryptedBlobStore(store, Cipher(keyring), keyring) for keyring in (first, second)]
    for writer, reader, data in ((*stores, b"of the first"), (*stores[::-1], b"of the second")):
        await writer.put("a" * 32, {blob_name(data): data})
        assert await reader.get("a" * 32, [blob_name(data)]) == {blob_name(data): data}


@pytest.mark.parametrize("data", [b"{}", b"[]", b"7", b'"text"', b"null", b"{", b"", b'{"dataKey": "a"}'])
async def test_what_is_no_wrapped_key_is_an_error(store: SqliteBlobStore, data: bytes):
    """Among the keys, what somebody else has put there is named, and no other key is made for it."""
    await ring(store, OLD).ready()
    before = await read_wrapped_keys(store)
    await store.put(KEYS_NAMESPACE, {blob_name(data): data})
    with pytest.raises(CorruptStateError):
        await ring(store, OLD).ready()
    assert sorted(await read_wrapped_keys(store)) == sorted([*before, data])


@pytest.mark.parametrize(
    "associated_data", [("piece", "home", "other"), ("piece", "other", "name"), ("log", "home", "name")]
)
async def test_ciphertext_is_bound_to_its_associated_data(store: SqliteBlobStore, associated_data: tuple[str, ...]):
    """At another place, or with any bit changed, it is refused; at its own, the same text gives the same bytes."""
    cipher = Cipher(ring(store, OLD))
    data = cipher.encrypt(ASSOCIATED_DATA, b"text")
    assert (cipher.encrypt(ASSOCIATED_DATA, b"text"), cipher.decrypt(ASSOCIATED_DATA, data)) == (data, b"text")
    with pytest.raises(CorruptStateError, match="moved"):
        cipher.decrypt(associated_data, data)
    for at in range(4, len(data)):
        with pytest.raises(CorruptStateError):
            cipher.decrypt(ASSOCIATED_DATA, data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    assert cipher.encrypt(associated_data, b"text")[4:] != data[4:]


OAEP = padding.OAEP(padding.MGF1(SHA256()), SHA256(), None)


def url_text(data: bytes) -> str:
    """Base64 as Key Vault writes it."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class VaultHandler(BaseHTTPRequestHandler):
    """The REST API of Key Vault, with one key: whoever has no token is told for what to get one."""

    def do_GET(self) -> None:
        """Give the public half of the key."""
        if self.is_known():
            vault = self.server.vault
            public = vault.key.public_key().public_numbers()
            numbers = {name: url_text(getattr(public, name).to_bytes(256).lstrip(b"\0")) for name in ("n", "e")}
            version = self.path.partition("?")[0].removeprefix("/keys/mine").strip("/") or vault.version
            jwk = {"kid": f"https://{vault.host}/keys/mine/{version}", "kty": "RSA", **numbers}
            jwk |= {"key_ops": ["wrapKey", "unwrapKey"]}
            self.answer(vault.status if vault.may_get else 403, {"key": jwk, "attributes": {"enabled": True}})

    def do_POST(self) -> None:
        """Wrap or unwrap."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        if self.is_known():
            vault = self.server.vault
            vault.requests.add((self.path.partition("?")[0], self.headers["authorization"], body["alg"]))
            value, public = base64.urlsafe_b64decode(body["value"] + "=="), vault.key.public_key()
            done = public.encrypt(value, OAEP) if "/wrapkey" in self.path else vault.key.decrypt(value, OAEP)
            self.answer(vault.status, {"kid": f"https://{vault.host}/keys/mine/1", "value": url_text(done)})

    def is_known(self) -> bool:
        """Look for a token."""
        if not self.headers["authorization"]:
            where = f'authorization="https://login.example/tenant", resource="https://{self.server.vault.host[4:]}"'
            self.answer(401, {}, **{"WWW-Authenticate": f"Bearer {where}"})
        return bool(self.headers["authorization"])

    def answer(self, status: int, body: Any, **headers: str) -> None:
        """Send an answer, or an error."""
        data = json.dumps(body if status == 200 else {"error": {"code": "Forbidden", "message": "no"}}).encode()
        self.send_response(status)
        headers |= {"content-length": str(len(data)), "content-type": "application/json"}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def key_vault() -> Iterator[SimpleNamespace]:
    """Serve a vault with an RSA key."""
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), VaultHandler)
    host, key = f"127.0.0.1:{server.server_port}", rsa.generate_private_key(65537, 2048)
    vault = SimpleNamespace(requests=set(), status=200, version="1", may_get=True, host=host, key=key)
    vault.url = f"https://{host}/keys/mine"
    server.vault = vault
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield vault
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class WithoutTls(RequestsTransport):
    """Sends what goes to an https URL without TLS."""

    def send(self, request: Any, **kwargs: Any) -> Any:
        """Send a request."""
        request.url = request.url.replace("https://", "http://", 1)
        try:
            return super().send(request, **kwargs)
        finally:
            request.url = request.url.replace("http://", "https://", 1)

    def close(self) -> None:
        """Close the connections; another client may open it again."""
        super().close()
        self._has_been_opened = False


class Identity:
    """A credential that gives the scope as the token."""

    def get_token(self, *scopes: str, **options: Any) -> Any:
        """Return a token."""
        return AccessToken(f"token for {scopes[0]}", int(time.time()) + 3600)


def key_in(vault: SimpleNamespace) -> KeyVaultKey:
    """The key, by its URL without a version."""
    return KeyVaultKey("v", vault.url, credential=Identity(), transport=WithoutTls())


async def test_a_vault_keeps_the_key(store: SqliteBlobStore):
    """A key of Key Vault unwraps in the vault, by the version that wrapped; a refusal changes nothing."""
    with key_vault() as vault:
        data = Cipher(ring(store, key_in(vault))).encrypt(ASSOCIATED_DATA, b"text")
        vault.version = "2"
        assert Cipher(ring(store, key_in(vault))).decrypt(ASSOCIATED_DATA, data) == b"text"
        token = f"Bearer token for https://{vault.host[4:]}/.default"
        assert vault.requests == {("/keys/mine/1/unwrapkey", token, "RSA-OAEP-256")}
        before = await read_wrapped_keys(store)
        vault.status = 403
        with pytest.raises(EncryptionKeyError, match=r"cannot unwrap.*Forbidden"):
            Cipher(ring(store, key_in(vault))).decrypt(ASSOCIATED_DATA, data)
        assert await read_wrapped_keys(store) == before
        vault.status = 200
        assert Cipher(ring(store, OLD, key_in(vault))).decrypt(ASSOCIATED_DATA, data) == b"text"
    assert Cipher(ring(store, OLD)).decrypt(ASSOCIATED_DATA, data) == b"text"


async def test_a_key_whose_version_is_unknown_wraps_nothing(store: SqliteBlobStore):
    """What it has wrapped could not be unwrapped after a rotation."""
    with key_vault() as vault:
        vault.may_get = False
        with pytest.raises(EncryptionKeyError, match=r"cannot wrap.*may not get"):
            Cipher(ring(store, key_in(vault))).encrypt(ASSOCIATED_DATA, b"text")
        assert await read_wrapped_keys(store) == []


@pytest.mark.parametrize("left", [0, 1, 4, 16, 31])
async def test_what_was_cut_short_is_damaged(store: SqliteBlobStore, left: int):
    """Too short for a key's id, a nonce and a tag: it was changed, and no key is missing."""
    cipher = Cipher(ring(store, OLD))
    data = await asyncio.to_thread(cipher.encrypt, ASSOCIATED_DATA, b"text")
    with pytest.raises(CorruptStateError, match="changed"):
        cipher.decrypt(ASSOCIATED_DATA, data[:left])
