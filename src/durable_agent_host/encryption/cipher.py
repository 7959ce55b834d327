"""AES-256-GCM with a place as associated data: a value encrypted at one place cannot be decrypted at another.

Theory of operation. The operator's keys stand in a setting; the first one encrypts, the others decrypt what they have
encrypted before. The nonce is a keyed hash of place and plaintext: the same text at the same place gives the same
bytes, so replayed orchestrations and repeated writes produce identical values, and no nonce is used for two texts. The
hash is BLAKE2b, because Python's HMAC releases the interpreter's lock for however few bytes, and another thread takes
it.

An encrypted value is the key's prefix (4 bytes), the nonce (12), and the ciphertext with its tag (16).
"""

import hmac
import re
from base64 import b64decode
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from durable_agent_host.codec.entity_state import encode_envelope, read_envelope
from durable_agent_host.codec.session_blobs import json_bytes_of, json_of_bytes
from durable_agent_host.errors import CorruptStateError, EncryptionKeyError, SettingError
from durable_agent_host.redaction import add_known_secrets

type AssociatedData = tuple[str, ...]
"""Where a value is kept: the kind of place, which one, and where in it. At least two parts."""

SETTING: Final = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
PLAINTEXT_SETTING: Final = "DURABLE_AGENT_HOST_ENCRYPTION_PLAINTEXT"
OVERHEAD_BYTES: Final = 32
"""How many bytes encryption adds to a value."""
_KEY_BYTES: Final = 32
_PREFIX_BYTES: Final = 4
_NONCE_BYTES: Final = 12
_FORM: Final = "'ID=KEY', or several with commas between them, the current one first"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EncryptionKey:
    """A key of the operator.

    Args:
        key_id: its id in the setting.
        secret: its 32 bytes.

    Attributes:
        id: its id in the setting.
        prefix: begins everything that it encrypts; derived from the secret without revealing it.
    """

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        self.prefix = _derive(secret, b"id")[:_PREFIX_BYTES]
        self._aead = AESGCM(secret)
        self._nonces = _derive(secret, b"nonces")

    def encrypt(self, data: bytes, bound: bytes) -> bytes:
        """Encrypt data, bound to an encoded place."""
        nonce = blake2b(bound + data, key=self._nonces, digest_size=_NONCE_BYTES).digest()
        return self.prefix + nonce + self._aead.encrypt(nonce, data, bound)

    def decrypt(self, data: bytes, bound: bytes) -> bytes:
        """Decrypt data that was bound to an encoded place.

        Raises:
            InvalidTag: it was changed, or bound to another place.
        """
        body = data[_PREFIX_BYTES:]
        return self._aead.decrypt(body[:_NONCE_BYTES], body[_NONCE_BYTES:], bound)


def read_keys(setting: str) -> list[EncryptionKey]:
    """Read the operator's keys.

    Returns:
        The keys, the current one first.

    Raises:
        SettingError: the setting is malformed; the message does not quote it.
    """
    keys: list[EncryptionKey] = []
    parts = [part.strip() for part in setting.split(",") if part.strip()]
    for number, part in enumerate(parts, 1):
        key_id, _, text = part.partition("=")
        if not _ID.fullmatch(key_id) or not text:
            raise SettingError(f"{SETTING}: key {number} does not have the form {_FORM}")
        if any(key.id == key_id for key in keys):
            raise SettingError(f"{SETTING} has the key id {key_id!r} twice: every key needs its own")
        keys.append(EncryptionKey(key_id, _secret_of(key_id, text)))
    if not keys:
        raise SettingError(f"{SETTING} has no key: give it the form {_FORM}")
    return keys


def _secret_of(key_id: str, text: str) -> bytes:
    try:
        secret = b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        secret = b""
    if len(secret) != _KEY_BYTES:
        raise SettingError(
            f"{SETTING}: the key {key_id!r} is not {_KEY_BYTES} bytes in base64: make one with "
            "'openssl rand -base64 32'"
        )
    add_known_secrets([text])
    return secret


class Cipher:
    """Encrypts and decrypts values by their places.

    Args:
        keys: of the app; the first one encrypts.
        refuses_plaintext: unencrypted stored data is an error; without it, it is read as it is.
    """

    def __init__(self, keys: Sequence[EncryptionKey], *, refuses_plaintext: bool = False) -> None:
        self._current = keys[0]
        self._keys = {key.prefix: key for key in keys}
        self._refuses_plaintext = refuses_plaintext

    @property
    def current_prefix(self) -> bytes:
        """What begins everything that is encrypted now."""
        return self._current.prefix

    def find_key(self, prefix: bytes) -> EncryptionKey:
        """Return the key that has encrypted what begins with these bytes.

        Raises:
            EncryptionKeyError: the app does not have it.
        """
        if (key := self._keys.get(prefix)) is None:
            ids = ", ".join(repr(key.id) for key in self._keys.values())
            raise EncryptionKeyError(
                f"stored data is encrypted with another key than those of {SETTING}, which has {ids}: put the earlier "
                "key back, after the current one; nothing was changed"
            )
        return key

    def encrypt(self, location: AssociatedData, data: bytes) -> bytes:
        """Encrypt data for a place. The same data at the same place gives the same result."""
        return self._current.encrypt(data, _encode_location(location))

    def decrypt(self, location: AssociatedData, data: bytes) -> bytes:
        """Decrypt data found at a place.

        Raises:
            CorruptStateError: the data was changed, or was encrypted for another place.
            EncryptionKeyError: the app does not have the key.
        """
        if len(data) < OVERHEAD_BYTES:
            raise _modified_error(location)
        key = self.find_key(data[:_PREFIX_BYTES])
        try:
            return key.decrypt(data, _encode_location(location))
        except InvalidTag as error:
            raise _modified_error(location) from error

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


def _modified_error(location: AssociatedData) -> CorruptStateError:
    return CorruptStateError(
        f"the encrypted value at {'/'.join(location)} has been changed, or was moved there from another place: "
        "restore a copy; nothing was changed"
    )


def _derive(secret: bytes, purpose: bytes) -> bytes:
    return hmac.digest(secret, b"durable-agent-host encryption: " + purpose, "sha256")


def _encode_location(location: AssociatedData) -> bytes:
    """Encode a place so that two places never give the same bytes."""
    if "".join(location).isascii():
        return f"{len(location)}{''.join([f':{len(part)}:{part}' for part in location])}".encode()
    parts = [part.encode("utf-8", "surrogatepass") for part in location]
    return b"%d" % len(parts) + b"".join([b":%d:%b" % (len(part), part) for part in parts])
