"""Which storage account the blob store uses."""

import asyncio

import pytest

from durable_agent_host.errors import SettingError
from durable_agent_host.stores.blob import BlobTurnLog


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
