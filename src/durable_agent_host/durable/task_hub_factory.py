"""Selects an app's hub: the only place that does."""

from durable_agent_host.durable.app_secret import AppSecret
from durable_agent_host.durable.task_hub import PlainHub, TaskHub
from durable_agent_host.encryption.data_key_storage import PlaintextGuard
from durable_agent_host.encryption.store_factory import StoreFactory


def hub_of(stores: StoreFactory) -> TaskHub:
    """Return the hub of an app: encrypting if its stores are encrypted."""
    secret = AppSecret(stores.open_plain_pieces)
    if stores.encryption is None:
        return PlainHub(PlaintextGuard(stores.open_pieces), secret)
    from durable_agent_host.durable.encrypted_task_hub import EncryptedHub  # noqa: PLC0415 - needs a package of its own

    return EncryptedHub(*stores.encryption, secret)
