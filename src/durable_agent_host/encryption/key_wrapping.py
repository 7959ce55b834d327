"""The operator's keys: they protect the data keys, and encrypt nothing else."""

import json
import re
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from azure.core.credentials import TokenCredential
from azure.core.exceptions import AzureError
from cryptography.hazmat.primitives.keywrap import InvalidUnwrap, aes_key_unwrap, aes_key_wrap

from durable_agent_host.errors import EncryptionKeyError, SettingError
from durable_agent_host.redaction import add_known_secrets

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


# Data keys protected by an RSA key of Azure Key Vault or a managed HSM, which never leaves it: RSA-OAEP-256.
#
# A stored data key names the version of the vault key that wrapped it, so after a rotation in the vault, earlier ones
# can still be unwrapped. The SDK wraps with the public half of the key, which it reads once, and has the vault
# unwrap.

_SECONDS: Final = 30.0
"""Timeout of a request to the key vault."""
_RETRIES: Final = 1
_VERSION_PARTS: Final = 3
"""Of the path of a key's URL with a version: ``keys``, the name, the version."""


class KeyVaultKey:
    """A key of a vault, by its URL. Implements `durable_agent_host.encryption.key_wrapping.WrappingKey`.

    Args:
        key_id: its id in the setting.
        url: ``https://VAULT.vault.azure.net/keys/NAME``, with or without a version.
        credential: of Azure; by default the default chain (managed identity, environment, command line).
        **client_options: further options of the SDK's client.

    Raises:
        SettingError: the URL names no key.
    """

    def __init__(
        self, key_id: str, url: str, *, credential: TokenCredential | None = None, **client_options: Any
    ) -> None:
        self.id = key_id
        self._url = url.rstrip("/")
        self._host = urlsplit(self._url).netloc
        self._credential = credential
        self._client_options = client_options
        first, *names = _path_parts(self._url)
        if first != "keys" or len(names) not in {1, 2} or urlsplit(self._url).query:
            raise SettingError(
                f"{SETTING}: the key {key_id!r} is to have a URL of the form https://VAULT.vault.azure.net/keys/NAME"
            )

    def wrap(self, secret: bytes) -> bytes:
        """Encrypt a data key for the vault."""
        result = self._call("wrap", self._url, lambda client, algorithm: client.wrap_key(algorithm, secret))
        if len(_path_parts(result.key_id)) != _VERSION_PARTS:  # it could not be unwrapped after a rotation
            raise self._unusable("wrap", "the version of the key is unknown, as the app's identity may not get it")
        value = urlsafe_b64encode(result.encrypted_key).rstrip(b"=").decode()
        return json.dumps({"kid": result.key_id, "value": value}).encode()

    def unwrap(self, wrapped_secret: bytes) -> bytes | None:
        """Decrypt a data key in the vault."""
        try:
            wrapping_json = json.loads(wrapped_secret)
            version_url = str(wrapping_json["kid"])
            text = str(wrapping_json["value"])
            value = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        except (ValueError, KeyError, TypeError):
            return None
        if urlsplit(version_url).netloc != self._host:
            return None  # stored data must not choose where the app's token goes
        return self._call("unwrap", version_url, lambda client, algorithm: client.unwrap_key(algorithm, value)).key

    def _call(self, operation: str, key_url: str, call: Callable[[Any, Any], Any]) -> Any:
        from azure.keyvault.keys.crypto import CryptographyClient, KeyWrapAlgorithm  # noqa: PLC0415 (slow)

        if self._credential is None:
            from azure.identity import DefaultAzureCredential

            self._credential = DefaultAzureCredential()
        try:
            with CryptographyClient(
                key_url,
                self._credential,
                connection_timeout=_SECONDS,
                read_timeout=_SECONDS,
                retry_total=_RETRIES,
                **self._client_options,
            ) as client:
                return call(client, KeyWrapAlgorithm.rsa_oaep_256)
        except (AzureError, OSError, ValueError) as error:
            raise self._unusable(operation, str(error)) from error

    def _unusable(self, operation: str, reason: str) -> EncryptionKeyError:
        return EncryptionKeyError(
            f"the key {self.id!r} of {self._host} cannot {operation} a data key ({reason}): let the app's identity "
            "get, wrap and unwrap with it; nothing was changed"
        )


def _path_parts(url: str) -> list[str]:
    return urlsplit(url).path.strip("/").split("/")


_FORM: Final = "'ID=KEY', or several with commas between them, the current one first"
_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_BYTES: Final = 32
"""Length of an operator's key."""


def read_keys(setting: str) -> list[WrappingKey]:
    """Read the operator's keys.

    Returns:
        The keys, the current one first.

    Raises:
        SettingError: the setting is malformed; the message does not quote it.
    """
    keys: list[WrappingKey] = []
    for number, setting_part in enumerate(
        (setting_part.strip() for setting_part in setting.split(",") if setting_part.strip()), 1
    ):
        key_id, _, text = setting_part.partition("=")
        if not _ID.fullmatch(key_id) or not text:
            raise SettingError(f"{SETTING}: key {number} does not have the form {_FORM}")
        if any(key.id == key_id for key in keys):
            raise SettingError(f"{SETTING} has the key id {key_id!r} twice: every key needs its own")
        keys.append(_key_of(key_id, text))
    if not keys:
        raise SettingError(f"{SETTING} has no key: give it the form {_FORM}")
    return keys


def _key_of(key_id: str, text: str) -> WrappingKey:
    if text.startswith("https://"):
        return KeyVaultKey(key_id, text)
    try:
        secret = b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        secret = b""
    if len(secret) != _BYTES:
        raise SettingError(
            f"{SETTING}: the key {key_id!r} is not {_BYTES} bytes in base64, nor the URL of a key of Azure Key Vault: "
            "make one with 'openssl rand -base64 32'"
        )
    add_known_secrets([text])
    return LocalKey(key_id, secret)
