"""Which storage account the blob store uses."""

import asyncio
from collections.abc import Iterator

import pytest

from durable_agent_host.errors import LogError, SettingError
from durable_agent_host.stores.blob import BlobTurnLog
from tests.kit_services import ACCOUNT_KEY, azurite, azurite_connection


@pytest.fixture
def azurite_port(tmp_path) -> Iterator[int]:
    with azurite(tmp_path) as port:
        yield port


def test_without_an_account_the_setting_is_named():
    """A missing setting is an error that says what to set."""
    with pytest.raises(SettingError, match="AzureWebJobsStorage"):
        BlobTurnLog.from_environment({})


@pytest.mark.parametrize(
    "settings",
    [
        {"AzureWebJobsStorage": "UseDevelopmentStorage=true"},
        {"AzureWebJobsStorage__accountName": "account"},
        {"AzureWebJobsStorage__blobServiceUri": "https://account.blob.core.windows.net"},
        {
            "AzureWebJobsStorage__accountName": "account",
            "AzureWebJobsStorage__credential": "managedidentity",
            "AzureWebJobsStorage__clientId": "00000000-0000-0000-0000-000000000000",
        },
    ],
)
def test_every_way_to_name_an_account_is_understood(settings):
    """Connection strings, the development storage and identities are accepted; nothing is connected."""
    asyncio.run(BlobTurnLog.from_environment(settings).close())


async def test_a_malformed_connection_string_is_named():
    """A setting that is no connection string is an error that names it, and does not show it."""
    log = BlobTurnLog.from_environment({"AzureWebJobsStorage": "nonsense"})
    with pytest.raises(SettingError, match="AzureWebJobsStorage") as refused:
        await log.read("a" * 32)
    assert "nonsense" not in str(refused.value)
    await log.close()


async def test_a_wrong_key_is_told_at_once(azurite_port):
    """A storage that refuses the key is not asked again and again; the error says what is needed."""
    connection = azurite_connection(azurite_port).replace(ACCOUNT_KEY, "bm90IHRoZSBrZXk=")
    log = BlobTurnLog.from_environment({"AzureWebJobsStorage": connection})
    with pytest.raises(LogError, match="refused"):
        await log.open("a" * 32)
    with pytest.raises(LogError, match="refused"):
        await log.is_cancel_requested("a" * 32)
    await log.close()
