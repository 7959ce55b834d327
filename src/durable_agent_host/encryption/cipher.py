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
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM, AESSIV

from durable_agent_host.codec.encryption_envelope import encode_envelope, read_envelope
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.encryption.key_wrapping import PLAINTEXT_SETTING
from durable_agent_host.errors import CorruptStateError

type AssociatedData = tuple[str, ...]
"""Where a value is kept: the kind of place, which one, and where in it. At least two parts."""

KEY_BYTES: Final = 32
OVERHEAD_BYTES: Final = 32
"""How many bytes encryption adds to a value."""
_ID_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_SCOPES: Final = 4096
"""Maximum cached keys of scopes."""

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
        self.prefix = _derive_key(secret, ("id",))[:_ID_BYTES]
        self.id = self.prefix.hex()
        self.names = AESSIV(_derive_key(secret, ("names",)))
        self.scope = lru_cache(_SCOPES)(self._scope)

    def _scope(self, kind: str, which: str) -> _ScopeKeys:
        key_material = _derive_key(self.secret, ("scope", kind, which))
        return _ScopeKeys(AESGCM(key_material[:KEY_BYTES]), key_material[KEY_BYTES:])


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


class Cipher:
    """Encrypts and decrypts values by their places.

    Args:
        keys: of the app.
        refuses_plaintext: unencrypted stored data is an error; without it, it is read as it is.
    """

    def __init__(self, keys: DataKeys, *, refuses_plaintext: bool = False) -> None:
        self._keys = keys
        self._refuses_plaintext = refuses_plaintext

    def encrypt(self, location: AssociatedData, data: bytes) -> bytes:
        """Encrypt data for a place. The same data at the same place gives the same result.

        Raises:
            EncryptionKeyError: the app does not have the key.
        """
        return _encrypt_bytes(self._keys.all()[0], location, data)

    def decrypt(self, location: AssociatedData, data: bytes) -> bytes:
        """Decrypt data found at a place.

        Raises:
            CorruptStateError: the data was changed, or was encrypted for another place.
            EncryptionKeyError: the app does not have the key.
        """
        if len(data) < OVERHEAD_BYTES:
            raise _modified_error(location)
        return _decrypt_bytes(self._keys.find(data[:_ID_BYTES]), location, data)

    def encrypt_to_envelope(self, location: AssociatedData, data: bytes) -> dict[str, Any]:
        """Encrypt data into a JSON object; see `encrypt`."""
        return encode_envelope(b2a_base64(self.encrypt(location, data), newline=False).decode())

    def decrypt_value(self, location: AssociatedData, value: Any) -> bytes | None:
        """Decrypt the data of a JSON object; None when it is not encrypted. See `decrypt`."""
        if (text := read_envelope(value)) is None:
            return None
        try:
            data = a2b_base64(text)  # the tag detects what this decoder skips
        except ValueError as error:
            raise CorruptStateError(f"the encrypted value at {'/'.join(location)} is no base64") from error
        return self.decrypt(location, data)

    def encrypt_json(self, location: AssociatedData, value: Any) -> dict[str, Any]:
        """Encrypt JSON into a JSON object; see `encrypt`."""
        return self.encrypt_to_envelope(location, json_bytes_of(value))

    def decrypt_json(self, location: AssociatedData, value: Any) -> Any:
        """Decrypt JSON; return unencrypted JSON as it is. See `decrypt`."""
        data = self.decrypt_value(location, value)
        return value if data is None else json_of_bytes(data, "what was encrypted")

    def read_json(self, location: AssociatedData, value: Any) -> Any:
        """Decrypt JSON that only this host stores; `decrypt_json` is for values that others may have written.

        Raises:
            CorruptStateError: see `decrypt`; or it is not encrypted, and plaintext is refused.
            EncryptionKeyError: the app does not have the key.
        """
        if value is not None and read_envelope(value) is None:
            self.check_plaintext("/".join(location))
        return self.decrypt_json(location, value)

    def check_plaintext(self, label: str) -> None:
        """Refuse unencrypted stored data, unless plaintext may be read.

        Raises:
            CorruptStateError: plaintext is refused.
        """
        if self._refuses_plaintext:
            raise CorruptStateError(
                f"{label} is not encrypted, and {PLAINTEXT_SETTING} refuses that: set it to 'read' if it was stored "
                "before the encryption, and export and import the session; nothing was changed"
            )

    def stored_names(self, namespace: str, name: str) -> list[str]:
        """Return the names under which an encrypted piece may be stored; new pieces get the first."""
        return [key.id + key.names.encrypt(bytes.fromhex(name), [namespace.encode()]).hex() for key in self._keys.all()]

    def decrypt_name(self, namespace: str, stored_name: str) -> str:
        """Return a piece's name from its stored name.

        Raises:
            CorruptStateError: it was not stored under this name in this home.
            EncryptionKeyError: the app does not have the key.
        """
        try:
            key = self._keys.find(bytes.fromhex(stored_name[: 2 * _ID_BYTES]))
            return key.names.decrypt(bytes.fromhex(stored_name[2 * _ID_BYTES :]), [namespace.encode()]).hex()
        except (InvalidTag, ValueError) as error:
            raise CorruptStateError(
                f"the piece {stored_name} of {namespace} was renamed, or moved there from another home: restore a copy"
            ) from error


def _encrypt_bytes(key: DataKey, location: AssociatedData, data: bytes) -> bytes:
    scope = key.scope(*location[:2])
    bound = _encode_location(location)
    nonce = blake2b(bound + data, key=scope.nonces, digest_size=_NONCE_BYTES).digest()
    return key.prefix + nonce + scope.aead.encrypt(nonce, data, bound)


def _decrypt_bytes(key: DataKey, location: AssociatedData, data: bytes) -> bytes:
    nonce = data[_ID_BYTES : _ID_BYTES + _NONCE_BYTES]
    body = data[_ID_BYTES + _NONCE_BYTES :]
    try:
        return key.scope(*location[:2]).aead.decrypt(nonce, body, _encode_location(location))
    except (InvalidTag, ValueError) as error:
        raise _modified_error(location) from error


def _modified_error(location: AssociatedData) -> CorruptStateError:
    return CorruptStateError(
        f"the encrypted value at {'/'.join(location)} has been changed, or was moved there from another place: "
        "restore a copy; nothing was changed"
    )


def _derive_key(secret: bytes, location: AssociatedData) -> bytes:
    return hmac.digest(secret, _PURPOSE + _encode_location(location), "sha512")


def _encode_location(location: AssociatedData) -> bytes:
    """Encode a place so that two places never give the same bytes."""
    if "".join(location).isascii():
        return f"{len(location)}{''.join([f':{len(part)}:{part}' for part in location])}".encode()
    parts = [part.encode("utf-8", "surrogatepass") for part in location]
    return b"%d" % len(parts) + b"".join([b":%d:%b" % (len(part), part) for part in parts])
