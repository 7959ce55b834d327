"""Data keys protected by an RSA key of Azure Key Vault or a managed HSM, which never leaves it: RSA-OAEP-256.

A stored data key names the version of the vault key that wrapped it, so after a rotation in the vault, earlier ones
can still be unwrapped. The two requests run in a thread that may block and need no SDK. Source: REST API of Key Vault
7.4, "Wrap Key" and "Unwrap Key"; the scope of a token is that of the vault's domain, as its challenge names it.
"""

import json
import urllib.error
import urllib.request
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

from durable_agent_host.encryption.key_wrapping import SETTING
from durable_agent_host.errors import EncryptionKeyError, SettingError

_VERSION: Final = "7.4"
_ALGORITHM: Final = "RSA-OAEP-256"
_SECONDS: Final = 30.0


class Credential(Protocol):
    """A credential of azure-identity."""

    def get_token(self, *scopes: str) -> Any:
        """Return an access token, with the text in ``token``."""
        ...


class KeyVaultKey:
    """A key of a vault, by its URL. Implements `durable_agent_host.encryption.key_wrapping.WrappingKey`.

    Args:
        key_id: its id in the setting.
        url: ``https://VAULT.vault.azure.net/keys/NAME``, with or without a version.
        credential: of Azure; by default the default chain (managed identity, environment, command line).

    Raises:
        SettingError: the URL names no key.
    """

    def __init__(self, key_id: str, url: str, *, credential: Credential | None = None) -> None:
        self.id = key_id
        self._url = url.rstrip("/")
        self._host = urlsplit(self._url).netloc
        self._credential = credential
        first, *names = urlsplit(self._url).path.strip("/").split("/")
        if first != "keys" or len(names) not in {1, 2} or urlsplit(self._url).query:
            raise SettingError(
                f"{SETTING}: the key {key_id!r} is to have a URL of the form https://VAULT.vault.azure.net/keys/NAME"
            )

    def wrap(self, secret: bytes) -> bytes:
        """Encrypt a data key in the vault."""
        return json.dumps(self._ask(self._url, "wrapkey", _text(secret))).encode()

    def unwrap(self, wrapped_secret: bytes) -> bytes | None:
        """Decrypt a data key in the vault."""
        try:
            wrapping_json = json.loads(wrapped_secret)
            version = str(wrapping_json["kid"])
            value = str(wrapping_json["value"])
        except (ValueError, KeyError, TypeError):
            return None
        if urlsplit(version).netloc != self._host:
            return None  # stored data must not choose where the app's token goes
        return _bytes(self._ask(version, "unwrapkey", value)["value"])

    def _ask(self, key: str, operation: str, value: str) -> dict[str, str]:
        body = json.dumps({"alg": _ALGORITHM, "value": value}).encode()
        try:
            headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": "application/json"}
            url = (
                f"{key.replace(urlsplit(key).scheme, urlsplit(self._url).scheme, 1)}/{operation}?api-version={_VERSION}"
            )
            request = urllib.request.Request(url, body, headers)  # noqa: S310 - the setting allows only https
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310
                response_json = json.load(answer)
                return {"kid": str(response_json["kid"]), "value": str(response_json["value"])}
        except urllib.error.HTTPError as error:
            reason = f"{error.code}: {error.read(2000).decode('utf-8', 'replace')}"
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = str(error)
        raise EncryptionKeyError(
            f"the key {self.id!r} of {self._host} cannot {operation.removesuffix('key')} a data key ({reason}): let "
            "the app's identity wrap and unwrap with it; nothing was changed"
        )

    def _token(self) -> str:
        if self._credential is None:
            self._credential = _default_credential()
        try:
            return self._credential.get_token(f"https://{self._host.partition('.')[2]}/.default").token
        except Exception as error:
            raise OSError(f"the app has no identity: {error}") from error


def _default_credential() -> Credential:
    from azure.identity import DefaultAzureCredential  # noqa: PLC0415 (slow)

    return DefaultAzureCredential()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
