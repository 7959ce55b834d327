"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17.

`provider` implements the port; `client` adapts an agent's client; `item_types` has a row for each type of output item,
used by `item_mapping` and `request_items`; `errors` explains rejections.
"""

import os
from collections.abc import Mapping
from typing import Any, Final

from durable_agent_host.errors import SettingError

__all__ = ["RESPONSES_CLIENT", "chat_client_from_environment"]

RESPONSES_CLIENT: Final = ("agent_framework_openai", "RawOpenAIChatClient")
"""Package and name of the base class of clients of the Responses API, including Azure OpenAI's and Foundry's."""


def chat_client_from_environment(environment: Mapping[str, str] = os.environ) -> Any:
    """Make the chat client that the environment selects.

    ``AZURE_OPENAI_ENDPOINT`` with ``AZURE_OPENAI_DEPLOYMENT`` selects Azure OpenAI, with ``AZURE_OPENAI_API_KEY`` or,
    without a key, Entra ID; otherwise ``OPENAI_API_KEY`` with ``OPENAI_MODEL`` (and ``OPENAI_BASE_URL``) selects
    OpenAI.

    Args:
        environment: variable names to values.

    Raises:
        SettingError: neither is set, or the model's name is missing; says what to set.
    """
    from agent_framework_openai import OpenAIChatClient

    def setting(name: str) -> str | None:
        return environment.get(name, "").strip() or None

    endpoint = setting("AZURE_OPENAI_ENDPOINT")
    key = setting("OPENAI_API_KEY")
    if endpoint:
        deployment = setting("AZURE_OPENAI_DEPLOYMENT") or setting("AZURE_OPENAI_MODEL")
        if not deployment:
            raise SettingError(
                "AZURE_OPENAI_ENDPOINT is set: set AZURE_OPENAI_DEPLOYMENT too, to the model's deployment"
            )
        azure_key = setting("AZURE_OPENAI_API_KEY")
        credential = None if azure_key else _entra_credential()
        return OpenAIChatClient(model=deployment, azure_endpoint=endpoint, api_key=azure_key, credential=credential)
    if key:
        model = setting("OPENAI_MODEL")
        if not model:
            raise SettingError("OPENAI_API_KEY is set: set OPENAI_MODEL too, for example to gpt-5-mini")
        return OpenAIChatClient(model=model, api_key=key, base_url=setting("OPENAI_BASE_URL"))
    raise SettingError(
        "no model is configured: set AZURE_OPENAI_ENDPOINT and AZURE_OPENAI_DEPLOYMENT, or OPENAI_API_KEY and "
        "OPENAI_MODEL, in the environment or in local.settings.json (without a key: python -m practice_model)"
    )


def _entra_credential() -> Any:
    from azure.identity.aio import DefaultAzureCredential

    return DefaultAzureCredential()
