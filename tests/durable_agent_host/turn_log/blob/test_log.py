"""Which storage account the blob store uses."""

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.storage.blob import AccountSasPermissions, ResourceTypes, generate_account_sas

from durable_agent_host.errors import LogError, SettingError
from durable_agent_host.model.log_entry import LogEntry
from durable_agent_host.turn_log.blob.log import BlobTurnLog
from tests.kit_services import ACCOUNT_KEY, azurite, azurite_connection, set_environment


@pytest.fixture(scope="module")
def azurite_port(tmp_path_factory) -> Iterator[int]:
    with azurite(tmp_path_factory.mktemp("azurite")) as port:
        yield port


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
def test_every_way_to_name_an_account_is_understood(monkeypatch, settings):
    """Connection strings, the development storage and identities are accepted; nothing is connected."""
    set_environment(monkeypatch, settings)
    asyncio.run(BlobTurnLog.from_environment().close())


async def test_a_malformed_connection_string_is_named(monkeypatch):
    """A setting that is no connection string is an error that names it, and does not show it."""
    monkeypatch.setenv("AzureWebJobsStorage", "nonsense")
    log = BlobTurnLog.from_environment()
    with pytest.raises(SettingError, match="AzureWebJobsStorage") as error_info:
        await log.read("a" * 32)
    assert "nonsense" not in str(error_info.value)
    await log.close()


async def test_a_shared_access_signature_is_enough(monkeypatch, azurite_port):
    """With a signature in place of the key, logs are written, read and cancelled."""
    permissions = AccountSasPermissions(read=True, write=True, delete=True, list=True, add=True, create=True)
    kinds = ResourceTypes(service=True, container=True, object=True)
    until = datetime.now(UTC) + timedelta(hours=1)
    signature = generate_account_sas("devstoreaccount1", ACCOUNT_KEY, kinds, permissions, until)
    endpoint = f"http://127.0.0.1:{azurite_port}/devstoreaccount1"
    monkeypatch.setenv("AzureWebJobsStorage", f"BlobEndpoint={endpoint};SharedAccessSignature={signature}")
    log, log_id = BlobTurnLog.from_environment(), "a" * 32
    attempt = await log.open(log_id)
    assert await log.append(log_id, [LogEntry("event", {"text": "é"})], attempt=attempt) == 1
    assert [record.entry.data for record in (await log.read(log_id, 1)).records] == [{"text": "é"}]
    assert not (await log.read_inbox(log_id)).is_cancel_requested
    await log.request_cancel(log_id)
    assert (await log.read_inbox(log_id)).is_cancel_requested
    await log.close()


async def test_a_wrong_key_is_reported_immediately(monkeypatch, azurite_port):
    """A storage that refuses the key is not asked again and again; the error says what is needed."""
    connection = azurite_connection(azurite_port).replace(ACCOUNT_KEY, "bm90IHRoZSBrZXk=")
    monkeypatch.setenv("AzureWebJobsStorage", connection)
    log = BlobTurnLog.from_environment()
    with pytest.raises(LogError, match="refused"):
        await log.open("a" * 32)
    with pytest.raises(LogError, match="refused"):
        await log.read_inbox("a" * 32)
    await log.close()
