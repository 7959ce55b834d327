"""The operator's keys: they protect the data keys, and encrypt nothing else."""

from typing import Final, Protocol

from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

SETTING: Final = "DURABLE_AGENT_HOST_ENCRYPTION_KEYS"
PLAINTEXT_SETTING: Final = "DURABLE_AGENT_HOST_ENCRYPTION_PLAINTEXT"


class WrappingKey(Protocol):
    """A key of the operator.

    Attributes:
        id: its id in the setting.
    """

    id: str

    def wrap(self, secret: bytes) -> bytes:
        """Encrypt a data key.

        Raises:
            EncryptionKeyError: the key cannot be used.
        """
        ...

    def unwrap(self, wrapped_secret: bytes) -> bytes | None:
        """Decrypt a data key; None when another key has wrapped it.

        Raises:
            EncryptionKeyError: the key cannot be used.
        """
        ...


class LocalKey:
    """A key given in the setting. Implements `WrappingKey` with AES key wrap. Source: RFC 3394."""

    def __init__(self, key_id: str, secret: bytes) -> None:
        self.id = key_id
        self._secret = secret

    def wrap(self, secret: bytes) -> bytes:
        """Encrypt a data key."""
        return aes_key_wrap(self._secret, secret)

    def unwrap(self, wrapped_secret: bytes) -> bytes | None:
        """Decrypt a data key."""
        try:
            return aes_key_unwrap(self._secret, wrapped_secret)
        except (InvalidUnwrap, ValueError):
            return None
