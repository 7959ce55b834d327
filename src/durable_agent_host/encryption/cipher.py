"""AES-256-GCM with a place as associated data: a value encrypted at one place cannot be decrypted at another.

Theory of operation. A data key encrypts nothing itself. The first two parts of a place are its scope (one home of
pieces, one turn log, one agent's sessions), and each scope has its own keys, derived with HMAC-SHA-512. The nonce is a
keyed hash of place and plaintext: the same text at the same place gives the same bytes, so replayed orchestrations and
repeated writes produce identical values, and no nonce is used for two texts. The hash is BLAKE2b, because Python's HMAC
releases the interpreter's lock for however few bytes, and another thread takes it.

An encrypted value is the data key's id (4 bytes), the nonce (12), and the ciphertext with its tag (16).
"""

import hmac
from binascii import a2b_base64, b2a_base64
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from durable_agent_host.codec.encryption_envelope import encode_envelope, read_envelope
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.encryption.key_wrapping import PLAINTEXT_SETTING
from durable_agent_host.errors import CorruptStateError

type Place = tuple[str, ...]
"""Where a value is kept: the kind of place, which one, and where in it. At least two parts."""

KEY_BYTES: Final = 32
OVERHEAD_BYTES: Final = 32
"""How many bytes encryption adds to a value."""
_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_SCOPES: Final = 4096
_REPEATED: Final = 128
_SHORT_BYTES: Final = 16 * 1024
_PURPOSE: Final = b"durable-agent-host encryption 1"


class _ScopeKeys(NamedTuple):
    aead: AESGCM
    nonces: bytes


class DataKey:
    """A key that encrypts stored data.

    Args:
        secret: 32 random bytes.

    Attributes:
        id: eight hexadecimal digits, derived from the secret without revealing it.
    """

    def __init__(self, secret: bytes) -> None:
        self.secret = secret
        self.prefix = _derived(secret, ("id",))[:_ID_BYTES]
        self.id = self.prefix.hex()
        self.names = AESSIV(_derived(secret, ("names",)))
        self.scope = lru_cache(_SCOPES)(self._scope)

    def _scope(self, kind: str, which: str) -> _ScopeKeys:
        derived = _derived(self.secret, ("scope", kind, which))
        return _ScopeKeys(AESGCM(derived[:KEY_BYTES]), derived[KEY_BYTES:])


class DataKeys(Protocol):
    """The data keys of an app."""

    def all(self) -> Sequence[DataKey]:
        """Return the keys, the current one first.

        Raises:
            EncryptionKeyError: the app does not have the operator's key that protects them.
        """
        ...

    def find(self, prefix: bytes) -> DataKey:
        """Return a key by the bytes of its id.

        Raises:
            EncryptionKeyError: the app has no such key.
        """
        ...


class _Newest[K, V]:
    """The most recently used values, by what they were computed from; usable from any thread."""

    def __init__(self) -> None:
        self._held = OrderedDict[K, V]()
        self.get = self._held.get

    def keep(self, made_of: K, value: V) -> None:
        self._held[made_of] = value
        if len(self._held) > _REPEATED:
            with suppress(KeyError):  # another thread did the same
                self._held.popitem(last=False)


class Cipher:
    """Encrypts and decrypts values by their places.

    Args:
        keys: of the app.
        refuses_plaintext: unencrypted stored data is an error; without it, it is read as it is.
    """

    def __init__(self, keys: DataKeys, *, refuses_plaintext: bool = False) -> None:
        self._keys = keys
        self._refuses_plaintext = refuses_plaintext
        # An orchestration replays with every step and encrypts again most of what it puts into the task hub.
        self._texts = _Newest[tuple[DataKey, Place, bytes], str]()
        self._data = _Newest[tuple[Place, str], bytes]()

    def encrypt(self, place: Place, data: bytes) -> bytes:
        """Encrypt data for a place. The same data at the same place gives the same result.

        Raises:
            EncryptionKeyError: the app does not have the key.
        """
        return _encrypted(self._keys.all()[0], place, data)

    def decrypt(self, place: Place, data: bytes) -> bytes:
        """Decrypt data found at a place.

        Raises:
            CorruptStateError: the data was changed, or was encrypted for another place.
            EncryptionKeyError: the app does not have the key.
        """
        if len(data) < OVERHEAD_BYTES:
            raise _changed(place)
        return _decrypted(self._keys.find(data[:_ID_BYTES]), place, data)

    def enveloped(self, place: Place, data: bytes) -> dict[str, Any]:
        """Encrypt data into a JSON object; see `encrypt`."""
        return encode_envelope(b2a_base64(self.encrypt(place, data), newline=False).decode())

    def opened(self, place: Place, value: Any) -> bytes | None:
        """Decrypt the data of a JSON object; None when it is not encrypted. See `decrypt`."""
        text = read_envelope(value)
        return None if text is None else self._opened(place, text)

    def _opened(self, place: Place, text: str) -> bytes:
        try:
            data = a2b_base64(text)  # the tag detects what this decoder skips
        except ValueError as error:
            raise CorruptStateError(f"the encrypted value at {'/'.join(place)} is no base64") from error
        return self.decrypt(place, data)

    def encrypt_json(self, place: Place, value: Any) -> dict[str, Any]:
        """Encrypt JSON into a JSON object; see `encrypt`."""
        key = self._keys.all()[0]
        data = json_bytes_of(value)
        text = self._texts.get((key, place, data))
        if text is None:
            text = b2a_base64(_encrypted(key, place, data), newline=False).decode()
            if len(data) <= _SHORT_BYTES:
                self._texts.keep((key, place, data), text)
                self._data.keep((place, text), data)
        return encode_envelope(text)

    def decrypt_json(self, place: Place, value: Any) -> Any:
        """Decrypt JSON; return unencrypted JSON as it is. See `decrypt`."""
        text = read_envelope(value)
        return value if text is None else self._json(place, text)

    def _json(self, place: Place, text: str) -> Any:
        data = self._data.get((place, text))
        if data is None:
            data = self._opened(place, text)
            if len(data) <= _SHORT_BYTES:
                self._data.keep((place, text), data)
        return json_of_bytes(data, "what was encrypted")

    def read_json(self, place: Place, value: Any) -> Any:
        """Decrypt JSON that only this host stores; `decrypt_json` is for values that others may have written.

        Raises:
            CorruptStateError: see `decrypt`; or it is not encrypted, and plaintext is refused.
            EncryptionKeyError: the app does not have the key.
        """
        text = read_envelope(value)
        if text is not None:
            return self._json(place, text)
        if value is not None:
            self.check_plaintext("/".join(place))
        return value

    def check_plaintext(self, what: str) -> None:
        """Refuse unencrypted stored data, unless plaintext may be read.

        Args:
            what: names the unencrypted data in the message.

        Raises:
            CorruptStateError: plaintext is refused.
        """
        if self._refuses_plaintext:
            raise CorruptStateError(
                f"{what} is not encrypted, and {PLAINTEXT_SETTING} refuses that: set it to 'read' if it was stored "
                "before the encryption, and export and import the session; nothing was changed"
            )

    def stored_names(self, home: str, name: str) -> list[str]:
        """Return the names under which an encrypted piece may be stored; new pieces get the first.

        Args:
            home: of the piece.
            name: SHA-256 of its plaintext; the stored name does not reveal it without the key.
        """
        return [key.id + key.names.encrypt(bytes.fromhex(name), [home.encode()]).hex() for key in self._keys.all()]

    def decrypt_name(self, home: str, stored: str) -> str:
        """Return a piece's name from its stored name.

        Raises:
            CorruptStateError: it was not stored under this name in this home.
            EncryptionKeyError: the app does not have the key.
        """
        try:
            key = self._keys.find(bytes.fromhex(stored[: 2 * _ID_BYTES]))
            return key.names.decrypt(bytes.fromhex(stored[2 * _ID_BYTES :]), [home.encode()]).hex()
        except (InvalidTag, ValueError) as error:
            raise CorruptStateError(
                f"the piece {stored} of {home} was renamed, or moved there from another home: restore a copy"
            ) from error


def _encrypted(key: DataKey, place: Place, data: bytes) -> bytes:
    scope = key.scope(*place[:2])
    bound = _written(place)
    nonce = blake2b(bound + data, key=scope.nonces, digest_size=_NONCE_BYTES).digest()
    return key.prefix + nonce + scope.aead.encrypt(nonce, data, bound)


def _decrypted(key: DataKey, place: Place, data: bytes) -> bytes:
    nonce = data[_ID_BYTES : _ID_BYTES + _NONCE_BYTES]
    body = data[_ID_BYTES + _NONCE_BYTES :]
    try:
        return key.scope(*place[:2]).aead.decrypt(nonce, body, _written(place))
    except (InvalidTag, ValueError) as error:
        raise _changed(place) from error


def _changed(place: Place) -> CorruptStateError:
    return CorruptStateError(
        f"the encrypted value at {'/'.join(place)} has been changed, or was moved there from another place: "
        "restore a copy; nothing was changed"
    )


def _derived(secret: bytes, place: Place) -> bytes:
    return hmac.digest(secret, _PURPOSE + _written(place), "sha512")


@lru_cache(_REPEATED)
def _written(place: Place) -> bytes:
    """Encode a place so that two places never give the same bytes."""
    if "".join(place).isascii():
        return f"{len(place)}{''.join([f':{len(part)}:{part}' for part in place])}".encode()
    parts = [part.encode("utf-8", "surrogatepass") for part in place]
    return b"%d" % len(parts) + b"".join([b":%d:%b" % (len(part), part) for part in parts])
