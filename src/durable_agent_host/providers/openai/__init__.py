"""OpenAI and Azure OpenAI Responses, through `agent_framework_openai` 1.17.

`client_from_environment` makes the client that the environment selects. `provider` implements the port; `client` adapts
an agent's client; `item_types` has a row for each type of output item, used by `item_mapping` and `request_items`;
`errors` explains rejections.
"""

from typing import Final

from durable_agent_host.providers.openai.client_from_environment import chat_client_from_environment

__all__ = ["RESPONSES_CLIENT", "chat_client_from_environment"]

RESPONSES_CLIENT: Final = ("agent_framework_openai", "RawOpenAIChatClient")
"""Package and name of the base class of clients of the Responses API, including Azure OpenAI's and Foundry's."""
