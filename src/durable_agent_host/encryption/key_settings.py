"""The operator's keys, from the setting."""

import re
from base64 import b64decode
from typing import Final

from durable_agent_host.encryption.key_wrapping import SETTING, KeyVaultKey, LocalKey, WrappingKey
from durable_agent_host.errors import SettingError
from durable_agent_host.redaction import add_known_secrets

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
