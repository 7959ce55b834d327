"""What only OpenAI's clients know: settings, errors, items."""

import pytest

from durable_agent_host.errors import SettingError
from durable_agent_host.providers.openai import chat_client_from_environment

OPENAI = {"OPENAI_API_KEY": "sk-1", "OPENAI_MODEL": "gpt-5-mini"}
AZURE = {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com", "AZURE_OPENAI_DEPLOYMENT": "mini"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith(("OPENAI_", "AZURE_OPENAI_")):
            monkeypatch.delenv(name)


def test_openai_is_chosen_by_its_key():
    """Key and model make a client of OpenAI, at another address when one is given."""
    client = chat_client_from_environment(OPENAI | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert client.model == "gpt-5-mini"
    assert str(client.client.base_url) == "http://127.0.0.1:9/v1/"


def test_azure_has_precedence():
    """An Azure endpoint wins over an OpenAI key."""
    client = chat_client_from_environment(AZURE | OPENAI | {"AZURE_OPENAI_API_KEY": "k"})
    assert client.model == "mini"
    assert "x.openai.azure.com" in str(client.client.base_url)


@pytest.mark.parametrize(("settings", "setting_name"), [(OPENAI, "OPENAI_MODEL"), (AZURE, "AZURE_OPENAI_DEPLOYMENT")])
def test_a_missing_model_is_named(settings, setting_name):
    """The error says which setting is missing."""
    with pytest.raises(SettingError, match=f"set {setting_name} too"):
        chat_client_from_environment({name: value for name, value in settings.items() if name != setting_name})
