"""Which store keeps blobs, by the settings."""

import pytest

from durable_agent_host.errors import SettingError
from durable_agent_host.settings import Settings
from durable_agent_host.store_factory import open_segment_store
from tests.kit_services import set_environment

ACCOUNT = {"AzureWebJobsStorage": "UseDevelopmentStorage=true"}


@pytest.mark.parametrize(
    ("setting", "environment", "kind"),
    [
        ("", {"FUNCTIONS_HOST_DATA": "/nowhere"} | ACCOUNT, "SqliteBlobStore"),
        ("", ACCOUNT, "AzureBlobStore"),
        ("", {"AzureWebJobsStorage__accountName": "account"}, "AzureBlobStore"),
        ("blob", {"FUNCTIONS_HOST_DATA": "/nowhere"} | ACCOUNT, "AzureBlobStore"),
        ("sqlite:/nowhere/blobs.sqlite", {}, "SqliteBlobStore"),
    ],
)
def test_the_store_is_chosen_without_touching_it(monkeypatch, setting, environment, kind):
    """The setting names the store; by default it is a file beside the embedded host's own, else the app's storage."""
    set_environment(monkeypatch, environment)
    assert type(open_segment_store(Settings(segments=setting))).__name__ == kind


def test_the_turn_log_does_not_choose_the_store(monkeypatch):
    """With turn logs in Redis, blobs are in the app's storage account."""
    set_environment(monkeypatch, ACCOUNT)
    settings = Settings(turn_log="redis://127.0.0.1:1")
    assert type(open_segment_store(settings)).__name__ == "AzureBlobStore"


@pytest.mark.parametrize("setting", ["sqlite", "sqlite:", "blob:x", "redis://127.0.0.1:1", "file:/x", "/x"])
def test_an_invalid_setting_is_rejected(setting):
    """What can be set is in the sentence."""
    with pytest.raises(SettingError, match=r"DURABLE_AGENT_HOST_SEGMENTS .*'sqlite:PATH', 'blob' or nothing"):
        open_segment_store(Settings(segments=setting))


def test_a_missing_storage_account_is_an_error_with_the_setting(monkeypatch):
    """Without the embedded host and without storage there is no place."""
    set_environment(monkeypatch, {})
    with pytest.raises(SettingError, match="AzureWebJobsStorage"):
        open_segment_store(Settings())
