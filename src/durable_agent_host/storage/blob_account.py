"""The storage account of a function app."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from azure.storage.blob.aio import ContainerClient

from durable_agent_host.errors import SettingError

_CLIENT_OPTIONS: Final[dict[str, Any]] = {
    "retry_total": 0,  # the stores retry themselves, with shorter and longer waits than the SDK
    "logger": logging.getLogger("durable_agent_host.storage.requests"),
}
_CLIENT_OPTIONS["logger"].setLevel(logging.WARNING)  # at INFO the SDK logs every request and its headers


def container_of_app(
    environment: Mapping[str, str], container: str, *, what: str, setting: str = "AzureWebJobsStorage"
) -> Callable[[Any], ContainerClient]:
    """Return a factory for clients of the app's storage account.

    Args:
        environment: the app's settings.
        container: its name.
        what: what needs the account, for the message.
        setting: name of a connection string, or prefix of ``{setting}__accountName`` and
            ``{setting}__blobServiceUri`` for identities, with ``{setting}__clientId`` for a user-assigned one.

    Returns:
        A function that creates a client of the container with a given transport, in the loop that will use it. Connects
        to nothing.

    Raises:
        SettingError: none of the settings exists.
    """
    connection_string = environment.get(setting, "").strip()
    if connection_string:
        return lambda transport: _connect(connection_string, container, setting, transport)
    account = environment.get(f"{setting}__accountName", "").strip()
    url = environment.get(f"{setting}__blobServiceUri", "").strip()
    url = url or (f"https://{account}.blob.core.windows.net" if account else "")
    if not url:
        raise SettingError(
            f"{what} needs a storage account: set {setting} to a connection string, or "
            f"{setting}__accountName for an identity"
        )
    client_id = environment.get(f"{setting}__clientId", "").strip() or None
    is_managed = environment.get(f"{setting}__credential", "").strip().casefold() == "managedidentity"

    def make_client(transport: Any) -> ContainerClient:
        from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential  # noqa: PLC0415 (slow)

        credential = (
            ManagedIdentityCredential(client_id=client_id)
            if is_managed
            else DefaultAzureCredential(managed_identity_client_id=client_id)
        )
        return ContainerClient(url, container, credential, transport=transport, **_CLIENT_OPTIONS)

    return make_client


def _connect(connection_string: str, container: str, setting: str, transport: Any) -> ContainerClient:
    options = _CLIENT_OPTIONS | {"transport": transport}
    try:
        return ContainerClient.from_connection_string(connection_string, container, **options)
    except ValueError as error:
        raise SettingError(f"{setting} is no connection string of a storage account ({error}): copy it anew") from None
