"""What only OpenAI's clients know: settings, errors, items."""

import httpx2
import openai
import pytest
from agent_framework.exceptions import AgentFrameworkException

from durable_agent_host.errors import SettingError
from durable_agent_host.providers.openai import chat_client_from_environment
from durable_agent_host.providers.openai.errors import explain_error

OPENAI = {"OPENAI_API_KEY": "sk-1", "OPENAI_MODEL": "gpt-5-mini"}
AZURE = {"AZURE_OPENAI_ENDPOINT": "https://x.openai.azure.com", "AZURE_OPENAI_DEPLOYMENT": "mini"}


@pytest.fixture(autouse=True)
def _clean(monkeypatch):
    import os

    for name in list(os.environ):
        if name.startswith(("OPENAI_", "AZURE_OPENAI_")):
            monkeypatch.delenv(name)


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({}, "AZURE_OPENAI_ENDPOINT.*OPENAI_API_KEY.*scripts/demo"),
        ({"OPENAI_MODEL": "m"}, "OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": " "}, "OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": "k"}, "OPENAI_MODEL"),
        ({"AZURE_OPENAI_ENDPOINT": "https://x"}, "AZURE_OPENAI_DEPLOYMENT"),
        ({"AZURE_OPENAI_ENDPOINT": "https://x"} | OPENAI, "AZURE_OPENAI_DEPLOYMENT"),
    ],
)
def test_what_is_missing_is_named(environment, named):
    """One sentence says what to set."""
    with pytest.raises(SettingError, match=named):
        chat_client_from_environment(environment)


def test_openai_is_chosen_by_its_key():
    """Key and model make a client of OpenAI, at another address when one is given."""
    client = chat_client_from_environment(OPENAI | {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1"})
    assert client.model == "gpt-5-mini"
    assert str(client.client.base_url) == "http://127.0.0.1:9/v1/"


def test_azure_goes_first():
    """An Azure endpoint wins over an OpenAI key."""
    client = chat_client_from_environment(AZURE | OPENAI | {"AZURE_OPENAI_API_KEY": "k"})
    assert client.model == "mini"
    assert "x.openai.azure.com" in str(client.client.base_url)


REQUEST = httpx2.Request("POST", "http://127.0.0.1:9/v1/responses?secret=1")


def refused(status, body=None, **headers):
    response = httpx2.Response(status, request=REQUEST, headers=headers)
    return openai.APIStatusError("refused", response=response, body=body)


@pytest.mark.parametrize(
    ("error", "named", "retryable"),
    [
        (openai.APIConnectionError(request=REQUEST), "OPENAI_BASE_URL", True),
        (openai.APITimeoutError(request=REQUEST), "in time", True),
        (refused(401), "OPENAI_API_KEY", False),
        (refused(403), "key may use this model", False),
        (refused(404), "OPENAI_MODEL", False),
        (refused(400, {"message": "bad item"}), "bad item", False),
        (refused(400, {"message": "no", "code": "model_not_found"}), "OPENAI_MODEL", False),
        (refused(409), "409", True),
        (refused(429), "quota", True),
        (refused(500), "try again", True),
        (refused(503, "unavailable"), "try again", True),
    ],
)
def test_errors_of_the_sdk_are_explained(error, named, retryable):
    """Each has a sentence with what to check, and says whether the same call can succeed later."""
    explained = explain_error(error)
    assert explained is not None
    assert named in str(explained)
    assert explained.retryable is retryable
    assert "secret" not in str(explained)


def test_the_wait_that_the_service_asks_for_is_kept():
    """Retry-After in seconds is kept; a date is not guessed at."""
    assert explain_error(refused(429, **{"retry-after": "7"})).retry_after_seconds == 7
    assert explain_error(refused(429, **{"retry-after": "Sat, 21 Nov 2026 05:44:58 GMT"})).retry_after_seconds is None


def test_the_sdks_error_is_found_behind_the_frameworks():
    """The framework wraps the SDK's error; its cause is explained."""
    wrapped = AgentFrameworkException("service failed")
    wrapped.__cause__ = refused(401)
    assert "OPENAI_API_KEY" in str(explain_error(wrapped))


def test_other_errors_are_not_explained_away():
    """An error of a tool or of the program is left as it is."""
    assert explain_error(ValueError("mine")) is None
