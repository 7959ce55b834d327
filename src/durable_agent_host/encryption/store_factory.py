"""The stores of an app, encrypted when the settings have keys. The only place that decides this."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from durable_agent_host.concurrency.singleton import once
from durable_agent_host.errors import SettingError
from durable_agent_host.segments.blob_store_factory import open_segment_store, segment_setting
from durable_agent_host.segments.protocol import BlobStore
from durable_agent_host.settings import REJECT_PLAINTEXT, Settings
from durable_agent_host.turn_log.protocol import TurnLog
from durable_agent_host.turn_log.turn_log_factory import open_turn_log

if TYPE_CHECKING:
    from durable_agent_host.encryption.cipher import Cipher
    from durable_agent_host.encryption.keyring import Keyring


@dataclass(frozen=True)
class StoreFactory:
    """How an app opens its stores.

    Attributes:
        open_log: returns the turn log; the first call opens it.
        open_pieces: returns the piece store; the first call opens it.
        open_plain_pieces: the same without encryption.
        encryption: for data kept elsewhere, with its keys; None without encryption.
    """

    open_log: Callable[[], TurnLog]
    open_pieces: Callable[[], BlobStore]
    open_plain_pieces: Callable[[], BlobStore]
    encryption: "tuple[Cipher, Keyring] | None" = None


def stores_of(settings: Settings, environment: Mapping[str, str] = os.environ) -> StoreFactory:
    """Prepare to open the stores that the settings name; opens none.

    Raises:
        SettingError: the keys are malformed, the package that encrypts is not installed, or the store of older messages
            does not exist.
    """
    segment_setting(settings, environment)  # reports an invalid setting at start
    open_log = once(partial(open_turn_log, settings, environment))
    open_pieces = once(partial(open_segment_store, settings, environment))
    if not settings.encryption_keys:
        return StoreFactory(open_log, open_pieces, open_pieces)
    if find_spec("cryptography") is None:
        raise SettingError("DURABLE_AGENT_HOST_ENCRYPTION_KEYS needs: pip install 'durable-agent-host[encryption]'")
    from durable_agent_host.encryption.cipher import Cipher  # noqa: PLC0415 - needs a package of its own
    from durable_agent_host.encryption.encrypted_blob_store import EncryptedBlobStore  # noqa: PLC0415
    from durable_agent_host.encryption.encrypted_turn_log import EncryptedTurnLog  # noqa: PLC0415
    from durable_agent_host.encryption.key_wrapping import read_keys  # noqa: PLC0415
    from durable_agent_host.encryption.keyring import Keyring  # noqa: PLC0415

    keyring = Keyring(open_pieces, read_keys(settings.encryption_keys))
    cipher = Cipher(keyring, refuses_plaintext=settings.encryption_plaintext == REJECT_PLAINTEXT)
    return StoreFactory(
        once(lambda: EncryptedTurnLog(open_log(), cipher, keyring)),
        once(lambda: EncryptedBlobStore(open_pieces(), cipher, keyring)),
        open_pieces,
        (cipher, keyring),
    )
